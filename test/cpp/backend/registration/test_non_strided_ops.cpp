#include "backend/registration/non_strided_ops.h"

#include "backend/ops/op_registry.h"
#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

at::Tensor negated(const at::Tensor& self) {
  return self.neg();
}

TORCH_LIBRARY(lazyplug_non_strided_ops_test, m) {
  m.def("negated(Tensor self) -> Tensor");
}
TORCH_LIBRARY_IMPL(lazyplug_non_strided_ops_test, SparseCPU, m) {
  m.impl("negated", negated);
}

at::Tensor call_negated(const at::Tensor& self) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow("lazyplug_non_strided_ops_test::negated", "")
      .typed<at::Tensor(const at::Tensor&)>()
      .call(self);
}

class NonStridedOpsTest : public BackendTest {
 protected:
  at::Tensor lazy_sparse() const {
    return at::_sparse_coo_tensor_unsafe(to_lazy(indices), to_lazy(values) * 2, {2, 3});
  }
  at::Tensor cpu_sparse() const {
    return at::_sparse_coo_tensor_unsafe(indices, values * 2, {2, 3});
  }

  const at::Tensor indices = at::tensor({0, 1, 1, 2, 0, 0}, at::kLong).view({2, 3});
  const at::Tensor values = at::tensor({3.F, 4.F, 5.F});
};

TEST_F(NonStridedOpsTest, EveryOpOfTheCpuHasAKernel) {
  const std::vector<std::pair<c10::DispatchKey, c10::DispatchKey>> keys{
      {c10::DispatchKey::SparsePrivateUse1, c10::DispatchKey::SparseCPU},
      {c10::DispatchKey::SparseCsrPrivateUse1, c10::DispatchKey::SparseCsrCPU},
      {c10::DispatchKey::QuantizedPrivateUse1, c10::DispatchKey::QuantizedCPU},
      {c10::DispatchKey::NestedTensorPrivateUse1, c10::DispatchKey::NestedTensorCPU}};
  for (const auto& [key, cpu_key] : keys) {
    size_t num_ops = 0;
    for (const c10::OperatorHandle& op : aten_ops()) {
      if (op.hasKernelForDispatchKey(cpu_key)) {
        ++num_ops;
        EXPECT_TRUE(op.hasKernelForDispatchKey(key)) << key << " " << op.operator_name();
      }
    }
    EXPECT_GT(num_ops, 20) << key;
  }
}

TEST_F(NonStridedOpsTest, MakingASparseTensorAndLookingAtItRunsNothing) {
  const at::Tensor s = lazy_sparse();
  EXPECT_EQ(s.device(), lazy_device(0));
  EXPECT_EQ(s._nnz(), 3);
  EXPECT_EQ(s.sparse_dim(), 2);
  EXPECT_EQ(state_of(s._values()), State::kPending);
  const at::Tensor copy = s.clone();
  EXPECT_EQ(state_of(copy._values()), State::kPending);
  EXPECT_EQ(count("Flush"), 0);
  expect_equal(copy._values(), values * 2);
  EXPECT_EQ(count("FallbackTotal"), 0);
}

TEST_F(NonStridedOpsTest, OpsOnSparseTensorsRunOnTheCpu) {
  const at::Tensor sum = lazy_sparse() + lazy_sparse();
  EXPECT_TRUE(sum.is_sparse());
  EXPECT_EQ(sum.device(), lazy_device(0));
  EXPECT_EQ(state_of(sum._values()), State::kAvailable);
  EXPECT_EQ(count("aten::add"), 1);
  EXPECT_EQ(count("FallbackTotal"), 1);
  expect_equal(sum.to_dense(), (cpu_sparse() + cpu_sparse()).to_dense());
}

TEST_F(NonStridedOpsTest, WritesArriveInTheArgument) {
  at::Tensor s = lazy_sparse();
  EXPECT_TRUE(s.mul_(3).is_same(s));
  EXPECT_EQ(count("FallbackTotal"), 1);
  expect_equal(s._values(), values * 6);
}

TEST_F(NonStridedOpsTest, RefusedOpsNameTheKindOfTensor) {
  const ScopedFlag<std::string> refuse(config().fallback, "error");
  const at::Tensor s = lazy_sparse();
  EXPECT_TRUE(contains(error_of([&] { s + s; }), "aten::add.Tensor cannot be recorded: a sparse tensor"));
  EXPECT_EQ(state_of(s._values()), State::kPending);
}

TEST_F(NonStridedOpsTest, OpsOfOthersToo) {
  expect_equal(call_negated(lazy_sparse()).to_dense(), -cpu_sparse().to_dense());
  EXPECT_EQ(count("lazyplug_non_strided_ops_test::negated"), 1);
  const ScopedFlag<std::string> refuse(config().fallback, "error");
  EXPECT_TRUE(contains(error_of([&] { call_negated(lazy_sparse()); }), "a tensor that is not strided"));
}

TEST_F(NonStridedOpsTest, CompressedTensors) {
  const at::Tensor dense = at::eye(3) * iota({3});
  const at::Tensor cpu = dense.to_sparse_csr();
  const at::Tensor lazy = at::_sparse_csr_tensor_unsafe(
      to_lazy(cpu.crow_indices()),
      to_lazy(cpu.col_indices()),
      to_lazy(cpu.values()) * 2,
      {3, 3},
      on_lazy().layout(at::kSparseCsr));
  EXPECT_EQ(state_of(lazy.values()), State::kPending);
  EXPECT_EQ(count("FallbackTotal"), 0);
  expect_equal(at::mm(lazy, to_lazy(iota({3, 2}))), at::mm(dense * 2, iota({3, 2})));
  EXPECT_EQ(count("FallbackTotal"), 1);
}

TEST_F(NonStridedOpsTest, QuantizedTensors) {
  const at::Tensor cpu = at::quantize_per_tensor(iota({2, 3}), 0.5, 3, at::kQInt8);
  const at::Tensor lazy = at::quantize_per_tensor(to_lazy(iota({2, 3})), 0.5, 3, at::kQInt8);
  reset_metrics();
  EXPECT_EQ(lazy.q_scale(), 0.5);
  EXPECT_EQ(lazy.q_zero_point(), 3);
  EXPECT_TRUE(lazy.view({6}).storage().is_alias_of(lazy.storage()));
  EXPECT_EQ(count("FallbackTotal"), 0);
  expect_equal(lazy.t().dequantize(), cpu.t().dequantize());
  EXPECT_EQ(count("FallbackTotal"), 1);
}

TEST_F(NonStridedOpsTest, NestedTensors) {
  const at::Tensor lazy = at::_nested_tensor_from_tensor_list({to_lazy(iota({2, 3})), to_lazy(iota({1, 4}))});
  reset_metrics();
  const auto parts = lazy.unbind();
  expect_equal(parts[1], iota({1, 4}));
  expect_equal(lazy.clone().select(0, 0), iota({2, 3}));
  EXPECT_EQ(count("FallbackTotal"), 0);
  expect_equal((lazy * 2).select(0, 1), iota({1, 4}) * 2);
  EXPECT_EQ(count("FallbackTotal"), 1);
}

} // namespace
} // namespace lazyplug
