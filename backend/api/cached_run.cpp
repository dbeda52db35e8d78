#include "backend/api/cached_run.h"

#include <ATen/ops/scalar_tensor.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <unordered_set>

#include "backend/api/api.h"
#include "backend/caches/beginnings.h"
#include "backend/caches/compile_storms.h"
#include "backend/caches/find_or_compile.h"
#include "backend/caches/rare_graphs.h"
#include "backend/caches/short_steps.h"
#include "backend/caches/signature_cache.h"
#include "backend/caches/varying_sizes.h"
#include "backend/diagnostics/python_hooks.h"
#include "backend/execution/device_context.h"
#include "backend/execution/pending_slice.h"
#include "backend/recording/fallback.h"
#include "lowering/calls/runtime_ops.h"
#include "lowering/execution/execution_guard.h"
#include "lowering/ir/dump.h"

namespace lazyplug {
namespace {

TraceSlice slice_of(const std::vector<at::Tensor>& tensors, bool with_data) {
  std::vector<at::Tensor> distinct;
  std::unordered_set<c10::TensorImpl*> seen;
  for (const at::Tensor& tensor : tensors) {
    lazy_storage_of(tensor); // raises if there is none
    TORCH_CHECK(
        tensor.device() == tensors.front().device(),
        "expected tensors of one device, got some on ",
        tensors.front().device(),
        " and some on ",
        tensor.device());
    if (seen.insert(tensor.unsafeGetTensorImpl()).second) {
      distinct.push_back(tensor);
    }
  }
  return distinct.empty() ? TraceSlice()
                          : pending_slice(lazy_storage_of(distinct.front()).context(), distinct, with_data);
}

void add_scalars(const Trace& trace, const Node& node, GraphInputs& inputs) {
  auto scalars = trace.scalars(node);
  // What stands before a call's scalars are offsets of its views.
  for (size_t i = inputs.values.size() - trace.leaves().size(); i < node.first_scalar; ++i) {
    inputs.tensor_ids.push_back(GraphInputs::kConstant);
    inputs.values.push_back(trace.all_scalars()[i]);
  }
  for (const ArgBinding& arg : node.signature->args) {
    if (arg.kind == ArgBinding::Kind::kScalar || arg.kind == ArgBinding::Kind::kGenerator) {
      const bool is_seed = arg.kind == ArgBinding::Kind::kGenerator;
      inputs.tensor_ids.push_back(is_seed ? GraphInputs::kSeed : GraphInputs::kConstant);
      inputs.values.push_back(scalars.front());
      scalars = scalars.slice(1);
    }
  }
}

// A number may stand for a 0-dim tensor.
at::Tensor to_cpu_tensor(const c10::IValue& value, const Geometry& geometry, size_t number) {
  if (value.isScalar() && geometry.sizes.empty()) {
    return at::scalar_tensor(value.toScalar(), geometry.dtype);
  }
  TORCH_CHECK_TYPE(
      value.isTensor() && value.toTensor().defined(),
      "input ",
      number,
      " of the graph must be a tensor, got ",
      value.tagKind());
  const at::Tensor tensor = value.toTensor();
  if (is_lazy(tensor)) {
    return cpu_alias(tensor, Access::kRead);
  }
  return tensor.cpu();
}

// The leaf with this layout, given the tensor that stands for it.
at::Tensor to_leaf(const c10::IValue& value, const Geometry& geometry, const Geometry& layout, size_t number) {
  const ExecutionGuard guard;
  const at::Tensor tensor = to_cpu_tensor(value, geometry, number);
  TORCH_CHECK(
      tensor.scalar_type() == geometry.dtype && tensor.sizes() == c10::IntArrayRef(geometry.sizes),
      "input ",
      number,
      " of the graph must be ",
      to_string(geometry),
      ", got ",
      to_string(Geometry::of(*tensor.unsafeGetTensorImpl())));
  const at::Tensor arranged = ensure_layout(tensor, geometry);
  const bool is_number = arranged.unsafeGetTensorImpl()->is_wrapped_number();
  return geometry == layout && is_number == layout.wrapped_number ? arranged
                                                                  : make_cpu_tensor(arranged.storage(), layout);
}

// A number, or as many as were recorded.
c10::IValue to_scalar(const c10::IValue& value, const c10::IValue& recorded, size_t number) {
  if (!recorded.isList()) {
    TORCH_CHECK_TYPE(value.isScalar(), "input ", number, " of the graph must be a number, got ", value.tagKind());
    return value;
  }
  const size_t length = recorded.toListRef().size();
  TORCH_CHECK_TYPE(
      value.isList() && value.toListRef().size() == length,
      "input ",
      number,
      " of the graph must be a list of ",
      length,
      " numbers, got ",
      value.isList() ? "one of " + std::to_string(value.toListRef().size()) : value.tagKind());
  if (!recorded.isIntList()) {
    return value;
  }
  std::vector<int64_t> ints;
  for (const c10::IValue& element : value.toListRef()) {
    TORCH_CHECK_TYPE(element.isInt(), "input ", number, " of the graph must be a list of integers");
    ints.push_back(element.toInt());
  }
  return ints;
}

ComputationInputs make_inputs(const CachedComputation& graph, std::vector<c10::IValue> values) {
  const size_t num_leaves = graph.trace.leaves().size();
  const size_t expected = num_leaves + graph.trace.all_scalars().size();
  TORCH_CHECK(values.size() == expected, "the graph takes ", expected, " inputs, got ", values.size());
  ComputationInputs inputs;
  for (const Node& node : graph.trace.nodes()) {
    if (node.kind == NodeKind::kDeviceData) {
      const size_t leaf = node.leaf_index;
      inputs.leaves.push_back(to_leaf(values[leaf], graph.inputs[leaf], *node.layout, leaf));
    }
  }
  for (size_t i = num_leaves; i < expected; ++i) {
    inputs.scalars.push_back(to_scalar(values[i], graph.trace.all_scalars()[i - num_leaves], i));
  }
  return inputs;
}

CachedComputationPtr latest_graph() {
  const auto graphs = computation_cache().most_recent(1);
  TORCH_CHECK(!graphs.empty(), "no graph is cached");
  return graphs.front();
}

} // namespace

GraphInputs graph_inputs(const std::vector<at::Tensor>& tensors) {
  const TraceSlice slice = slice_of(tensors, /*with_data=*/true);
  const Trace& trace = slice.trace;
  const auto geometries = input_geometries(trace, slice.roots);
  GraphInputs inputs;
  for (size_t i = 0; i < trace.leaves().size(); ++i) {
    inputs.tensor_ids.push_back(trace.leaf_info(i).tensor_id);
    // Whoever gets a number may write it.
    const at::Tensor leaf = trace.leaf_info(i).read_only ? trace.leaves()[i].clone() : trace.leaves()[i];
    inputs.values.emplace_back(make_cpu_tensor(leaf.storage(), geometries[i]));
  }
  for (const Node& node : trace.nodes()) {
    if (node.kind == NodeKind::kCall) {
      add_scalars(trace, node, inputs);
    }
  }
  return inputs;
}

CachedComputationPtr graph_of(const std::vector<at::Tensor>& tensors) {
  const TraceSlice slice = slice_of(tensors, /*with_data=*/false);
  return find_or_compile(slice.trace, slice.roots);
}

CachedComputationPtr find_graph(Hash128 hash) {
  const auto found = computation_cache().find(hash);
  TORCH_CHECK(
      found,
      "no computation with the hash ",
      to_hex(hash),
      " is cached: it has been evicted (the setting cache_size bounds the cache), or was never compiled");
  return *found;
}

std::vector<at::Tensor> run_graph(const CachedComputation& graph, std::vector<c10::IValue> inputs) {
  const c10::AutoGradMode grad_mode(true); // as for a job: a few kernels return less, or other bits, if it is off
  std::vector<at::Tensor> results;
  for (ComputationOutput& output : graph.computation->run(make_inputs(graph, std::move(inputs))).outputs) {
    if (output.error) {
      rethrow(output.error);
    }
    results.push_back(std::move(output.tensor));
  }
  return results;
}

std::string to_bytes(Hash128 hash) {
  std::string bytes(sizeof(hash), '\0');
  std::memcpy(bytes.data(), &hash, sizeof(hash));
  return bytes;
}

Hash128 hash_from_bytes(const std::string& bytes) {
  Hash128 hash;
  TORCH_CHECK_VALUE(bytes.size() == sizeof(hash), "a graph hash has ", sizeof(hash), " bytes, got ", bytes.size());
  std::memcpy(&hash, bytes.data(), sizeof(hash));
  return hash;
}

void clear_graphs() {
  computation_cache().clear();
  clear_signatures();
  clear_sizes();
  clear_storms();
  clear_rare_graphs();
  begin_anew();
  clear_short_steps();
}

void dump_graphs(const std::string& filename) {
  std::ofstream file(filename);
  for (const auto& graph : computation_cache().most_recent(std::numeric_limits<size_t>::max())) {
    file << "// graph " << to_hex(graph->hash) << "\n" << to_dot(graph->trace, graph->roots);
  }
  file.close();
  TORCH_CHECK(file, "cannot write '", filename, "': ", std::strerror(errno));
}

std::string latest_graph_text() {
  return latest_graph()->computation->to_string();
}

std::string latest_graph_dot() {
  const CachedComputationPtr graph = latest_graph();
  return to_dot(graph->trace, graph->roots);
}

} // namespace lazyplug
