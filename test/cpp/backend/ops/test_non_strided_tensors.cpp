#include "backend/ops/non_strided_tensors.h"

#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

at::Tensor uncoalesced() {
  const at::Tensor indices = at::tensor({0, 1, 1, 2, 0, 0}, at::kLong).view({2, 3});
  return at::sparse_coo_tensor(indices, at::tensor({3.F, 4.F, 5.F}), {2, 3});
}

at::Tensor compressed(at::Layout layout) {
  const at::Tensor dense = at::eye(4) * iota({4});
  const bool has_blocks = layout == at::kSparseBsr || layout == at::kSparseBsc;
  return dense.to_sparse(layout, has_blocks ? at::OptionalIntArrayRef({2, 2}) : std::nullopt);
}

at::Tensor quantized() {
  return at::quantize_per_tensor(iota({2, 3}), 0.5, 3, at::kQInt8);
}

at::Tensor nested() {
  return at::_nested_tensor_from_tensor_list({iota({2, 3}), iota({1, 4})});
}

// The parts of the tensor that live in memory of their own.
std::vector<at::Tensor> parts(const at::Tensor& tensor) {
  if (tensor.is_nested()) {
    return tensor.unbind();
  }
  if (tensor.is_quantized()) {
    return {tensor.int_repr()};
  }
  if (tensor.is_sparse()) {
    return {tensor._indices(), tensor._values()};
  }
  const bool by_row = tensor.layout() == at::kSparseCsr || tensor.layout() == at::kSparseBsr;
  return {
      by_row ? tensor.crow_indices() : tensor.ccol_indices(),
      by_row ? tensor.col_indices() : tensor.row_indices(),
      tensor.values()};
}

void expect_same_parts(const at::Tensor& actual, const at::Tensor& expected) {
  ASSERT_EQ(actual.layout(), expected.layout());
  ASSERT_EQ(actual.dtype(), expected.dtype());
  const auto actual_parts = parts(actual);
  const auto expected_parts = parts(expected);
  ASSERT_EQ(actual_parts.size(), expected_parts.size());
  for (size_t i = 0; i < actual_parts.size(); ++i) {
    EXPECT_TRUE(at::equal(actual_parts[i], expected_parts[i])) << actual_parts[i] << expected_parts[i];
  }
}

class NonStridedTensorsTest : public BackendTest {
 protected:
  static at::Tensor copy(const at::Tensor& tensor) {
    return convert_non_strided(tensor, [](const at::Tensor& part) { return part.clone(); });
  }
  static at::Tensor on_device(const at::Tensor& tensor) {
    return convert_non_strided(tensor, [](const at::Tensor& part) { return to_lazy(part); });
  }
  static at::Tensor on_cpu(const at::Tensor& tensor) {
    return convert_non_strided(tensor, [](const at::Tensor& part) { return part.cpu(); });
  }

  const std::vector<at::Tensor> sparse_{
      uncoalesced(),
      uncoalesced().coalesce(),
      compressed(at::kSparseCsr),
      compressed(at::kSparseCsc),
      compressed(at::kSparseBsr),
      compressed(at::kSparseBsc)};
};

TEST_F(NonStridedTensorsTest, KindsAreNamed) {
  const auto kind = [](const at::Tensor& tensor) { return non_strided_kind(*tensor.unsafeGetTensorImpl()); };
  EXPECT_EQ(kind(iota({2})), nullptr);
  EXPECT_EQ(kind(to_lazy(iota({2}))), nullptr);
  EXPECT_EQ(std::string(kind(quantized())), "a quantized tensor");
  EXPECT_EQ(std::string(kind(nested())), "a nested tensor");
  for (const at::Tensor& tensor : sparse_) {
    EXPECT_EQ(std::string(kind(tensor)), "a tensor that is not strided");
  }
}

TEST_F(NonStridedTensorsTest, PartsAreConverted) {
  std::vector<at::Tensor> tensors = sparse_;
  tensors.insert(tensors.end(), {quantized(), nested()});
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor actual = copy(tensor);
    expect_same_parts(actual, tensor);
    if (!tensor.is_quantized()) {
      EXPECT_NE(parts(actual).back().data_ptr(), parts(tensor).back().data_ptr());
    }
  }
}

TEST_F(NonStridedTensorsTest, ThereAndBackAgain) {
  std::vector<at::Tensor> tensors = sparse_;
  tensors.push_back(nested());
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor lazy = on_device(tensor);
    EXPECT_EQ(lazy.device(), lazy_device(0));
    EXPECT_EQ(lazy.layout(), tensor.layout());
    for (const at::Tensor& part : parts(lazy)) {
      EXPECT_EQ(part.device(), lazy_device(0));
    }
    expect_same_parts(on_cpu(lazy), tensor);
  }
  EXPECT_EQ(count("FallbackTotal"), 0);
}

TEST_F(NonStridedTensorsTest, SparseTensorsKeepWhatIsKnownOfTheirIndices) {
  EXPECT_FALSE(copy(uncoalesced()).is_coalesced());
  EXPECT_TRUE(copy(uncoalesced().coalesce()).is_coalesced());
  const at::Tensor hybrid = at::sparse_coo_tensor(at::tensor({2, 0}, at::kLong).view({1, 2}), iota({2, 3}), {4, 3});
  EXPECT_EQ(copy(hybrid).sparse_dim(), 1);
  EXPECT_EQ(copy(hybrid).dense_dim(), 1);
  EXPECT_TRUE(at::equal(copy(hybrid).to_dense(), hybrid.to_dense()));
  const at::Tensor empty = at::sparse_coo_tensor({2, 3}, at::TensorOptions(at::kFloat).layout(at::kSparse));
  EXPECT_EQ(copy(empty)._nnz(), 0);
  EXPECT_EQ(copy(empty).sizes(), empty.sizes());
}

TEST_F(NonStridedTensorsTest, QuantizedTensorsKeepTheirQuantizerAndGeometry) {
  const at::Tensor view = quantized().t().slice(0, 1);
  const at::Tensor actual = copy(view);
  EXPECT_EQ(actual.q_scale(), 0.5);
  EXPECT_EQ(actual.q_zero_point(), 3);
  EXPECT_EQ(actual.strides(), view.strides());
  const at::Tensor shared = convert_non_strided(view, [](const at::Tensor& part) { return part; });
  EXPECT_TRUE(at::equal(shared.dequantize(), view.dequantize()));
  EXPECT_EQ(shared.storage_offset(), view.storage_offset());
  EXPECT_TRUE(shared.storage().is_alias_of(view.storage()));
  const at::Tensor per_channel =
      at::quantize_per_channel(iota({2, 3}), at::tensor({0.5, 2.0}), at::tensor({0, 1}), 0, at::kQInt8);
  EXPECT_EQ(copy(per_channel).qscheme(), at::kPerChannelAffine);
  EXPECT_TRUE(at::equal(copy(per_channel).dequantize(), per_channel.dequantize()));
}

TEST_F(NonStridedTensorsTest, StridedTensorsAreNone) {
  const at::Tensor strided = iota({2});
  EXPECT_TRUE(copy(strided).is_same(strided));
}

TEST_F(NonStridedTensorsTest, ArgumentsBecomeWhatTheirCopiesHaveBecome) {
  const auto same = [](const at::Tensor& part) { return part; };
  at::Tensor sparse = at::sparse_coo_tensor({5, 5}, at::TensorOptions(at::kFloat).layout(at::kSparse));
  assign_non_strided(sparse, uncoalesced(), same);
  EXPECT_EQ(sparse.sizes(), c10::IntArrayRef({2, 3}));
  EXPECT_FALSE(sparse.is_coalesced());
  expect_same_parts(sparse, uncoalesced());

  at::Tensor csr = at::eye(2).to_sparse_csr();
  assign_non_strided(csr, compressed(at::kSparseCsr), same);
  EXPECT_EQ(csr.sizes(), c10::IntArrayRef({4, 4}));
  expect_same_parts(csr, compressed(at::kSparseCsr));

  at::Tensor written = at::quantize_per_tensor(iota({7}), 1, 0, at::kQInt8);
  assign_non_strided(written, quantized(), same);
  EXPECT_EQ(written.q_scale(), 0.5);
  EXPECT_TRUE(at::equal(written.dequantize(), quantized().dequantize()));
}

TEST_F(NonStridedTensorsTest, NestedArgumentsStayWhatTheyAre) {
  const at::Tensor tensor = nested();
  assign_non_strided(tensor, copy(tensor), [](const at::Tensor& /*part*/) -> at::Tensor {
    throw std::logic_error("");
  });
  expect_same_parts(tensor, nested());
}

} // namespace
} // namespace lazyplug
