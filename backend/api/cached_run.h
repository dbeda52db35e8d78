#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

#include "backend/caches/computation_cache.h"

// Running a compiled graph again without recording it: for programs that know
// that nothing but the data has changed. All tensors are on one lazy device.
namespace lazyplug {

// What a graph starts from, in the order in which it is given to it: data of
// tensors, each storage once, then scalars.
struct GraphInputs {
  // Instead of ids: a scalar or a copy of a CPU scalar; the seed of a random op.
  static constexpr int64_t kConstant = -1;
  static constexpr int64_t kSeed = -2;

  std::vector<int64_t> tensor_ids;
  std::vector<c10::IValue> values;
};
GraphInputs graph_inputs(const std::vector<at::Tensor>& tensors);

// The graph that computes the tensors, compiled and in the cache.
CachedComputationPtr graph_of(const std::vector<at::Tensor>& tensors);

// The cached graph with this hash; raises RuntimeError if it is not, or no
// longer, cached.
CachedComputationPtr find_graph(Hash128 hash);

// Runs a graph on other inputs: tensors of any device, shaped like those of the
// tensors given to graph_of() that stand for them, or as graph_inputs() returns them. Returns CPU tensors, one for each
// tensor it was asked for; an input that the graph returns as it is, is returned itself. Raises the error of an op that
// fails.
std::vector<at::Tensor> run_graph(const CachedComputation& graph, std::vector<c10::IValue> inputs);

// A graph hash as bytes, and back.
std::string to_bytes(Hash128 hash);
Hash128 hash_from_bytes(const std::string& bytes);

// Forgets all compiled graphs, and what is known of ops, and of programs that compile too many.
void clear_graphs();

// Writes all cached graphs for Graphviz, the one used last first. Raises
// RuntimeError if the file cannot be written.
void dump_graphs(const std::string& filename);
// The graph that was compiled or used last: as TorchScript, and for Graphviz.
// Raise RuntimeError if there is none.
std::string latest_graph_text();
std::string latest_graph_dot();

} // namespace lazyplug
