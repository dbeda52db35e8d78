#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <forward_list>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "lowering/ir/trace.h"

// What the nodes of a TorchScript graph say of themselves, so that the graph can be run, and its text read back, with
// nothing beside it. Types say the rest: an output of a complete tensor type lies as that says, and a call whose output
// does promises it. An output that is an argument has the type Tensor. Lists are attributes of the kind ival, because
// that is what they are when they are read back.
namespace lazyplug {

// int `origin`: the node of the trace that it belongs to. int `replaced`, if it is not the call that was recorded.
void set_origin(torch::jit::Node& node, NodeId origin, bool is_replaced);
NodeId origin_of(const torch::jit::Node& node);
bool is_replaced(const torch::jit::Node& node);

// str `overload`: which one of the op; left out if its name is empty.
void set_overload(torch::jit::Node& node, const std::string& overload);
std::string overload_of(const torch::jit::Node& node);

// int[] `writes`: the inputs whose memory the call writes.
void set_writes(torch::jit::Node& node, std::vector<int64_t> inputs);
// What lazyplug::own has made for this call to write, through views and lists.
std::vector<const torch::jit::Value*> written_values(const torch::jit::Node& node);

// float `work`: see light_work(); left out if it is 0.
void set_work(torch::jit::Node& node, float work);
float work_of(const torch::jit::Node& node);

// str[] `ops`: of one of the package's own that stands for calls, a group or not, which ops these are of.
void set_ops(torch::jit::Node& node, std::vector<std::string> ops);
bool has_ops(const torch::jit::Node& node);
std::vector<std::string> ops_of(const torch::jit::Node& node);

// int `returns_views`: what the call returns anew begins anywhere in its storage, or has bits, and so promises nothing.
void set_returns_views(torch::jit::Node& node);
bool returns_views(const torch::jit::Node& node);

// The graph as text that torch::jit::parseIR reads.
std::string text_of(const torch::jit::Graph& graph);

// The type of tensors that lie so. Bits and the offset are not part of it.
c10::TensorTypePtr type_of(const Geometry& geometry);
// Null if the type is not that of tensors which lie in one way only.
std::optional<Geometry> geometry_of(const c10::Type& type);

// The geometries of a graph's types, each made once. They live as long as the table.
class TypeGeometries {
 public:
  // Null if the type is not that of tensors which lie in one way only.
  const Geometry* find(const c10::Type& type);
  const Geometry* add(Geometry geometry) {
    return &geometries_.emplace_front(std::move(geometry));
  }
  // No more types will be looked up.
  void freeze() {
    by_type_ = {};
  }

 private:
  std::forward_list<Geometry> geometries_;
  std::unordered_map<const c10::Type*, const Geometry*> by_type_;
};

} // namespace lazyplug
