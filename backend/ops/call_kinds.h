// What is left of calls without their sizes and constants.
#pragma once

#include <unordered_set>

#include "backend/ops/call.h"
#include "lowering/ir/trace.h"

namespace lazyplug {

inline Hash128 add_kind(Hash128 hash, c10::ScalarType dtype, size_t dim) {
  return hash_combine(hash, static_cast<uint64_t>(dtype) | static_cast<uint64_t>(dim) << 8);
}

inline Hash128 kind_of(const OpInfo& op) {
  return hash_combine(Hash128(), reinterpret_cast<uintptr_t>(&op));
}

inline Hash128 kind_of(const Call& call) {
  Hash128 kind = kind_of(*call.op);
  for (const TensorArg& arg : call.tensors) {
    kind = arg.tensor ? add_kind(kind, c10::typeMetaToScalarType(arg.tensor->dtype()), arg.tensor->dim())
                      : add_kind(kind, c10::ScalarType::Undefined, 0);
  }
  return kind;
}

inline Hash128 kind_of(const Signature& signature) {
  Hash128 kind = kind_of(*signature.op);
  for (const Geometry& operand : signature.operands) {
    kind = add_kind(kind, operand.dtype, operand.sizes.size());
  }
  return kind;
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
