#include "backend/registration/collectives.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <unordered_map>

#include "backend/diagnostics/sync_cause.h"
#include "backend/execution/lazy_storage.h"
#include "backend/ops/op_registry.h"
#include "backend/recording/fallback.h"
#include "lowering/execution/warnings.h"

namespace lazyplug {
namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Convert = c10::function_ref<at::Tensor(const at::Tensor&)>;

// The same value with the tensors in it, and in lists in it, converted.
c10::IValue converted(const c10::IValue& value, Convert convert) {
  if (value.isTensor()) {
    return convert(value.toTensor());
  }
  if (!value.isList()) {
    return value;
  }
  const auto list = value.toList();
  c10::impl::GenericList result(list.elementType());
  for (size_t i = 0; i < list.size(); ++i) {
    result.push_back(converted(list.get(i), convert));
  }
  return result;
}

// The CPU tensors that stand for the lazy ones in a transfer, over the same memory.
class Aliases {
 public:
  at::Tensor to_cpu(const at::Tensor& tensor, bool written) {
    if (!is_lazy(tensor)) {
      return tensor;
    }
    const at::Tensor alias = cpu_alias(tensor, written ? Access::kShare : Access::kRead);
    lazy_.emplace(alias.unsafeGetTensorImpl(), std::make_pair(alias, tensor));
    return alias;
  }

  at::Tensor to_lazy(const at::Tensor& tensor) const {
    const auto found = lazy_.find(tensor.unsafeGetTensorImpl());
    return found == lazy_.end() ? tensor : found->second.second;
  }

 private:
  std::unordered_map<const c10::TensorImpl*, std::pair<at::Tensor, at::Tensor>> lazy_; // alias, lazy tensor
};

// The transfer of CPU tensors, seen by who sent lazy ones.
class LazyWork final : public c10d::Work {
 public:
  LazyWork(WorkPtr work, Aliases aliases)
      : c10d::Work(-1, work->retrieveOpType()), work_(std::move(work)), aliases_(std::move(aliases)) {}

  bool isCompleted() override {
    return work_->isCompleted();
  }
  bool isSuccess() const override {
    return work_->isSuccess();
  }
  std::exception_ptr exception() const override {
    return work_->exception();
  }
  int sourceRank() const override {
    return work_->sourceRank();
  }
  std::vector<at::Tensor> result() override {
    auto tensors = work_->result();
    for (at::Tensor& tensor : tensors) {
      tensor = aliases_.to_lazy(tensor);
    }
    return tensors;
  }
  void synchronize() override {
    work_->synchronize();
  }
  bool wait(std::chrono::milliseconds timeout) override {
    return work_->wait(timeout);
  }
  void abort() override {
    work_->abort();
  }
  uint64_t getSequencenumber() const override {
    return work_->getSequencenumber();
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    const auto future = work_->getFuture();
    const auto to_lazy = [aliases = aliases_](c10::ivalue::Future& done) {
      return converted(done.value(), [&](const at::Tensor& tensor) { return aliases.to_lazy(tensor); });
    };
    return future->then(to_lazy, future->elementType());
  }

 private:
  const WorkPtr work_;
  const Aliases aliases_;
};

// Arguments of collectives say in their names which way they go; schemas do not.
bool is_written(const c10::OperatorHandle& op, const c10::Argument& argument) {
  return !argument.name().starts_with("input") && op.operator_name().name != "c10d::send";
}

void run_collective(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, c10::Stack* stack) {
  const SyncCause cause("a collective");
  const auto& arguments = op.schema().arguments();
  const size_t first = stack->size() - arguments.size();
  const c10::IValue destination = (*stack)[first];
  Aliases aliases;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool written = is_written(op, arguments[i]);
    auto& value = (*stack)[first + i];
    value = converted(value, [&](const at::Tensor& tensor) { return aliases.to_cpu(tensor, written); });
  }
  op.callBoxedForDispatchKey(c10::DispatchKey::CPU, *stack);
  if (op.schema().returns().size() == 2) {
    (*stack)[first] = destination;
  }
  if (!op.schema().returns().empty()) {
    auto work = torch::jit::pop(*stack).toCustomClass<c10d::Work>();
    stack->emplace_back(WorkPtr(c10::make_intrusive<LazyWork>(std::move(work), std::move(aliases))));
  }
}

void register_collective(torch::Library& library, const c10::OperatorHandle& op) {
  const std::string name = c10::toString(op.operator_name());
  library.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_collective>());
}

} // namespace

void register_collectives(torch::Library& library) {
  // PyTorch's kernels look for a process group of the device itself; that they are replaced is no news to anybody.
  const WarningCollector nobody_hears;
  for (const c10::OperatorHandle& op : ops_of("c10d::")) {
    if (op.hasKernelForDispatchKey(c10::DispatchKey::CPU)) {
      register_collective(library, op);
    }
  }
}

} // namespace lazyplug
