#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "lowering/ir/op_info.h"
#include "lowering/nodes/kernel.h"
#include "lowering/nodes/node_attributes.h"

namespace lazyplug {

// The name of an op: "aten::add", interned, and its overload.
struct OpKey {
  c10::Symbol base;
  std::string overload;
  bool operator==(const OpKey&) const = default;
};
struct OpKeyHash {
  size_t operator()(const OpKey& key) const {
    return static_cast<size_t>(static_cast<c10::unique_t>(key.base)) * 31 + std::hash<std::string>()(key.overload);
  }
};
using OpsByName = std::unordered_map<OpKey, const OpInfo*, OpKeyHash>;
using FindOp = std::function<const OpInfo&(const OpKey&)>;

// The kernel of a node that is no constant, from what stands in the node alone. It lives no longer than `geometries`.
// `op` becomes the op that it calls, or null if it is one of the runtime's own (lowering/calls/runtime_ops.h).
Kernel
resolve_kernel(const torch::jit::Node& node, const FindOp& find_op, TypeGeometries& geometries, const OpInfo*& op);

} // namespace lazyplug
