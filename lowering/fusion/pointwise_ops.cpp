#include "lowering/fusion/pointwise_ops.h"

#include <string_view>
#include <unordered_map>

namespace lazyplug {
namespace {

using kernels::Opcode;

constexpr PointwiseOp kOps[] = {
    {"aten::neg", Opcode::kNeg, "t"},
    {"aten::abs", Opcode::kAbs, "t"},
    {"aten::sqrt", Opcode::kSqrt, "t"},
    {"aten::reciprocal", Opcode::kReciprocal, "t"},
    {"aten::clone", Opcode::kCopy, "t-"},
    {"aten::add.Tensor", Opcode::kAdd, "tts"},
    {"aten::sub.Tensor", Opcode::kSub, "tts"},
    {"aten::mul.Tensor", Opcode::kMul, "tt"},
    {"aten::div.Tensor", Opcode::kDiv, "tt"},
    {"aten::addcmul", Opcode::kAddcmul, "ttts"},
    {"aten::addcdiv", Opcode::kAddcdiv, "ttts"},
    {"aten::lerp.Scalar", Opcode::kLerp, "tts"},
    {"aten::where.self", Opcode::kWhere, "ttt"},
    {"aten::eq.Tensor", Opcode::kEqual, "tt", true},
    {"aten::ne.Tensor", Opcode::kNotEqual, "tt", true},
    {"aten::lt.Tensor", Opcode::kLess, "tt", true},
    {"aten::le.Tensor", Opcode::kLessEqual, "tt", true},
    {"aten::gt.Tensor", Opcode::kGreater, "tt", true},
    {"aten::ge.Tensor", Opcode::kGreaterEqual, "tt", true},
    {"aten::eq.Scalar", Opcode::kEqual, "tn", true},
    {"aten::ne.Scalar", Opcode::kNotEqual, "tn", true},
    {"aten::lt.Scalar", Opcode::kLess, "tn", true},
    {"aten::le.Scalar", Opcode::kLessEqual, "tn", true},
    {"aten::gt.Scalar", Opcode::kGreater, "tn", true},
    {"aten::ge.Scalar", Opcode::kGreaterEqual, "tn", true},
};

std::unordered_map<std::string_view, const PointwiseOp*> make_index() {
  std::unordered_map<std::string_view, const PointwiseOp*> index;
  for (const PointwiseOp& op : kOps) {
    index.emplace(op.name, &op);
  }
  return index;
}

} // namespace

const PointwiseOp* find_pointwise_op(const OpInfo& op) {
  static const auto* index = new auto(make_index());
  const auto found = index->find(op.name());
  return found == index->end() ? nullptr : found->second;
}

} // namespace lazyplug
