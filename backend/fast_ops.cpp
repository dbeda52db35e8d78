#include "backend/fast_ops.h"

#include <ATen/Operators.h>

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

// For ops that return one new tensor, or their first argument.
template <typename Schema>
class FastKernel;

template <typename... Args>
class FastKernel<at::Tensor(Args...)> final : public c10::OperatorKernel {
 public:
  explicit FastKernel(const OpInfo& op) : op_(op) {}
  at::Tensor operator()(Args... args) const {
    if (auto predicted = predict_unboxed(op_, args...)) {
      return std::move(predicted->outputs.front());
    }
    return trace_unpredicted_boxed(op_, args...).front().toTensor();
  }

 private:
  const OpInfo& op_;
};

template <typename... Args>
class FastKernel<at::Tensor&(at::Tensor&, Args...)> final : public c10::OperatorKernel {
 public:
  explicit FastKernel(const OpInfo& op) : op_(op) {}
  at::Tensor& operator()(at::Tensor& self, Args... args) const {
    if (!predict_unboxed(op_, self, args...)) {
      trace_unpredicted_boxed(op_, self, args...);
    }
    return self;
  }

 private:
  const OpInfo& op_;
};

struct FastOp {
  const char* name;
  const char* overload;
  void (*add)(torch::Library& library, const char* name, const OpInfo& op);
};

template <typename Op>
constexpr FastOp fast() {
  return {Op::name, Op::overload_name, [](torch::Library& library, const char* name, const OpInfo& op) {
            library.impl(name, torch::CppFunction(FastKernel<typename Op::schema>(op)));
          }};
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

} // namespace

void register_fast_ops(torch::Library& library) {
  for (const FastOp& op : kFastOps) {
    const std::string name = *op.overload ? std::string(op.name) + "." + op.overload : op.name;
    op.add(library, name.c_str(), op_info(op.name, op.overload));
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
