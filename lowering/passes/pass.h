#pragma once

#include <string_view>

#include "lowering/ir/graph.h"

namespace lazyplug {

// A change of graphs that leaves what they compute as it is, to the bit. It says whether it has changed anything.
struct Pass {
  const char* name;
  bool (*run)(Graph& graph);
};

// In the order in which they run. One may stand there twice.
c10::ArrayRef<Pass> passes();

// Whether the flag `disabled_passes` does not name it. Besides those above there are "fusion" and
// "foreach_groups", see LoweringContext, and "destinations", see Instruction::donors and PointwiseKernel. Of names that
// no pass has, a warning is written.
bool is_pass_enabled(std::string_view name);

// Runs those that are enabled. The timer "PassTime/<name>" and the counter "PassChanged/<name>" tell of each. With the
// flag `verify_ir` the graph is verified after each that changed it; with `dump_dir`, it is written to a file then,
// too: <dump_dir>/<process>-<graph>-<step>-<pass>.txt, where step 0 is the graph as it was recorded.
void run_passes(Graph& graph);

} // namespace lazyplug
