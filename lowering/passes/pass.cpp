#include "lowering/passes/pass.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/logging.h"
#include "common/metrics.h"
#include "common/parsed_flag.h"
#include "lowering/ir/dump.h"
#include "lowering/ir/verify.h"
#include "lowering/passes/common_subexpressions.h"
#include "lowering/passes/dead_code.h"
#include "lowering/passes/identities.h"
#include "lowering/passes/no_op_copies.h"
#include "lowering/passes/pure_writes.h"

namespace lazyplug {
namespace {

constexpr Pass kPasses[] = {
    {"dead_code", remove_dead_code},
    {"no_op_copies", remove_no_op_copies},
    {"identities", remove_identities},
    {"common_subexpressions", merge_common_subexpressions},
    {"pure_writes", make_writes_pure},
    {"dead_code", remove_dead_code},
};

bool is_pass(std::string_view name) {
  // What can be left out, though it is no change of a graph: see LoweringContext and Instruction::donors.
  return name == "fusion" || name == "foreach_groups" || name == "destinations" ||
         std::any_of(std::begin(kPasses), std::end(kPasses), [&](const Pass& pass) { return pass.name == name; });
}

// After each change of the flag.
void warn_of_unknown_names() {
  static std::atomic<uint64_t> seen{0};
  const uint64_t version = config().disabled_passes.version();
  if (seen.exchange(version) == version) {
    return;
  }
  std::istringstream names(config().disabled_passes.get());
  for (std::string name; std::getline(names, name, ',');) {
    if (!is_pass(name)) {
      log_warning("disabled_passes: no pass is called \"", name, "\"");
    }
  }
}

// Writes one graph's files, if the flag says so.
class Dump {
 public:
  Dump() : directory_(config().dump_dir.get()) {
    static std::atomic<uint64_t> next{0};
    if (!directory_.empty()) {
      prefix_ = std::to_string(getpid()) + "-" + std::to_string(next.fetch_add(1)) + "-";
    }
  }

  void write(const char* pass, const Graph& graph) {
    if (directory_.empty()) {
      return;
    }
    std::error_code error;
    std::filesystem::create_directories(directory_, error);
    const auto path = directory_ / (prefix_ + std::to_string(step_++) + "-" + pass + ".txt");
    std::ofstream file(path);
    file << to_text(graph);
    if (!file) {
      log_warning("cannot write ", path.string());
    }
  }

 private:
  const std::filesystem::path directory_;
  std::string prefix_;
  size_t step_ = 0;
};

bool run(const Pass& pass, Graph& graph) {
  const std::string name = pass.name;
  const TimerScope scope(timer("PassTime/" + name));
  const bool changed = pass.run(graph);
  if (changed) {
    counter("PassChanged/" + name).add();
  }
  return changed;
}

} // namespace

c10::ArrayRef<Pass> passes() {
  return kPasses;
}

bool is_pass_enabled(std::string_view name) {
  static ParsedFlag<bool> is_any_disabled(config().disabled_passes, [](const std::string& names) {
    return !names.empty();
  });
  if (!is_any_disabled.get()) {
    return true;
  }
  const std::string disabled = "," + config().disabled_passes.get() + ",";
  return disabled.find("," + std::string(name) + ",") == std::string::npos;
}

void run_passes(Graph& graph) {
  warn_of_unknown_names();
  Dump dump;
  dump.write("recorded", graph);
  for (const Pass& pass : kPasses) {
    if (is_pass_enabled(pass.name) && run(pass, graph)) {
      dump.write(pass.name, graph);
      if (config().verify_ir.get()) {
        verify(graph);
      }
    }
  }
}

} // namespace lazyplug
