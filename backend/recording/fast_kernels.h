#pragma once

#include <ATen/TracerMode.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "backend/caches/short_steps.h"
#include "backend/ops/borrowed_arguments.h"
#include "backend/ops/float_numbers.h"
#include "backend/ops/op_table.h"
#include "backend/recording/fallback.h"
#include "backend/recording/force_fallback.h"
#include "backend/recording/tracer.h"
#include "device/runtime.h"
#include "lowering/calls/light_calls.h"
#include "lowering/calls/make_small_calls.h"
#include "lowering/execution/interpreter.h"

// The unboxed kernels of ops that the table of ops (backend/registration/op_table.h) calls fast.
namespace lazyplug::fast_kernels {

// A tensor that says on which device a call is; null: there is none.
inline const at::Tensor* tensor_of(const at::Tensor& tensor) {
  return &tensor;
}
inline const at::Tensor* tensor_of(const at::ITensorListRef& tensors) {
  return tensors.empty() ? nullptr : &*tensors.begin();
}
inline const at::Tensor* tensor_of(const at::TensorList& tensors) {
  return tensors.empty() ? nullptr : &tensors[0];
}

template <typename First, typename... Args>
std::optional<DeviceContext::Predicted> predict_unboxed(const OpInfo& op, const First& first, const Args&... args) {
  const at::Tensor* tensor = tensor_of(first);
  if (!tensor) {
    return std::nullopt;
  }
  return predict(op, *tensor, [&](PredictedCall& call) { return call.add(first) && (call.add(args) && ...); });
}

template <typename... Args>
c10::Stack trace_unpredicted_boxed(const OpInfo& op, const Args&... args) {
  c10::Stack stack;
  torch::jit::push(stack, args...);
  trace_unpredicted(op, &stack);
  return stack;
}

// What an op returns: a tensor, or a tuple of tensors.
template <typename Result, typename Next>
Result make_result(const Next& next) {
  if constexpr (std::is_same_v<Result, at::Tensor>) {
    return next();
  } else {
    const auto fill = [&](auto... tensors) {
      return Result{(tensors = next(), std::move(tensors))...};
    }; // in this order
    return std::apply(fill, Result());
  }
}

template <typename Result>
Result unbox(c10::Stack stack) {
  auto result = stack.begin();
  return make_result<Result>([&] { return std::move(*result++).toTensor(); });
}

template <typename Result>
Result results_of(DeviceContext::Predicted&& predicted) {
  auto fresh = predicted.outputs.begin();
  auto binding = predicted.signature->returns.begin();
  return make_result<Result>(
      [&] { return (binding++)->kind == ReturnBinding::Kind::kFresh ? std::move(*fresh++) : at::Tensor(); });
}

// What autograd may have to do with.
template <typename T>
constexpr bool kHoldsTensors =
    std::is_convertible_v<T, at::TensorList> || std::is_same_v<T, c10::List<std::optional<at::Tensor>>> ||
    std::is_same_v<T, at::ITensorListRef> || std::is_same_v<T, std::optional<at::TensorList>> ||
    std::is_same_v<T, std::optional<at::Tensor>>;

// Whether it has anything to do with an argument.
template <typename T>
  requires(!kHoldsTensors<T>)
bool is_differentiated(const T& /*no tensor*/) {
  return false;
}
inline bool has_tangent(const at::Tensor& tensor) {
  return tensor.defined() && tensor._fw_grad(/*level=*/0).defined();
}
inline bool has_tangent(const std::optional<at::Tensor>& tensor) {
  return tensor && has_tangent(*tensor);
}

inline bool is_differentiated(const at::Tensor& tensor) {
  const auto* meta = tensor.unsafeGetTensorImpl()->autograd_meta();
  return meta && ((c10::GradMode::is_enabled() && tensor.requires_grad()) || tensor._fw_grad(/*level=*/0).defined());
}
inline bool is_differentiated(const std::optional<at::Tensor>& tensor) {
  return tensor && is_differentiated(*tensor);
}
inline bool is_differentiated(const at::ITensorListRef& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) {
    return is_differentiated(tensor);
  });
}
inline bool is_differentiated(const at::TensorList& tensors) {
  return is_differentiated(at::ITensorListRef(tensors));
}
inline bool is_differentiated(const c10::List<std::optional<at::Tensor>>& tensors) {
  const at::IOptTensorListRef elements(tensors); // borrowed
  return std::any_of(elements.begin(), elements.end(), [](const at::OptionalTensorRef& tensor) {
    return tensor.has_value() && is_differentiated(*tensor);
  });
}

// Without the bits that say which device.
inline uint64_t functionalities(c10::DispatchKeySet keys) {
  return keys.raw_repr() & ~c10::full_backend_mask;
}

inline const uint64_t kBetween =
    functionalities((c10::after_autograd_keyset -
                     c10::DispatchKeySet({c10::DispatchKey::ADInplaceOrView, c10::DispatchKey::PrivateUse1}))
                        .add(c10::DispatchKey::Tracer));

// Whether a call may go straight to the device: neither autograd has anything to
// do with it, nor anybody between autograd and the device, nor torch.jit.trace(),
// which does not see all ops.
template <typename... Args>
bool is_plain(c10::DispatchKeySet keys, const Args&... args) {
  return (keys.raw_repr() & kBetween) == 0 && !(is_differentiated(args) || ...);
}

// Which of its parameters an op writes, and returns: the first, or the last, which is out=.
template <typename... Params>
constexpr size_t kWritten = [] {
  const std::array is_written = {std::is_same_v<Params, at::Tensor&>...};
  return static_cast<size_t>(std::find(is_written.begin(), is_written.end(), true) - is_written.begin());
}();

// Of arguments for these parameters.
template <typename... Params, typename... Args>
at::Tensor& written_of(Args&... args) {
  return std::get<kWritten<Params...>>(std::tie(args...));
}

// PyTorch's own autograd kernel of an op stands at all autograd keys that
// nobody overrides, if the op has no composite kernel. It is called as the
// dispatcher would have called it.
template <typename Result, typename... Params, typename... Args>
Result call_autograd(
    const OpInfo& op,
    Result (*redispatch)(c10::DispatchKeySet, Params...),
    c10::DispatchKeySet keys,
    Args&&... args) {
  constexpr auto kAutograd = c10::DispatchKey::AutogradOther;
  if (keys.has(c10::DispatchKey::PythonDispatcher)) {
    // Redispatching would ask Python again, which would lead back here.
    c10::Stack stack;
    torch::jit::push(stack, args...);
    op.handle().getComputedKernelForDispatchKey(kAutograd).callBoxed(op.handle(), keys, &stack);
    if constexpr (std::is_lvalue_reference_v<Result>) {
      return written_of<Params...>(args...);
    } else {
      return unbox<Result>(std::move(stack));
    }
  }
  keys = keys.remove(c10::DispatchKey::AutogradPrivateUse1).add(kAutograd);
  return redispatch(keys, std::forward<Args>(args)...);
}

template <typename T>
const T& on_cpu(CpuTensors& /*unused*/, const T& argument) {
  return argument;
}
at::Tensor on_cpu(CpuTensors& tensors, const at::Tensor& tensor);
std::optional<at::Tensor> on_cpu(CpuTensors& tensors, const std::optional<at::Tensor>& tensor);
std::vector<at::Tensor> on_cpu(CpuTensors& tensors, const at::ITensorListRef& list);
c10::List<std::optional<at::Tensor>> on_cpu(CpuTensors& tensors, const c10::List<std::optional<at::Tensor>>& list);
inline std::vector<at::Tensor> on_cpu(CpuTensors& tensors, const at::TensorList& list) {
  return on_cpu(tensors, at::ITensorListRef(list));
}
// A number next to `other` may become one that saves the kernel a conversion.
at::Tensor number_on_cpu(CpuTensors& tensors, const at::Tensor& tensor, const at::Tensor& other);

// How calls of an op run at once.
struct AtOnce {
  const SmallCalls* small_calls; // null: it has none
  bool draws_seed;
  bool may_have_kernel_of_ours;
};

// The answer is known only when all ops are.
template <typename Op>
const AtOnce& at_once(const OpInfo& op) {
  static const AtOnce known{make_small_calls(op).release(), op.random(), may_have_kernel_of_ours(op)};
  return known;
}

// An op, and what its kernels need to know of it. Ops of one schema share the code of their kernels.
template <typename Schema>
struct FastOp;
template <typename Result, typename... Args>
struct FastOp<Result(Args...)> {
  const OpInfo& op;
  Result (*call)(Args...);
  Result (*redispatch)(c10::DispatchKeySet, Args...);
  const AtOnce& (*at_once)(const OpInfo&);
  bool converts_numbers; // that are among its operands
};

// Lives for ever.
template <typename Op>
const FastOp<typename Op::schema>& fast_op(const OpInfo& op) {
  static const FastOp<typename Op::schema> fast{
      op,
      &Op::call,
      &Op::redispatch,
      &at_once<Op>,
      converts_numbers(Op::name, Op::overload_name)};
  return fast;
}

template <typename... Args>
auto all_on_cpu(CpuTensors& tensors, bool /*converts_numbers*/, const Args&... args) {
  return std::tuple{on_cpu(tensors, args)...}; // in this order
}

template <typename... Args>
auto all_on_cpu(
    CpuTensors& tensors,
    bool converts_numbers,
    const at::Tensor& self,
    const at::Tensor& other,
    const Args&... args) {
  const auto operand = [&](const at::Tensor& tensor, const at::Tensor& beside) {
    return converts_numbers ? number_on_cpu(tensors, tensor, beside) : on_cpu(tensors, tensor);
  };
  return std::tuple{operand(self, other), operand(other, self), on_cpu(tensors, args)...};
}

// The call on CPU tensors, as a graph of it alone would compute it.
template <typename Result, typename... Params, typename... Args>
Result run_on_cpu(const FastOp<Result(Params...)>& fast, const std::tuple<Args...>& args) {
  if (!fast.at_once(fast.op).may_have_kernel_of_ours) {
    return std::apply(fast.call, args);
  }
  c10::Stack stack;
  std::apply([&](const auto&... each) { torch::jit::push(stack, each...); }, args);
  run_call(fast.op, stack);
  if constexpr (std::is_lvalue_reference_v<Result>) {
    return std::get<kWritten<Params...>>(args);
  } else {
    return unbox<Result>(std::move(stack));
  }
}

// `arguments` are the same as `args`.
template <typename Result, typename... Params, typename... Args>
Result run_unboxed_at_once(
    const FastOp<Result(Params...)>& fast,
    const Known& known,
    c10::ArrayRef<c10::IValue> arguments,
    const Args&... args) {
  const AtOnce& ways = fast.at_once(fast.op);
  if constexpr (std::is_same_v<Result, at::Tensor>) {
    if (ways.small_calls) {
      at::Tensor result = run_small_at_once(fast.op, *ways.small_calls, known.device, known.run_now, arguments);
      if (result.defined()) {
        return result;
      }
    }
  }
  if (ways.draws_seed || fast.op.makes_hidden_writes(arguments)) {
    c10::Stack stack(arguments.begin(), arguments.end());
    run_at_once(fast.op, &stack, known.run_now);
    return unbox<Result>(std::move(stack));
  }
  Result result;
  const auto to_lazy = [](CpuTensors& tensors, at::Tensor& tensor) { tensor = tensors.to_lazy(std::move(tensor)); };
  run_at_once(fast.op, known.device, known.run_now, [&](CpuTensors& tensors) {
    const auto cpu_args = all_on_cpu(tensors, fast.converts_numbers, args...);
    {
      const CpuKernelScope scope(fast.op, known.device);
      const ThreadsOfCall threads(fast.op, arguments);
      result = run_on_cpu(fast, cpu_args);
    }
    if constexpr (std::is_same_v<Result, at::Tensor>) {
      to_lazy(tensors, result);
    } else {
      std::apply([&](auto&... each) { (to_lazy(tensors, each), ...); }, result);
    }
  });
  return result;
}

// The same for an op that writes and returns an argument, and no other.
template <typename... Params, typename... Args>
void run_unboxed_writing_at_once(
    const FastOp<at::Tensor&(Params...)>& fast,
    const Known& known,
    c10::ArrayRef<c10::IValue> arguments,
    Args&... args) {
  const AtOnce& ways = fast.at_once(fast.op);
  if (ways.small_calls &&
      run_small_at_once(fast.op, *ways.small_calls, known.device, known.run_now, arguments).defined()) {
    return;
  }
  if (ways.draws_seed) {
    c10::Stack stack(arguments.begin(), arguments.end());
    return run_at_once(fast.op, &stack, known.run_now);
  }
  run_writing_at_once(fast.op, known.device, known.run_now, [&](CpuTensors& tensors) {
    at::Tensor written = tensors.borrowed_to_cpu(written_of<Params...>(args...), /*written=*/true);
    const auto each = [&]<typename Param>(std::type_identity<Param> /*unused*/, const auto& argument) {
      if constexpr (std::is_same_v<Param, at::Tensor&>) {
        return std::tie(written);
      } else {
        return std::tuple{on_cpu(tensors, argument)};
      }
    };
    const auto cpu_args = std::tuple_cat(each(std::type_identity<Params>(), args)...);
    const CpuKernelScope scope(fast.op, known.device);
    const ThreadsOfCall threads(fast.op, arguments);
    run_on_cpu(fast, cpu_args);
  });
}

// A call that is not predicted, but known.
template <typename Result, typename... Params, typename... Args>
std::optional<Result> call_remembered(const FastOp<Result(Params...)>& fast, const Args&... args) {
  const BorrowedArguments arguments(args...);
  auto known = record_known(fast.op, arguments);
  if (!known) {
    return std::nullopt;
  }
  return known->run_now ? run_unboxed_at_once(fast, *known, arguments, args...)
                        : results_of<Result>(std::move(known->recorded));
}

// The call as the device makes it, if no kernel has to be asked about it. For ops
// that return new tensors.
template <typename Result, typename... Params, typename... Args>
std::optional<Result> call_known(const FastOp<Result(Params...)>& fast, const Args&... args) {
  if (auto predicted = predict_unboxed(fast.op, args...)) {
    return results_of<Result>(std::move(*predicted));
  }
  return call_remembered(fast, args...);
}

// The same for ops that write and return an argument. Says whether the call was made.
template <typename... Params, typename... Args>
bool call_known_writing(const FastOp<at::Tensor&(Params...)>& fast, Args&... args) {
  if (predict_unboxed(fast.op, args...)) {
    return true;
  }
  const BorrowedArguments arguments(args...);
  const auto known = record_known(fast.op, arguments);
  if (known && known->run_now) {
    run_unboxed_writing_at_once(fast, *known, arguments, args...);
  }
  return known.has_value();
}

template <typename Schema>
class KernelOf : public c10::OperatorKernel {
 public:
  explicit KernelOf(const FastOp<Schema>& fast) : fast_(fast) {}

 protected:
  const OpInfo& op() const {
    return fast_.op;
  }

  const FastOp<Schema>& fast_;
};

// Two kernels for each op: the device's, and one in front of autograd's, which
// costs as much as all the rest and seldom has anything to do. For ops that
// return new tensors, or the argument that they write.
template <typename Schema>
class FastKernel;
template <typename Schema>
class FastAutogradKernel;

template <typename Result, typename... Args>
class FastKernel<Result(Args...)> final : public KernelOf<Result(Args...)> {
 public:
  using KernelOf<Result(Args...)>::KernelOf;
  Result operator()(Args... args) const {
    if (auto result = call_known(this->fast_, args...)) {
      return std::move(*result);
    }
    return unbox<Result>(trace_unpredicted_boxed(this->op(), args...));
  }
};

template <typename Result, typename... Args>
class FastAutogradKernel<Result(Args...)> final : public KernelOf<Result(Args...)> {
 public:
  using KernelOf<Result(Args...)>::KernelOf;
  Result operator()(c10::DispatchKeySet keys, Args... args) const {
    if (is_plain(keys, args...)) {
      if (auto result = call_known(this->fast_, args...)) {
        return std::move(*result);
      }
    }
    return call_autograd(this->op(), this->fast_.redispatch, keys, args...);
  }
};

// In front of a native kernel, which torch.jit.trace() may have to see at work.
template <typename Schema>
class KernelInFront;

template <typename Result, typename... Args>
class KernelInFront<Result(Args...)> final : public KernelOf<Result(Args...)> {
 public:
  using KernelOf<Result(Args...)>::KernelOf;
  Result operator()(c10::DispatchKeySet keys, Args... args) const {
    return at::tracer::impl::is_dispatch_enabled() ? call_autograd(this->op(), this->fast_.redispatch, keys, args...)
                                                   : FastAutogradKernel<Result(Args...)>(this->fast_)(keys, args...);
  }
};

template <typename... Args>
class FastKernel<at::Tensor&(Args...)> final : public KernelOf<at::Tensor&(Args...)> {
 public:
  using KernelOf<at::Tensor&(Args...)>::KernelOf;
  at::Tensor& operator()(Args... args) const {
    if (!call_known_writing(this->fast_, args...)) {
      trace_unpredicted_boxed(this->op(), args...);
    }
    return written_of<Args...>(args...);
  }
};

template <typename... Args>
class FastAutogradKernel<at::Tensor&(Args...)> final : public KernelOf<at::Tensor&(Args...)> {
 public:
  using KernelOf<at::Tensor&(Args...)>::KernelOf;
  at::Tensor& operator()(c10::DispatchKeySet keys, Args... args) const {
    if (!is_plain(keys, args...) || !call_known_writing(this->fast_, args...)) {
      return call_autograd(this->op(), this->fast_.redispatch, keys, args...);
    }
    at::Tensor& written = written_of<Args...>(args...);
    if (keys.has(c10::DispatchKey::ADInplaceOrView)) {
      written.unsafeGetTensorImpl()->bump_version();
    }
    return written;
  }
};

// The device's kernel of an op, for native ones that end in it.
template <typename Op>
FastKernel<typename Op::schema> fast_kernel(const OpInfo& op) {
  return FastKernel<typename Op::schema>(fast_op<Op>(op));
}

// Of an op without tensors among its arguments that makes one on the device.
template <typename Schema>
class FactoryKernel;

inline std::optional<at::Device> on_cpu_device(const std::optional<at::Device>& /*ours*/) {
  return c10::Device(c10::kCPU);
}
template <typename T>
const T& on_cpu_device(const T& argument) {
  return argument;
}

inline void find_device(std::optional<at::Device>& found, const std::optional<at::Device>& device) {
  found = device;
}
template <typename T>
void find_device(std::optional<at::Device>& /*found*/, const T& /*no device*/) {}

inline void check_pinning(std::optional<bool> pin_memory) { // the only one of its type that factories take
  check_not_pinned(pin_memory);
}
template <typename T>
void check_pinning(const T& /*something else*/) {}

template <typename... Args>
class FactoryKernel<at::Tensor(Args...)> final : public KernelOf<at::Tensor(Args...)> {
 public:
  using KernelOf<at::Tensor(Args...)>::KernelOf;
  at::Tensor operator()(Args... args) const {
    const OpInfo& op = this->op();
    std::optional<at::Device> device;
    (find_device(device, args), ...);
    const c10::DeviceIndex index = resolve_device_index(device && device->has_index() ? device->index() : -1);
    const auto read = [&](PredictedCall& call) { return (call.add(args) && ...); };
    if (auto predicted = predict(op, index, read)) {
      return results_of<at::Tensor>(std::move(*predicted));
    }
    if (runs_steps_at_once() && !is_fallback_forced(op)) {
      (check_pinning(args), ...);
      at::Tensor result;
      if (const SmallCalls* small_calls = this->fast_.at_once(op).small_calls) {
        result = run_small_at_once(op, *small_calls, index, kReadsOften, BorrowedArguments(args...));
      }
      if (result.defined()) {
        return result;
      }
      run_at_once(op, index, kReadsOften, [&](CpuTensors& tensors) {
        {
          const CpuKernelScope scope(op, index);
          result = this->fast_.redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), on_cpu_device(args)...);
        }
        result = tensors.to_lazy(std::move(result));
      });
      return result;
    }
    return unbox<at::Tensor>(trace_unpredicted_boxed(op, args...));
  }
};

template <template <typename> typename Kernel, typename Op>
torch::CppFunction make_kernel(const OpInfo& op) {
  return torch::CppFunction(Kernel<typename Op::schema>(fast_op<Op>(op)));
}

template <typename T>
concept LookedAt = requires(const T& argument) { is_differentiated(argument); };

// Whether is_plain() sees all that autograd may have to do with.
template <typename Schema>
constexpr bool kMayBeFast = false;
template <typename Result, typename... Args>
constexpr bool kMayBeFast<Result(Args...)> = (LookedAt<std::remove_cvref_t<Args>> && ...);

} // namespace lazyplug::fast_kernels

namespace lazyplug {

// The fast path of an op whose kernel is a native one (backend/native/): in front of autograd's only. What is plain
// goes past that kernel, too.
template <typename Op>
FastPath fast_in_front() {
  using namespace fast_kernels;
  static_assert(kMayBeFast<typename Op::schema>, "gradients would be lost silently");
  return {Op::name, Op::overload_name, nullptr, &make_kernel<KernelInFront, Op>};
}

// That of an op that makes a tensor of numbers: it is there at once where all else is.
template <typename Op>
FastPath fast_factory() {
  using namespace fast_kernels;
  return {Op::name, Op::overload_name, &make_kernel<FactoryKernel, Op>, nullptr};
}

// The fast path of an op, such as at::_ops::add_Tensor.
template <typename Op>
FastPath fast() {
  using namespace fast_kernels;
  static_assert(kMayBeFast<typename Op::schema>, "gradients would be lost silently");
  return {Op::name, Op::overload_name, &make_kernel<FastKernel, Op>, &make_kernel<FastAutogradKernel, Op>};
}

} // namespace lazyplug
