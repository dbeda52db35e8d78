#include "backend/fast_ops.h"

#include <ATen/Operators.h>
#include <c10/core/GradMode.h>

#include <unordered_set>

#include "backend/op_registry.h"
#include "backend/tracer.h"

namespace lazyplug {
namespace {

template <typename... Args>
std::optional<DeviceContext::Predicted>
predict_unboxed(const OpInfo& op, const at::Tensor& first, const Args&... args) {
  return predict(op, first, [&](PredictedCall& call) { return call.add(first) && (call.add(args) && ...); });
}

template <typename... Args>
c10::Stack trace_unpredicted_boxed(const OpInfo& op, const Args&... args) {
  c10::Stack stack;
  torch::jit::push(stack, args...);
  trace_unpredicted(op, &stack);
  return stack;
}

// Whether autograd has anything to do with an argument.
template <typename T>
bool is_differentiated(const T& /*no tensor*/) {
  return false;
}
bool is_differentiated(const at::Tensor& tensor) {
  const auto* meta = tensor.unsafeGetTensorImpl()->autograd_meta();
  return meta && ((c10::GradMode::is_enabled() && tensor.requires_grad()) || tensor._fw_grad(/*level=*/0).defined());
}

// Without the bits that say which device.
uint64_t functionalities(c10::DispatchKeySet keys) {
  return keys.raw_repr() & ~c10::full_backend_mask;
}

const uint64_t kBetween = functionalities(
    c10::after_autograd_keyset -
    c10::DispatchKeySet({c10::DispatchKey::ADInplaceOrView, c10::DispatchKey::PrivateUse1}));

// Whether a call may go straight to the device: neither autograd has anything to
// do with it, nor anybody between autograd and the device.
template <typename... Args>
bool is_plain(c10::DispatchKeySet keys, const Args&... args) {
  return (keys.raw_repr() & kBetween) == 0 && !(is_differentiated(args) || ...);
}

// PyTorch's own autograd kernel of an op stands at all autograd keys that
// nobody overrides, if the op has no composite kernel. It is called as the
// dispatcher would have called it.
template <typename Op, typename Result, typename... Args>
Result call_autograd(const OpInfo& op, c10::DispatchKeySet keys, Args&&... args) {
  constexpr auto kAutograd = c10::DispatchKey::AutogradOther;
  if (keys.has(c10::DispatchKey::PythonDispatcher)) {
    // Redispatching would ask Python again, which would lead back here.
    c10::Stack stack;
    torch::jit::push(stack, args...);
    op.handle().getComputedKernelForDispatchKey(kAutograd).callBoxed(op.handle(), keys, &stack);
    if constexpr (std::is_lvalue_reference_v<Result>) {
      return std::get<0>(std::forward_as_tuple(args...));
    } else {
      return stack.front().toTensor();
    }
  }
  keys = keys.remove(c10::DispatchKey::AutogradPrivateUse1).add(kAutograd);
  return Op::redispatch(keys, std::forward<Args>(args)...);
}

class KernelOf : public c10::OperatorKernel {
 public:
  explicit KernelOf(const OpInfo& op) : op_(op) {}

 protected:
  const OpInfo& op_;
};

// Two kernels for each op: the device's, and one in front of autograd's, which
// costs as much as all the rest and seldom has anything to do. For ops that
// return one new tensor, or their first argument.
template <typename Op, typename Schema = typename Op::schema>
class FastKernel;
template <typename Op, typename Schema = typename Op::schema>
class FastAutogradKernel;

template <typename Op, typename... Args>
class FastKernel<Op, at::Tensor(Args...)> final : public KernelOf {
 public:
  using KernelOf::KernelOf;
  at::Tensor operator()(Args... args) const {
    if (auto predicted = predict_unboxed(op_, args...)) {
      return std::move(predicted->outputs.front());
    }
    return trace_unpredicted_boxed(op_, args...).front().toTensor();
  }
};

template <typename Op, typename... Args>
class FastAutogradKernel<Op, at::Tensor(Args...)> final : public KernelOf {
 public:
  using KernelOf::KernelOf;
  at::Tensor operator()(c10::DispatchKeySet keys, Args... args) const {
    if (is_plain(keys, args...)) {
      if (auto predicted = predict_unboxed(op_, args...)) {
        return std::move(predicted->outputs.front());
      }
    }
    return call_autograd<Op, at::Tensor>(op_, keys, args...);
  }
};

template <typename Op, typename... Args>
class FastKernel<Op, at::Tensor&(at::Tensor&, Args...)> final : public KernelOf {
 public:
  using KernelOf::KernelOf;
  at::Tensor& operator()(at::Tensor& self, Args... args) const {
    if (!predict_unboxed(op_, self, args...)) {
      trace_unpredicted_boxed(op_, self, args...);
    }
    return self;
  }
};

template <typename Op, typename... Args>
class FastAutogradKernel<Op, at::Tensor&(at::Tensor&, Args...)> final : public KernelOf {
 public:
  using KernelOf::KernelOf;
  at::Tensor& operator()(c10::DispatchKeySet keys, at::Tensor& self, Args... args) const {
    if (!is_plain(keys, self, args...) || !predict_unboxed(op_, self, args...)) {
      return call_autograd<Op, at::Tensor&>(op_, keys, self, args...);
    }
    if (keys.has(c10::DispatchKey::ADInplaceOrView)) {
      self.unsafeGetTensorImpl()->bump_version();
    }
    return self;
  }
};

struct FastOp {
  const char* name;
  const char* overload;
  torch::CppFunction (*kernel)(const OpInfo& op);
  torch::CppFunction (*autograd_kernel)(const OpInfo& op);
};

template <typename Op>
constexpr FastOp fast() {
  return {
      Op::name,
      Op::overload_name,
      [](const OpInfo& op) { return torch::CppFunction(FastKernel<Op>(op)); },
      [](const OpInfo& op) { return torch::CppFunction(FastAutogradKernel<Op>(op)); }};
}

namespace ops = at::_ops;

constexpr FastOp kFastOps[] = {
    // Arithmetic, of programs and of optimisers.
    fast<ops::add_Tensor>(),
    fast<ops::sub_Tensor>(),
    fast<ops::mul_Tensor>(),
    fast<ops::div_Tensor>(),
    fast<ops::add__Tensor>(),
    fast<ops::mul__Tensor>(),
    fast<ops::div__Tensor>(),
    fast<ops::addcmul_>(),
    fast<ops::addcdiv_>(),
    fast<ops::lerp__Scalar>(),
    fast<ops::zero_>(),
    fast<ops::neg>(),
    fast<ops::sqrt>(),
    fast<ops::rsqrt>(),
    fast<ops::exp>(),
    fast<ops::pow_Tensor_Scalar>(),
    // Activations and their gradients.
    fast<ops::relu>(),
    fast<ops::tanh>(),
    fast<ops::sigmoid>(),
    fast<ops::silu>(),
    fast<ops::threshold_backward>(),
    fast<ops::tanh_backward>(),
    fast<ops::sigmoid_backward>(),
    fast<ops::silu_backward>(),
    fast<ops::_softmax>(),
    // Products.
    fast<ops::mm>(),
    fast<ops::bmm>(),
    fast<ops::addmm>(),
};

std::string full_name(const FastOp& op) {
  return *op.overload ? std::string(op.name) + "." + op.overload : op.name;
}

} // namespace

void register_fast_ops(torch::Library& library) {
  for (const FastOp& op : kFastOps) {
    library.impl(full_name(op).c_str(), op.kernel(op_info(op.name, op.overload)));
  }
}

void register_fast_autograd(torch::Library& library) {
  for (const FastOp& op : kFastOps) {
    const OpInfo& info = op_info(op.name, op.overload);
    // A composite kernel, such as that of silu_backward, would stand where we look for autograd's.
    if (!info.handle().hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
      library.impl(full_name(op).c_str(), op.autograd_kernel(info));
    }
  }
}

bool is_fast_op(const c10::OperatorName& name) {
  static const auto* names = [] {
    auto* set = new std::unordered_set<c10::OperatorName>();
    for (const FastOp& op : kFastOps) {
      set->emplace(op.name, op.overload);
    }
    return set;
  }();
  return names->count(name) != 0;
}

} // namespace lazyplug
