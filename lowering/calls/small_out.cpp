#include "lowering/calls/small_out.h"

#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "lowering/calls/plain_tensors.h"
#include "lowering/fusion/pointwise_ops.h"
#include "lowering/ir/op_variants.h"

namespace lazyplug {
namespace {

class SmallOut final : public SmallCalls {
 public:
  SmallOut(std::unique_ptr<const OpInfo> returning, std::unique_ptr<const SmallCalls> calls)
      : op_(std::move(returning)), calls_(std::move(calls)) {}

 private:
  at::Tensor compute(c10::ArrayRef<c10::IValue> arguments, MemoryOf memory_of) const override {
    const auto* out = plain_tensor(arguments.back());
    const auto read = arguments.slice(0, arguments.size() - 1);
    const auto overlaps = [&](const c10::IValue& argument) { return may_overlap(*out, argument); };
    if (!out || std::any_of(read.begin(), read.end(), overlaps)) {
      return {};
    }
    const at::Tensor result = calls_->run(read, memory_of);
    if (!result.defined() || out->dtype() != result.dtype() || out->sizes() != result.sizes() ||
        out->strides() != result.strides()) {
      return {};
    }
    // The result has no gaps. Memory comes last: to make it may give `out` another, which nobody reads any more.
    void* const memory = memory_of(*out, /*written=*/true);
    if (!memory) {
      return {};
    }
    std::memcpy(memory, result.const_data_ptr(), result.nbytes());
    return arguments.back().toTensor();
  }

  // Each element may be read where it is written.
  bool may_overlap(const c10::TensorImpl& out, const c10::IValue& argument) const {
    if (!argument.isTensor()) {
      return argument.isTensorList();
    }
    const auto* tensor = argument.unsafeToTensorImpl();
    const bool is_in_place = tensor == &out && op_->fusion() == FusionClass::kPointwise;
    return tensor->has_storage() && !is_in_place && tensor->storage().is_alias_of(out.storage());
  }

  const std::unique_ptr<const OpInfo> op_; // that calls_ may refer to
  const std::unique_ptr<const SmallCalls> calls_;
};

} // namespace

std::unique_ptr<const OpInfo> find_returning(const OpInfo& op) {
  if (!op.is_aten() || op.num_returns() != 1 || op.num_args() == 0 || !op.args().back().out) {
    return nullptr;
  }
  for (const auto& each : torch::jit::getAllOperatorsFor(op.symbol())) {
    const auto& schema = each->schema();
    const bool returns_new = schema.returns().size() == 1 && !schema.returns()[0].alias_info();
    const auto handle = returns_new && takes_arguments_of(schema, op.handle().schema(), 1)
                            ? c10::Dispatcher::singleton().findSchema(schema.operator_name())
                            : std::nullopt;
    if (handle) {
      auto returning = std::make_unique<const OpInfo>(*handle, OpTraits());
      return is_function(*returning) ? nullptr : std::move(returning);
    }
  }
  return nullptr;
}

std::unique_ptr<const SmallCalls> make_small_out(
    std::unique_ptr<const OpInfo> returning,
    std::unique_ptr<const SmallCalls> calls) {
  return std::make_unique<SmallOut>(std::move(returning), std::move(calls));
}

} // namespace lazyplug
