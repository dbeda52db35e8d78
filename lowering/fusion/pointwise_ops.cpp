#include "lowering/fusion/pointwise_ops.h"

#include <string>
#include <unordered_map>

namespace lazyplug {
namespace {

using kernels::Opcode;
using Kind = PointwiseOp::Kind;

constexpr PointwiseOp kOps[] = {
    {"aten::neg", "", Opcode::kNeg, "t"},
    {"aten::abs", "", Opcode::kAbs, "t"},
    {"aten::sqrt", "", Opcode::kSqrt, "t"},
    {"aten::reciprocal", "", Opcode::kReciprocal, "t"},
    {"aten::clone", "", Opcode::kCopy, "t-"},
    {"aten::copy", "", Opcode::kCopy, ".t-"},
    {"aten::_to_copy", "", Opcode::kCopy, "t------"},
    {"aten::add", "Tensor", Opcode::kAdd, "tts"},
    {"aten::add", "Scalar", Opcode::kAdd, "tns"},
    {"aten::sub", "Tensor", Opcode::kSub, "tts"},
    {"aten::sub", "Scalar", Opcode::kSub, "tns"},
    {"aten::rsub", "Scalar", Opcode::kSub, "tns", Kind::kSwapped},
    {"aten::mul", "Tensor", Opcode::kMul, "tt"},
    {"aten::mul", "Scalar", Opcode::kMul, "tn"},
    {"aten::div", "Tensor", Opcode::kDiv, "tt"},
    {"aten::div", "Scalar", Opcode::kDiv, "tn"},
    {"aten::addcmul", "", Opcode::kAddcmul, "ttts"},
    {"aten::addcdiv", "", Opcode::kAddcdiv, "ttts"},
    {"aten::relu", "", Opcode::kRelu, "t"},
    {"aten::rsqrt", "", Opcode::kRsqrt, "t"},
    {"aten::sigmoid_backward", "", Opcode::kSigmoidBackward, "tt"},
    {"aten::tanh_backward", "", Opcode::kTanhBackward, "tt"},
    {"aten::threshold_backward", "", Opcode::kThresholdBackward, "tts"},
    {"aten::where", "self", Opcode::kWhere, "ttt"},
    {"aten::eq", "Tensor", Opcode::kEqual, "tt", Kind::kCompares},
    {"aten::eq", "Scalar", Opcode::kEqual, "tn", Kind::kCompares},
    {"aten::ne", "Tensor", Opcode::kNotEqual, "tt", Kind::kCompares},
    {"aten::ne", "Scalar", Opcode::kNotEqual, "tn", Kind::kCompares},
    {"aten::lt", "Tensor", Opcode::kLess, "tt", Kind::kCompares},
    {"aten::lt", "Scalar", Opcode::kLess, "tn", Kind::kCompares},
    {"aten::le", "Tensor", Opcode::kLessEqual, "tt", Kind::kCompares},
    {"aten::le", "Scalar", Opcode::kLessEqual, "tn", Kind::kCompares},
    {"aten::gt", "Tensor", Opcode::kGreater, "tt", Kind::kCompares},
    {"aten::gt", "Scalar", Opcode::kGreater, "tn", Kind::kCompares},
    {"aten::ge", "Tensor", Opcode::kGreaterEqual, "tt", Kind::kCompares},
    {"aten::ge", "Scalar", Opcode::kGreaterEqual, "tn", Kind::kCompares},
    {"aten::zeros", "", Opcode::kZero, "-----"},
    {"aten::zeros_like", "", Opcode::kZero, ".-----"},
    {"aten::new_zeros", "", Opcode::kZero, ".-----"},
    {"aten::ones", "", Opcode::kOne, "-----"},
    {"aten::ones_like", "", Opcode::kOne, ".-----"},
    {"aten::new_ones", "", Opcode::kOne, ".-----"},
    {"aten::zero", "", Opcode::kZero, "."},
    {"aten::full", "", Opcode::kNumber, "-s----"},
    {"aten::full_like", "", Opcode::kNumber, ".s-----"},
    {"aten::fill", "Scalar", Opcode::kNumber, ".s"},
    {"aten::scalar_tensor", "", Opcode::kNumber, "s----"},
};

std::unordered_map<std::string, const PointwiseOp*> make_index() {
  std::unordered_map<std::string, const PointwiseOp*> index;
  for (const PointwiseOp& op : kOps) {
    index.emplace(std::string(op.base) + "." + op.overload, &op);
  }
  return index;
}

} // namespace

const PointwiseOp* find_pointwise_op(const OpInfo& op) {
  static const auto* index = new auto(make_index());
  std::string name = op.base_name();
  if (op.writes() && name.ends_with('_')) {
    name.pop_back();
  }
  const auto found = index->find(name + "." + op.overload());
  return found == index->end() ? nullptr : found->second;
}

} // namespace lazyplug
