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

// What the loops do as well.
constexpr size_t kLeast = 2; // one instruction loads and stores no less

// Where runs begin and end.
std::vector<Assembly::Run> find_runs(const Program& program) {
  std::vector<Assembly::Run> runs;
  const size_t size = program.instructions.size();
  for (size_t begin = 0; begin < size; ++begin) {
    size_t end = begin;
    while (end < size && is_cheap(program.instructions[end].opcode) && !program.instructions[end].is_for_row) {
      ++end;
    }
    if (end - begin >= kLeast) {
      runs.push_back({begin, end});
    }
    begin = end;
  }
  return runs;
}

// How many vectors are computed at a time, so that what has been made of them stays in registers.
int64_t choose_copies(const Program& program, const std::vector<Assembly::Run>& runs) {
  int64_t most = 0;
  for (const Assembly::Run& run : runs) {
    most = std::max(most, most_alive(program, run.begin, run.end));
  }
  for (const int64_t copies : {4, 2}) {
    if (fit(copies, most, static_cast<int64_t>(Target::here().num_registers()))) {
      return copies;
    }
  }
  return 1;
}

// A run that may be about rows, while it grows.
class RunOfRows {
 public:
  RunOfRows(const Program& program, size_t begin) : program_(program), begin_(begin) {}

  // Whether the instruction, the next one, belongs to it. What is made of a row is there at its end; and what is read
  // as one element for each row must not have been overwritten by the rows before.
  bool take(size_t place) {
    const Instruction& instruction = program_.instructions[place];
    if (!has_code(instruction) || !may_read(instruction) || !may_write(instruction) || !has_registers(place)) {
      return false;
    }
    read_as_one_ = ones_read_with(instruction);
    (reduces_rows(instruction.opcode) ? made_as_one_ : made_).insert(instruction.out);
    num_registers_ += new_registers(instruction);
    reads_columns_ = reads_columns_ || instruction.opcode == Opcode::kJoin;
    most_needed_ = std::max(most_needed_, registers_of(instruction));
    has_rows_ = has_rows_ || is_about_rows(instruction.opcode);
    return true;
  }

  bool has_rows() const {
    return has_rows_;
  }

 private:
  static bool has_code(const Instruction& instruction) {
    switch (instruction.opcode) {
      case Opcode::kRowSum:
      case Opcode::kRowMean:
      case Opcode::kSpread:
      case Opcode::kJoin:
      case Opcode::kRowCenter:
      case Opcode::kRowRstd:
      case Opcode::kNormalize:
        return true;
      default:
        return is_cheap(instruction.opcode) && !instruction.is_for_row;
    }
  }

  bool may_read(const Instruction& instruction) const {
    for (size_t i = 0; i < num_inputs(instruction.opcode); ++i) {
      const Slot slot = instruction.inputs[i];
      const bool is_one = reads_one(instruction.opcode, i);
      if (made_as_one_.contains(slot) || (is_one && (made_.contains(slot) || slot == instruction.out))) {
        return false;
      }
    }
    return true;
  }

  bool may_write(const Instruction& instruction) const {
    const bool is_read = read_as_one_.contains(instruction.out);
    return reduces_rows(instruction.opcode) || (!is_read && !made_as_one_.contains(instruction.out));
  }

  bool has_registers(size_t place) const {
    const Instruction& instruction = program_.instructions[place];
    const auto num_ones = static_cast<int64_t>(ones_read_with(instruction).size());
    const int64_t free =
        static_cast<int64_t>(Target::here().num_registers()) - num_registers_ - new_registers(instruction) - num_ones;
    // The first elements of a row are computed twice, and not stored.
    const bool is_kept = instruction.opcode == Opcode::kRowCenter;
    const int64_t kept = is_kept ? most_alive(program_, begin_, place) + 1 : 0;
    return kept + std::max(most_needed_, registers_of(instruction)) <= free;
  }

  std::set<Slot> ones_read_with(const Instruction& instruction) const {
    std::set<Slot> ones = read_as_one_;
    for (size_t i = 0; i < num_inputs(instruction.opcode); ++i) {
      if (reads_one(instruction.opcode, i)) {
        ones.insert(instruction.inputs[i]);
      }
    }
    return ones;
  }

  int64_t new_registers(const Instruction& instruction) const {
    return instruction.opcode == Opcode::kJoin && reads_columns_ ? 0 : registers_of_rows(instruction);
  }

  const Program& program_;
  const size_t begin_;
  std::set<Slot> read_as_one_;
  std::set<Slot> made_as_one_;
  std::set<Slot> made_;       // an element for each
  int64_t num_registers_ = 0; // of rows
  int64_t most_needed_ = 0;   // by one of the instructions
  bool reads_columns_ = false;
  bool has_rows_ = false;
};

// Where rows fill whole vectors.
std::vector<Assembly::Run> find_runs_of_rows(const Program& program) {
  std::vector<Assembly::Run> runs;
  bool are_about_rows = false;
  const size_t size = program.instructions.size();
  for (size_t begin = 0; begin < size;) {
    RunOfRows run(program, begin);
    size_t end = begin;
    while (end < size && run.take(end)) {
      ++end;
    }
    if (end - begin >= kLeast) {
      runs.push_back({begin, end, run.has_rows() ? kRowLanes : 0});
      are_about_rows = are_about_rows || run.has_rows();
    }
    begin = std::max(end, begin + 1);
  }
  return are_about_rows ? runs : std::vector<Assembly::Run>();
}

// The runs of a program: for any rows, and for those that fill whole vectors, if other ones are better there.
struct Runs {
  std::vector<Assembly::Run> of_any;
  std::vector<Assembly::Run> of_whole;
};

class WrittenAssembly : public Assembly {
 public:
  WrittenAssembly(const Program& program, Runs runs)
      : runs_(std::move(runs)), code_(num_bytes_for(program), Xbyak::DontSetProtectRWE) {
    write(program, runs_.of_any);
    slots_of_whole_ = write(program, runs_.of_whole);
    TORCH_INTERNAL_ASSERT(!code_.hasUndefinedLabel());
    code_.setProtectModeRE();
    add_slots_of_loops(program);
  }

  const std::vector<Run>& runs(int64_t row_length) const override {
    return takes_whole(row_length) ? runs_.of_whole : runs_.of_any;
  }
  // Otherwise loops compute what fills no vector.
  bool uses_memory(Slot slot, int64_t row_length) const override {
    return !takes_whole(row_length) || slots_of_whole_.contains(slot);
  }
  uintptr_t start() const {
    return reinterpret_cast<uintptr_t>(code_.getCode());
  }
  size_t num_bytes() const {
    return code_.getSize();
  }

 private:
  // More than an instruction's code, or what is around a run's; of a row some of it is written twice.
  static size_t num_bytes_for(const Program& program) {
    constexpr size_t kBytes = 512;
    constexpr size_t kMostCopies = 4;
    return kBytes * (program.instructions.size() * (program.has_rows() ? 2 : 1) * kMostCopies + 1);
  }

  bool takes_whole(int64_t row_length) const {
    return !runs_.of_whole.empty() && row_length > 0 && row_length % kRowLanes == 0 &&
           row_length * static_cast<int64_t>(sizeof(float)) < RowSumWriter::kMostBytes;
  }

  // Those of instructions that have no code for whole rows, or not for all of their elements.
  void add_slots_of_loops(const Program& program) {
    const auto has_code = [&](size_t place) {
      return std::any_of(runs_.of_whole.begin(), runs_.of_whole.end(), [&](const Run& run) {
        return run.begin <= place && place < run.end && kRowLanes % run.num_lanes == 0;
      });
    };
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& instruction = program.instructions[i];
      if (!has_code(i)) {
        slots_of_whole_.insert(instruction.out);
        slots_of_whole_.insert(instruction.inputs, instruction.inputs + num_inputs(instruction.opcode));
      }
    }
  }

  // Returns the slots whose memory the code uses.
  std::set<Slot> write(const Program& program, std::vector<Run>& runs) {
    const int64_t num_lanes = Target::here().vector_bytes() / static_cast<int64_t>(sizeof(float));
    const int64_t num_copies = choose_copies(program, runs);
    std::set<Slot> slots;
    for (Run& run : runs) {
      run.num_lanes = run.num_lanes == 0 ? num_copies * num_lanes : run.num_lanes;
      code_.align(32);
      run.code = reinterpret_cast<Code>(start() + code_.getSize());
      RunWriter writer(code_, program, run.begin, run.end, run.num_lanes / num_lanes);
      writer.write();
      slots.insert(writer.slots_in_memory().begin(), writer.slots_in_memory().end());
    }
    return slots;
  }

  Runs runs_;
  std::set<Slot> slots_of_whole_; // in memory where rows are whole
  Xbyak::CodeGenerator code_;
};

// As `perf` reads it: address, size, name.
void tell_perf(const WrittenAssembly& assembly, const std::string& program) {
  std::ofstream map("/tmp/perf-" + std::to_string(getpid()) + ".map", std::ios::app);
  map << std::hex << assembly.start() << ' ' << assembly.num_bytes() << " lazyplug: " << program << '\n';
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

  std::shared_ptr<const Assembly> find_or_write(const Program& program, Runs runs) {
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
  Runs runs{find_runs(program), find_runs_of_rows(program)};
  if (runs.of_any.empty() && runs.of_whole.empty()) {
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
