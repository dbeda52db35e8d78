#include "backend/inference/read_call.h"

#include "backend/ops/call_kinds.h"
#include "backend/ops/op_registry.h"
#include "device/generator.h"
#include "test/cpp/backend/backend_test.h"

#include <c10/core/DefaultDtype.h>

#include <set>

namespace lazyplug {
namespace {

class CallTest : public BackendTest {
 protected:
  Hash128 identity(const char* name, const char* overload, const c10::Stack& stack) {
    return read_call(op_info(name, overload), stack).identity;
  }
  Hash128 add_identity(const at::Tensor& a, const c10::IValue& b, const c10::IValue& alpha = 1) {
    return identity("aten::add", "Tensor", {a, b, alpha});
  }

  const at::Tensor x = at::empty({2, 3}, on_lazy());
  const at::Tensor y = at::empty({2, 3}, on_lazy());
};

TEST_F(CallTest, ReadsTensorsScalarsAndDevice) {
  const Call call = read_call(op_info("aten::add_", "Tensor"), {x, y, 0.5});
  ASSERT_EQ(call.tensors.size(), 2);
  EXPECT_EQ(call.tensors[0].tensor, x.unsafeGetTensorImpl());
  EXPECT_TRUE(call.tensors[0].written);
  EXPECT_FALSE(call.tensors[1].written);
  EXPECT_TRUE(call.any_written);
  ASSERT_EQ(call.scalars.size(), 1);
  EXPECT_EQ(call.scalars[0].toDouble(), 0.5);
  EXPECT_EQ(call.device, 0);
  EXPECT_EQ(call.obstacle, nullptr);
}

TEST_F(CallTest, PlainCallsNeedNoKey) {
  const OpInfo& add = op_info("aten::add", "Tensor");
  const auto device = [](const OpInfo& op, const c10::Stack& stack) -> std::optional<int> {
    const auto plain = read_plain_call(op, stack);
    if (plain) {
      const Call call = read_call(op, stack);
      EXPECT_EQ(plain->kind, kind_of(call));
      EXPECT_EQ(plain->num_elements, call.num_elements);
      return plain->device;
    }
    return std::nullopt;
  };
  EXPECT_EQ(device(add, {x, y, 1}), 0);
  EXPECT_EQ(device(op_info("aten::cat", ""), {c10::List<at::Tensor>({x, y}), 0}), 0);
  const at::Tensor number = at::ones({}, at::kDouble);
  number.unsafeGetTensorImpl()->set_wrapped_number(true);
  EXPECT_EQ(device(add, {x, number, 1}), 0);
  EXPECT_EQ(device(add, {number, number, 1}), std::nullopt) << "no device";
  EXPECT_EQ(device(add, {x, at::ones({2, 3}), 1}), std::nullopt) << "an error, or a copy";
  EXPECT_EQ(device(add, {x, at::ones({2, 3}).to_sparse(), 1}), std::nullopt);
  EXPECT_EQ(device(op_info("aten::add", "out"), {x, y, 1, x}), std::nullopt) << "it may be resized";
  EXPECT_EQ(device(op_info("aten::bernoulli_", "float"), {x, 0.5, c10::IValue()}), std::nullopt) << "a seed is drawn";
  const auto indices = [](const at::Tensor& index) {
    return c10::List<std::optional<at::Tensor>>({std::nullopt, index});
  };
  const OpInfo& index = op_info("aten::index", "Tensor");
  EXPECT_EQ(device(index, {x, indices(at::empty({2}, on_lazy(at::kLong)))}), 0);
  EXPECT_EQ(device(index, {x, indices(at::empty({3}, on_lazy(at::kBool)))}), std::nullopt) << "of any size";
  EXPECT_EQ(device(index, {x, indices(at::zeros({2}, at::kLong))}), std::nullopt) << "to be moved";
}

TEST_F(CallTest, ReadsOnlyTheTopOfTheStack) {
  const c10::Stack stack = {c10::IValue("something else"), x, y, 1};
  EXPECT_EQ(read_call(op_info("aten::add", "Tensor"), stack).identity, add_identity(x, y));
}

TEST_F(CallTest, IdentityIgnoresWhichTensorsDataScalarValuesAndOffsetsOfReads) {
  EXPECT_EQ(add_identity(x, y), add_identity(y, y));
  EXPECT_EQ(add_identity(x, y, 3), add_identity(x, y, 2));
  EXPECT_NE(add_identity(x, y, 1), add_identity(x, y, 2)) << "the CPU's kernels round otherwise";
  const at::Tensor rows = at::empty({4, 3}, on_lazy());
  EXPECT_EQ(add_identity(rows.slice(0, 0, 2), y), add_identity(rows.slice(0, 2, 4), y));
}

TEST_F(CallTest, KeyTellsNumbersApartThatKernelsCheck) {
  const auto key = [this](const c10::IValue& alpha) {
    return read_call(op_info("aten::add", "Tensor"), {x, y, alpha}).key;
  };
  EXPECT_EQ(key(2), key(100));
  EXPECT_EQ(key(0.25), key(0.75));
  const std::vector<double> ranges = {0, -0.5, 0.5, 1, 2, -2, 200, 1e5, 1e300, std::nan("")};
  for (size_t i = 0; i < ranges.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      EXPECT_NE(key(ranges[i]), key(ranges[j])) << ranges[i] << " and " << ranges[j];
    }
  }
}

TEST_F(CallTest, IdentityDiffersWithTheOperands) {
  at::Tensor number = at::empty({}, on_lazy());
  const Hash128 plain_number = add_identity(x, number);
  number.unsafeGetTensorImpl()->set_wrapped_number(true);
  const at::Tensor complex = at::empty({2, 3}, on_lazy(at::kComplexFloat));
  const std::vector<Hash128> keys = {
      add_identity(x, y),
      add_identity(x, y, 1.0),
      add_identity(x, y, true),
      add_identity(x, at::empty({2, 1}, on_lazy())),
      add_identity(x, at::empty({3}, on_lazy())),
      add_identity(x, at::empty({3, 2}, on_lazy()).t()),
      add_identity(x, at::empty({2, 3}, on_lazy(at::kInt))),
      plain_number,
      add_identity(x, number),
      add_identity(x, at::ones({})),
      add_identity(x, complex),
      add_identity(x, at::conj(complex)),
      add_identity(x, at::_neg_view(complex)),
      identity("aten::sub", "Tensor", {x, y, 1}),
  };
  for (size_t i = 0; i < keys.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      EXPECT_NE(keys[i], keys[j]) << i << " and " << j;
    }
  }
}

TEST_F(CallTest, KeyDiffersWithConstants) {
  const auto sum = [&](std::vector<int64_t> dims, bool keepdim, c10::IValue dtype = {}) {
    return identity("aten::sum", "dim_IntList", {x, std::move(dims), keepdim, std::move(dtype)});
  };
  const std::vector<Hash128> keys = {
      sum({0}, false),
      sum({1}, false),
      sum({0, 1}, false),
      sum({}, false),
      sum({0}, true),
      sum({0}, false, static_cast<int64_t>(at::kDouble)),
      identity("aten::sum", "dim_IntList", {x, c10::IValue(), false, c10::IValue()})};
  for (size_t i = 0; i < keys.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      EXPECT_NE(keys[i], keys[j]) << i << " and " << j;
    }
  }
}

TEST_F(CallTest, KeyTellsWhichOptionalArgumentsAreThere) {
  EXPECT_NE(identity("aten::clamp", "", {x, 1, c10::IValue()}), identity("aten::clamp", "", {x, c10::IValue(), 1}));
  const at::Tensor w = at::empty({3}, on_lazy());
  const std::vector<int64_t> shape = {3};
  EXPECT_NE(
      identity("aten::native_layer_norm", "", {x, shape, w, c10::IValue(), 1e-5}),
      identity("aten::native_layer_norm", "", {x, shape, c10::IValue(), w, 1e-5}));
  EXPECT_EQ(
      identity("aten::native_layer_norm", "", {x, shape, w, c10::IValue(), 1e-5}),
      identity("aten::native_layer_norm", "", {x, shape, w, at::Tensor(), 1e-5}));
}

TEST_F(CallTest, NoNumberLooksLikeNoneOrABool) {
  std::set<std::pair<uint64_t, uint64_t>> keys;
  for (int64_t dim = -65537; dim < -65529; ++dim) {
    const Hash128 key = identity("aten::argmax", "", {x, dim, false});
    keys.emplace(key.hi, key.lo);
  }
  const Hash128 none = identity("aten::argmax", "", {x, c10::IValue(), false});
  keys.emplace(none.hi, none.lo);
  EXPECT_EQ(keys.size(), 9);
}

TEST_F(CallTest, KeyKnowsWhereListsEnd) {
  const auto index = [&](std::vector<at::Tensor> tensors) {
    c10::List<std::optional<at::Tensor>> list;
    for (const auto& tensor : tensors) {
      list.push_back(tensor.defined() ? std::optional<at::Tensor>(tensor) : std::nullopt);
    }
    return identity("aten::index", "Tensor", {x, list});
  };
  const at::Tensor i = at::empty({2}, on_lazy(at::kLong));
  EXPECT_NE(index({i}), index({i, {}}));
  EXPECT_NE(index({i, {}}), index({{}, i}));
}

TEST_F(CallTest, KeyOfAWritingCallKnowsWhatOverlaps) {
  const at::Tensor memory = at::empty({4, 3}, on_lazy());
  const at::Tensor top = memory.slice(0, 0, 2);
  const at::Tensor bottom = memory.slice(0, 2, 4);
  const auto add_ = [&](const at::Tensor& a, const at::Tensor& b) {
    return identity("aten::add_", "Tensor", {a, b, 1});
  };
  EXPECT_EQ(add_(x, y), add_(y, x));
  EXPECT_NE(add_(x, y), add_(x, x));
  EXPECT_NE(add_(top, top), add_(top, bottom));
}

TEST_F(CallTest, KeyKnowsTheDefaultDtype) {
  const Hash128 before = add_identity(x, y);
  c10::set_default_dtype(caffe2::TypeMeta::Make<double>());
  const Hash128 after = add_identity(x, y);
  c10::set_default_dtype(caffe2::TypeMeta::Make<float>());
  EXPECT_NE(before, after);
  EXPECT_EQ(before, add_identity(x, y));
}

TEST_F(CallTest, ScalarsThatDecideTheShapeAreConstants) {
  const auto arange = [&](int64_t end) {
    return read_call(op_info("aten::arange", ""), {end, c10::IValue(), c10::IValue(), lazy_device(0), c10::IValue()});
  };
  EXPECT_NE(arange(3).key, arange(4).key);
  EXPECT_TRUE(arange(3).scalars.empty());
  EXPECT_EQ(arange(3).device, 0);
}

TEST_F(CallTest, SeedsAreScalarsAndNoPartOfTheKey) {
  const auto draw = [&](c10::IValue generator) {
    return read_call(op_info("aten::uniform_", ""), {x, 0.0, 1.0, std::move(generator)});
  };
  const Call call = draw({});
  EXPECT_EQ(call.scalars.size(), 3);
  EXPECT_EQ(call.seed_scalar, 2);
  EXPECT_FALSE(call.generator.has_value());
  const Call given = draw(default_generator(0));
  EXPECT_TRUE(given.generator.has_value());
  EXPECT_EQ(given.key, call.key);
}

TEST_F(CallTest, HiddenWritesDependOnTheirCondition) {
  const at::Tensor s = at::empty({3}, on_lazy());
  const auto norm = [&](bool training) {
    return read_call(op_info("aten::native_batch_norm", ""), {x, s, s, s, s, training, 0.1, 1e-5});
  };
  EXPECT_TRUE(norm(true).any_written);
  EXPECT_TRUE(norm(true).tensors[3].written);
  EXPECT_FALSE(norm(false).any_written);
}

// ---- devices ----

TEST_F(CallTest, TensorsOfTwoLazyDevicesDoNotMix) {
  const at::Tensor elsewhere = at::empty({2, 3}, at::TensorOptions(lazy_device(1)));
  EXPECT_TRUE(contains(
      error_of([&] { add_identity(x, elsewhere); }),
      "Expected all tensors to be on the same device, but found at least two"));
  EXPECT_EQ(read_call(op_info("aten::add", "Tensor"), {elsewhere, elsewhere, 1}).device, 1);
}

TEST_F(CallTest, CpuTensorsMixOnlyIfTheyAreNumbers) {
  EXPECT_TRUE(
      contains(error_of([&] { add_identity(x, at::ones({3})); }), "Expected all tensors to be on the same device"));
  EXPECT_EQ(error_of([&] { add_identity(x, at::ones({})); }), "none");
}

TEST_F(CallTest, CompositeKernelsJudgeMixedDevices) {
  const c10::Stack stack = {x, at::zeros({3}, at::kLong), -1, false, false};
  EXPECT_TRUE(read_call(op_info("aten::embedding", ""), stack).crosses_devices);
}

TEST_F(CallTest, CpuNumbersAreNotWritten) {
  EXPECT_TRUE(contains(
      error_of([&] { identity("aten::add_", "Tensor", {at::ones({}), at::empty({}, on_lazy()), 1}); }),
      "Expected all tensors to be on the same device"));
}

TEST_F(CallTest, ResultsElsewhereAreKnown) {
  const auto zeros_like = [&](c10::Device device) {
    return read_call(
        op_info("aten::zeros_like", ""),
        {x, c10::IValue(), c10::IValue(), device, c10::IValue(), c10::IValue()});
  };
  EXPECT_FALSE(zeros_like(lazy_device(0)).crosses_devices);
  EXPECT_TRUE(zeros_like(lazy_device(1)).crosses_devices);
  EXPECT_TRUE(zeros_like(c10::Device(c10::kCPU)).crosses_devices);
}

TEST_F(CallTest, ObstaclesAreNamed) {
  const auto obstacle = [&](const at::Tensor& other) {
    return std::string(read_call(op_info("aten::add", "Tensor"), {x, other, 1}).obstacle);
  };
  EXPECT_EQ(obstacle(at::ones({2, 3}).to_sparse()), "a tensor that is not strided");
  EXPECT_EQ(obstacle(at::empty({2, 3}, at::kMeta)), "a tensor of another device, or without a storage");
  EXPECT_EQ(obstacle(at::conj(at::ones({}, at::kComplexFloat))), "a CPU tensor with lazy bits");
}

} // namespace
} // namespace lazyplug
