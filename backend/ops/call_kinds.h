// What is left of calls without their sizes and constants.
#pragma once

#include <unordered_set>

#include "backend/ops/call.h"
#include "lowering/ir/trace.h"

namespace lazyplug {

inline uint64_t kind_of(c10::ScalarType dtype, size_t dim) {
  return static_cast<uint64_t>(dtype) | static_cast<uint64_t>(dim) << 8;
}

// Operands one after the other that are alike count as one: lists of any length are of one kind.
class KindOfCall {
 public:
  explicit KindOfCall(const OpInfo& op) : hash_(hash_combine(Hash128(), reinterpret_cast<uintptr_t>(&op))) {}

  void add(c10::ScalarType dtype, size_t dim) {
    const uint64_t operand = kind_of(dtype, dim);
    if (operand != last_) {
      hash_ = hash_combine(hash_, operand);
      last_ = operand;
    }
  }
  const Hash128& hash() const {
    return hash_;
  }

 private:
  Hash128 hash_;
  uint64_t last_ = UINT64_MAX;
};

inline Hash128 kind_of(const Call& call) {
  KindOfCall kind(*call.op);
  for (const TensorArg& arg : call.tensors) {
    arg.tensor ? kind.add(c10::typeMetaToScalarType(arg.tensor->dtype()), arg.tensor->dim())
               : kind.add(c10::ScalarType::Undefined, 0);
  }
  return kind.hash();
}

inline Hash128 kind_of(const Signature& signature) {
  KindOfCall kind(*signature.op);
  for (const Geometry& operand : signature.operands) {
    kind.add(operand.dtype, operand.sizes.size());
  }
  return kind.hash();
}

using Kinds = std::unordered_set<Hash128>;

inline Kinds kinds_in(const Trace& trace) {
  Kinds kinds;
  for (const Node& node : trace.nodes()) {
    if (node.kind == NodeKind::kCall) {
      kinds.insert(kind_of(*node.signature));
    }
  }
  return kinds;
}

} // namespace lazyplug
