#include "kernels/assembly.h"

#include "common/config.h"

#ifdef LAZYPLUG_XBYAK
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <mutex>
#include <set>
#include <unordered_map>

#include "common/logging.h"
#include "kernels/run_writer.h"
#endif

namespace lazyplug::kernels {

#ifdef LAZYPLUG_XBYAK
namespace {

bool is_cheap(Opcode opcode) {
  switch (opcode) {
    case Opcode::kSqrt: // the library's
    case Opcode::kExp:
    case Opcode::kExpm1:
    case Opcode::kLog:
    case Opcode::kLog1p:
    case Opcode::kSin:
    case Opcode::kCos:
    case Opcode::kTanh:
    case Opcode::kErf:
    case Opcode::kSigmoid:
    case Opcode::kSilu:
    case Opcode::kGelu:
    case Opcode::kGeluTanh:
    case Opcode::kSoftplus:
    case Opcode::kSiluBackward:
    case Opcode::kGeluBackward:
    case Opcode::kGeluTanhBackward:
    case Opcode::kSoftplusBackward:
      return false;
    default:
      return !is_about_rows(opcode);
  }
}

// Where runs begin and end.
std::vector<Assembly::Run> find_runs(const Program& program) {
  constexpr size_t kLeast = 2; // one instruction loads and stores no less
  std::vector<Assembly::Run> runs;
  const size_t size = program.instructions.size();
  for (size_t begin = 0; begin < size; ++begin) {
    size_t end = begin;
    while (end < size && is_cheap(program.instructions[end].opcode) && !program.instructions[end].is_for_row) {
      ++end;
    }
    if (end - begin >= kLeast) {
      runs.push_back({begin, end, nullptr});
    }
    begin = end;
  }
  return runs;
}

// The most results of a run that are still to be read when another one is made.
size_t most_alive(const Program& program, const Assembly::Run& run) {
  size_t most = 0;
  std::set<Slot> alive;
  for (size_t i = run.end; i-- > run.begin;) {
    const Instruction& instruction = program.instructions[i];
    alive.erase(instruction.out);
    alive.insert(instruction.inputs, instruction.inputs + num_inputs(instruction.opcode));
    const auto made = std::count_if(alive.begin(), alive.end(), [&](Slot slot) {
      return std::any_of(
          program.instructions.begin() + static_cast<std::ptrdiff_t>(run.begin),
          program.instructions.begin() + static_cast<std::ptrdiff_t>(i),
          [&](const Instruction& earlier) { return earlier.out == slot; });
    });
    most = std::max(most, static_cast<size_t>(made));
  }
  return most;
}

// How many vectors are computed at a time, so that what has been made of them stays in registers.
int64_t choose_copies(const Program& program, const std::vector<Assembly::Run>& runs) {
  constexpr size_t kOthers = 8; // inputs, numbers and constants
  size_t most = 0;
  for (const Assembly::Run& run : runs) {
    most = std::max(most, most_alive(program, run));
  }
  for (const size_t copies : {4, 2}) {
    if (copies * (most + 1) + kOthers <= Target::here().num_registers()) {
      return static_cast<int64_t>(copies);
    }
  }
  return 1;
}

class WrittenAssembly : public Assembly {
 public:
  WrittenAssembly(const Program& program, std::vector<Run> runs)
      : runs_(std::move(runs)),
        num_copies_(choose_copies(program, runs_)),
        code_(kBytes * (program.instructions.size() * num_copies_ + 1), Xbyak::DontSetProtectRWE) {
    std::vector<size_t> starts;
    for (const Run& run : runs_) {
      code_.align(32);
      starts.push_back(code_.getSize());
      RunWriter(code_, program, run.begin, run.end, num_copies_).write();
    }
    TORCH_INTERNAL_ASSERT(!code_.hasUndefinedLabel());
    code_.setProtectModeRE();
    for (size_t i = 0; i < runs_.size(); ++i) {
      runs_[i].code = reinterpret_cast<Code>(reinterpret_cast<uintptr_t>(code_.getCode()) + starts[i]);
    }
  }

  const std::vector<Run>& runs() const override {
    return runs_;
  }
  int64_t num_lanes() const override {
    return num_copies_ * Target::here().vector_bytes() / static_cast<int64_t>(sizeof(float));
  }
  size_t num_bytes() const {
    return code_.getSize();
  }

 private:
  static constexpr size_t kBytes = 512; // more than an instruction's code, or what is around a run's

  std::vector<Run> runs_;
  int64_t num_copies_;
  Xbyak::CodeGenerator code_;
};

// As `perf` reads it: address, size, name.
void tell_perf(const WrittenAssembly& assembly, const std::string& program) {
  std::ofstream map("/tmp/perf-" + std::to_string(getpid()) + ".map", std::ios::app);
  map << std::hex << reinterpret_cast<uintptr_t>(assembly.runs().front().code) << ' ' << assembly.num_bytes()
      << " lazyplug: " << program << '\n';
}

// Code of programs that somebody holds, by their text.
class Library {
 public:
  // Code may run while the process ends.
  static Library& get() {
    static auto* const library = new Library();
    return *library;
  }

  std::shared_ptr<const Assembly> find(const Program& program) {
    const std::string text = to_string(program);
    const std::lock_guard<std::mutex> lock(mutex_);
    return find_locked(text);
  }

  std::shared_ptr<const Assembly> find_or_write(const Program& program, std::vector<Assembly::Run> runs) {
    const std::string text = to_string(program);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (auto found = find_locked(text)) {
      return found;
    }
    forget_unused();
    try {
      auto written = std::make_shared<const WrittenAssembly>(program, std::move(runs));
      if (config().perf_map.get()) {
        tell_perf(*written, text);
      }
      by_text_[text] = written;
      return written;
    } catch (const Xbyak::Error& error) { // a system that lets nobody make memory executable, or a program too long
      log_info("no machine code for a program: ", error.what());
      return nullptr;
    }
  }

 private:
  std::shared_ptr<const Assembly> find_locked(const std::string& text) const {
    const auto found = by_text_.find(text);
    return found == by_text_.end() ? nullptr : found->second.lock();
  }

  void forget_unused() {
    if (by_text_.size() >= limit_) {
      std::erase_if(by_text_, [](const auto& entry) { return entry.second.expired(); });
      limit_ = std::max<size_t>(64, 2 * by_text_.size());
    }
  }

  std::mutex mutex_;
  std::unordered_map<std::string, std::weak_ptr<const Assembly>> by_text_;
  size_t limit_ = 64;
};

} // namespace

std::shared_ptr<const Assembly> assemble(const Program& program) {
  if (program.dtype != c10::ScalarType::Float || !Target::here().has_avx2) {
    return nullptr;
  }
  std::vector<Assembly::Run> runs = find_runs(program);
  if (runs.empty()) {
    return nullptr;
  }
  return Library::get().find_or_write(program, std::move(runs));
}

std::shared_ptr<const Assembly> find_assembled(const Program& program) {
  return Library::get().find(program);
}

#else

std::shared_ptr<const Assembly> assemble(const Program& /*program*/) {
  return nullptr;
}

std::shared_ptr<const Assembly> find_assembled(const Program& /*program*/) {
  return nullptr;
}

#endif

const Assembly* AssembledLater::next(const Program& program) const {
  const int64_t cold_runs = config().assemble_after.get();
  if (cold_runs < 0) {
    return nullptr;
  }
  State& state = *state_;
  if (!state.is_tried) {
    const int64_t num_runs = state.num_runs.fetch_add(1, std::memory_order_relaxed);
    const bool is_due = num_runs >= cold_runs;
    auto found = is_due ? assemble(program) : num_runs == 0 ? find_assembled(program) : nullptr;
    if ((found || is_due) && !state.is_tried.exchange(true)) {
      state.owner = std::move(found);
      state.assembly.store(state.owner.get(), std::memory_order_release);
    }
  }
  return state.assembly.load(std::memory_order_acquire);
}

} // namespace lazyplug::kernels
