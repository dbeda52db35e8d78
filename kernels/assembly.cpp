#include "kernels/assembly.h"

#include "common/config.h"

#ifdef LAZYPLUG_XBYAK
#include <ATen/Version.h>
#include <unistd.h>
#include <xbyak/xbyak.h>

#include <algorithm>
#include <fstream>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "common/logging.h"
#endif

namespace lazyplug::kernels {

#ifdef LAZYPLUG_XBYAK
namespace {

using Xbyak::Reg64;
using Xbyak::Ymm;

// What a register may hold: a slot's vector, one of the program's numbers, or a constant.
using Value = uint16_t;
constexpr Value kFirstNumber = kMaxSlots;
constexpr Value kZeros = kFirstNumber + 256;
constexpr Value kOnes = kZeros + 1;
constexpr Value kHalves = kZeros + 2;
constexpr Value kSigns = kZeros + 3;

// Of vroundps: inexact results are no exception; besides, how to round.
constexpr uint8_t kRoundQuietly = 8;

// Predicates of vcmpps.
enum Compare : uint8_t { kEq = 0, kLt = 1, kLe = 2, kUnordered = 3, kNe = 4, kGe = 13, kGt = 14 };

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

// The constants that an instruction needs besides its inputs.
std::vector<Value> constants_of(Opcode opcode) {
  switch (opcode) {
    case Opcode::kNeg:
    case Opcode::kAbs:
      return {kSigns};
    case Opcode::kLerp:
      return {kSigns, kHalves, kOnes};
    case Opcode::kRelu:
    case Opcode::kLeakyRelu:
    case Opcode::kLeakyReluBackward:
    case Opcode::kWhere:
    case Opcode::kZero:
      return {kZeros};
    case Opcode::kNot:
      return {kZeros, kOnes};
    case Opcode::kReciprocal:
    case Opcode::kRsqrt:
    case Opcode::kInverseSquare:
    case Opcode::kSigmoidBackward:
    case Opcode::kTanhBackward:
    case Opcode::kEqual:
    case Opcode::kNotEqual:
    case Opcode::kLess:
    case Opcode::kLessEqual:
    case Opcode::kGreater:
    case Opcode::kGreaterEqual:
    case Opcode::kOne:
      return {kOnes};
    default:
      return {};
  }
}

// In the order of operands: inputs, numbers, constants.
std::vector<Value> values_read(const Instruction& instruction) {
  std::vector<Value> values(instruction.inputs, instruction.inputs + num_inputs(instruction.opcode));
  if (takes_number(instruction.opcode)) {
    values.push_back(kFirstNumber + instruction.number);
  }
  if (traits(instruction.opcode).num_numbers > 1) {
    values.push_back(kFirstNumber + instruction.second_number);
  }
  const auto constants = constants_of(instruction.opcode);
  values.insert(values.end(), constants.begin(), constants.end());
  return values;
}

bool reads(const Instruction& instruction, Value value) {
  const auto values = values_read(instruction);
  return std::find(values.begin(), values.end(), value) != values.end();
}

// Writes the loop of one run. Registers are given out while instructions are written: who is read again last gives way.
class RunWriter {
 public:
  RunWriter(Xbyak::CodeGenerator& code, const Program& program, size_t begin, size_t end)
      : code_(code), program_(program), begin_(begin), end_(end) {}

  void write() {
    choose_pointers();
    for (size_t i = 0; i < kNumPointers; ++i) {
      if (is_saved(i)) {
        code_.push(pointer(i));
      }
    }
    code_.push(scratch());
    for (size_t i = 0; i < pointed_.size(); ++i) {
      code_.mov(pointer(i), code_.ptr[slots() + 8 * pointed_[i]]);
    }
    code_.xor_(offset(), offset());
    Xbyak::Label loop;
    code_.L(loop);
    for (size_t i = begin_; i < end_; ++i) {
      write_instruction(i);
    }
    code_.add(offset(), Assembly::kLanes * sizeof(float));
    code_.cmp(offset(), num_bytes());
    code_.jb(loop, Xbyak::CodeGenerator::T_NEAR);
    code_.vzeroupper();
    code_.pop(scratch());
    for (size_t i = kNumPointers; i-- > 0;) {
      if (is_saved(i)) {
        code_.pop(pointer(i));
      }
    }
    code_.ret();
    write_constants();
  }

 private:
  static constexpr size_t kNumRegisters = 16;
  static constexpr size_t kNumPointers = 10;
  static constexpr size_t kNever = SIZE_MAX;

  // Of the calling convention: the arguments, registers that a function may use, and those that it must restore.
  Reg64 num_bytes() const {
    return code_.rdi;
  }
  Reg64 slots() const {
    return code_.rsi;
  }
  Reg64 numbers() const {
    return code_.rdx;
  }
  Reg64 offset() const {
    return code_.rax;
  }
  Reg64 scratch() const {
    return code_.r15;
  }
  Reg64 pointer(size_t index) const {
    const Reg64 all[kNumPointers] =
        {code_.rcx, code_.r8, code_.r9, code_.r10, code_.r11, code_.rbx, code_.rbp, code_.r12, code_.r13, code_.r14};
    return all[index];
  }
  bool is_saved(size_t index) const {
    return index >= 5 && index < pointed_.size();
  }

  // The first slots whose memory is needed have their pointers in registers.
  void choose_pointers() {
    for (size_t i = begin_; i < end_; ++i) {
      const Instruction& instruction = program_.instructions[i];
      for (size_t input = 0; input < num_inputs(instruction.opcode); ++input) {
        if (!is_made_before(instruction.inputs[input], i)) {
          choose_pointer(instruction.inputs[input]);
        }
      }
      if (is_stored(i)) {
        choose_pointer(instruction.out);
      }
    }
  }
  void choose_pointer(Slot slot) {
    const bool is_new = std::find(pointed_.begin(), pointed_.end(), slot) == pointed_.end();
    if (is_new && pointed_.size() < kNumPointers) {
      pointed_.push_back(slot);
    }
  }

  bool is_made_before(Slot slot, size_t place) const {
    return std::any_of(at(begin_), at(place), [&](const Instruction& earlier) { return earlier.out == slot; });
  }

  // Whether somebody needs the memory of what the instruction makes.
  bool is_stored(size_t place) const {
    const Slot slot = program_.instructions[place].out;
    for (size_t i = place + 1; i < program_.instructions.size(); ++i) {
      if (i >= end_ && reads(program_.instructions[i], slot)) {
        return true;
      }
      if (program_.instructions[i].out == slot) {
        return false;
      }
    }
    return slot < program_.num_memory;
  }

  size_t next_use(Value value, size_t after) const {
    for (size_t i = after; i < end_; ++i) {
      if (reads(program_.instructions[i], value)) {
        return i;
      }
      if (program_.instructions[i].out == value) {
        return kNever;
      }
    }
    return kNever;
  }

  std::vector<Instruction>::const_iterator at(size_t place) const {
    return program_.instructions.begin() + static_cast<std::ptrdiff_t>(place);
  }

  Xbyak::Address memory_of(Slot slot) {
    const auto found = std::find(pointed_.begin(), pointed_.end(), slot);
    if (found != pointed_.end()) {
      return code_.ptr[pointer(static_cast<size_t>(found - pointed_.begin())) + offset()];
    }
    code_.mov(scratch(), code_.ptr[slots() + 8 * slot]);
    return code_.ptr[scratch() + offset()];
  }

  // Registers.
  struct Register {
    std::optional<Value> value;
    bool is_pinned = false;  // by the instruction that is being written
    bool is_unsaved = false; // a slot's only copy
  };

  Ymm ymm(size_t index) const {
    return Ymm(static_cast<int>(index));
  }

  std::optional<size_t> find(Value value) const {
    const auto found = std::find_if(std::begin(registers_), std::end(registers_), [&](const Register& each) {
      return each.value == value;
    });
    return found == std::end(registers_) ? std::nullopt : std::optional<size_t>(found - std::begin(registers_));
  }

  // A pinned one that holds nothing.
  size_t take() {
    size_t chosen = kNumRegisters;
    size_t latest = 0;
    for (size_t i = 0; i < kNumRegisters; ++i) {
      if (registers_[i].is_pinned) {
        continue;
      }
      const size_t use = registers_[i].value ? next_use(*registers_[i].value, place_) : kNever;
      if (chosen == kNumRegisters || use > latest) {
        chosen = i;
        latest = use;
      }
    }
    Register& result = registers_[chosen];
    if (result.value && result.is_unsaved && latest != kNever) {
      code_.vmovups(memory_of(static_cast<Slot>(*result.value)), ymm(chosen));
    }
    result = {std::nullopt, true, false};
    return chosen;
  }
  Ymm temporary() {
    return ymm(take());
  }

  Ymm get(Value value) {
    auto place = find(value);
    if (!place) {
      place = take();
      registers_[*place].value = value;
      load(value, ymm(*place));
    }
    registers_[*place].is_pinned = true;
    return ymm(*place);
  }

  void load(Value value, const Ymm& to) {
    if (value < kFirstNumber) {
      code_.vmovups(to, memory_of(static_cast<Slot>(value)));
    } else if (value < kZeros) {
      code_.vbroadcastss(to, code_.ptr[numbers() + sizeof(float) * (value - kFirstNumber)]);
    } else if (value == kZeros) {
      code_.vxorps(to, to, to);
    } else {
      code_.vbroadcastss(to, code_.ptr[code_.rip + constants_[value - kOnes]]);
    }
  }

  void write_constants() {
    code_.align(4);
    for (const uint32_t bits : {0x3F800000U, 0x3F000000U, 0x80000000U}) { // kOnes, kHalves, kSigns
      code_.L(constants_[next_constant_++]);
      code_.dd(bits);
    }
  }

  void write_instruction(size_t place) {
    place_ = place;
    const Instruction& instruction = program_.instructions[place];
    std::vector<Ymm> operands;
    for (const Value value : values_read(instruction)) {
      operands.push_back(get(value));
    }
    const size_t result = take();
    compute(instruction.opcode, ymm(result), operands);
    keep(result, instruction.out);
    if (is_stored(place)) {
      code_.vmovups(memory_of(instruction.out), ymm(result));
      registers_[result].is_unsaved = false;
    }
    for (Register& each : registers_) {
      each.is_pinned = false;
      if (each.value && next_use(*each.value, place + 1) == kNever) {
        each = {};
      }
    }
  }

  void keep(size_t result, Slot slot) {
    if (const auto before = find(slot)) {
      registers_[*before] = {};
    }
    registers_[result] = {slot, true, true};
  }

  // operands: see values_read(). Computes as kernels/tile_loops.inc.cpp does.
  void compute(Opcode opcode, const Ymm& out, const std::vector<Ymm>& operands) {
    const auto operand = [&](size_t i) { return i < operands.size() ? operands[i] : out; };
    const Ymm a = operand(0);
    const Ymm b = operand(1);
    const Ymm c = operand(2);
    const Ymm d = operand(3);
    switch (opcode) {
      case Opcode::kCopy:
      case Opcode::kNumber:
      case Opcode::kZero:
      case Opcode::kOne:
        return code_.vmovaps(out, a);
      case Opcode::kNeg:
        return code_.vxorps(out, a, b);
      case Opcode::kAbs:
        return code_.vandnps(out, b, a);
      case Opcode::kSqrtExact:
        return code_.vsqrtps(out, a);
      case Opcode::kReciprocal:
        return code_.vdivps(out, b, a);
      case Opcode::kAddNumber:
        return code_.vaddps(out, a, b);
      case Opcode::kSubNumber:
        return code_.vsubps(out, a, b);
      case Opcode::kMulNumber:
      case Opcode::kMul:
        return code_.vmulps(out, a, b);
      case Opcode::kDivNumber:
      case Opcode::kDiv:
        return code_.vdivps(out, a, b);
      case Opcode::kAdd:
        code_.vmovaps(out, a);
        return code_.vfmadd231ps(out, b, c);
      case Opcode::kSub:
        code_.vmovaps(out, a);
        return code_.vfnmadd231ps(out, b, c);
      case Opcode::kAddcmul: {
        const Ymm product = temporary();
        code_.vmulps(product, d, b);
        code_.vmovaps(out, a);
        return code_.vfmadd231ps(out, product, c);
      }
      case Opcode::kMulAdd:
        code_.vmovaps(out, c);
        return code_.vfmadd231ps(out, a, b);
      case Opcode::kAddcdiv:
        code_.vmulps(out, d, b);
        code_.vdivps(out, out, c);
        return code_.vaddps(out, a, out);
      case Opcode::kLerp:
        return compute_lerp(out, operands);
      case Opcode::kMaximum:
        code_.vmaxps(out, a, b);
        return unless_nan(out, a);
      case Opcode::kMinimum:
        code_.vminps(out, a, b);
        return unless_nan(out, a);
      case Opcode::kClampMin:
        code_.vmaxps(out, b, a);
        return unless_nan(out, b);
      case Opcode::kClampMax:
        code_.vminps(out, b, a);
        return unless_nan(out, b);
      case Opcode::kClamp:
        code_.vmaxps(out, b, a);
        code_.vminps(out, c, out);
        unless_nan(out, c);
        return unless_nan(out, b);
      case Opcode::kRelu:
        return code_.vmaxps(out, b, a);
      case Opcode::kLeakyRelu:
        return compute_leaky(out, a, a, b, c);
      case Opcode::kLeakyReluBackward:
        return compute_leaky(out, a, b, c, d);
      case Opcode::kFloor:
        return code_.vroundps(out, a, kRoundQuietly | 1);
      case Opcode::kCeil:
        return code_.vroundps(out, a, kRoundQuietly | 2);
      case Opcode::kRound:
        return code_.vroundps(out, a, kRoundQuietly);
      case Opcode::kTrunc:
        return code_.vroundps(out, a, kRoundQuietly | 3);
      case Opcode::kNot:
        return compare(out, operands, kEq);
      case Opcode::kRsqrt:
        code_.vsqrtps(out, a);
        return code_.vdivps(out, b, out);
      case Opcode::kSquare:
        return code_.vmulps(out, a, a);
      case Opcode::kCube:
        code_.vmulps(out, a, a);
        return code_.vmulps(out, out, a);
      case Opcode::kInverseSquare:
        code_.vmulps(out, a, a);
        return code_.vdivps(out, b, out);
      case Opcode::kSigmoidBackward:
        code_.vsubps(out, c, b);
        code_.vmulps(out, a, out);
        return code_.vmulps(out, out, b);
      case Opcode::kTanhBackward:
        code_.vmovaps(out, c);
        code_.vfnmadd231ps(out, b, b);
        return code_.vmulps(out, a, out);
      case Opcode::kThresholdBackward:
        code_.vcmpps(out, b, c, kLe);
        return code_.vandnps(out, out, a);
      case Opcode::kEqual:
        return compare(out, operands, kEq);
      case Opcode::kNotEqual:
        return compare(out, operands, kNe);
      case Opcode::kLess:
        return compare(out, operands, kLt);
      case Opcode::kLessEqual:
        return compare(out, operands, kLe);
      case Opcode::kGreater:
        return compare(out, operands, kGt);
      case Opcode::kGreaterEqual:
        return compare(out, operands, kGe);
      case Opcode::kWhere:
        code_.vcmpps(out, a, d, kNe);
        return code_.vblendvps(out, c, b, out);
      default:
        TORCH_INTERNAL_ASSERT(false, "no machine code for ", traits(opcode).name);
    }
  }

  // The bound or operand itself, if that is NaN.
  void unless_nan(const Ymm& out, const Ymm& value) {
    const Ymm is_nan = temporary();
    code_.vcmpps(is_nan, value, value, kUnordered);
    code_.vblendvps(out, out, value, is_nan);
  }

  void compare(const Ymm& out, const std::vector<Ymm>& operands, Compare predicate) {
    code_.vcmpps(out, operands[0], operands[1], predicate);
    code_.vandps(out, out, operands[2]);
  }

  // x where `argument` is positive, else x * slope.
  void compute_leaky(const Ymm& out, const Ymm& x, const Ymm& argument, const Ymm& slope, const Ymm& zeros) {
    const Ymm product = temporary();
    code_.vmulps(product, x, slope);
    code_.vcmpps(out, argument, zeros, kGt);
    code_.vblendvps(out, product, x, out);
  }

  void compute_lerp(const Ymm& out, const std::vector<Ymm>& operands) {
    const Ymm a = operands[0];
    const Ymm b = operands[1];
    const Ymm weight = operands[2];
    const Ymm is_small = temporary();
    const Ymm factor = temporary();
    code_.vandnps(is_small, operands[3], weight); // of its absolute value
    code_.vcmpps(is_small, is_small, operands[4], kLt);
    code_.vsubps(factor, weight, operands[5]);
    code_.vblendvps(factor, factor, weight, is_small);
    code_.vblendvps(out, b, a, is_small);
    code_.vsubps(is_small, b, a); // the difference
    code_.vfmadd231ps(out, factor, is_small);
  }

  Xbyak::CodeGenerator& code_;
  const Program& program_;
  const size_t begin_;
  const size_t end_;
  std::vector<Slot> pointed_;
  Register registers_[kNumRegisters];
  size_t place_ = 0; // of the instruction that is being written
  Xbyak::Label constants_[3];
  size_t next_constant_ = 0;
};

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

class WrittenAssembly : public Assembly {
 public:
  WrittenAssembly(const Program& program, std::vector<Run> runs)
      : code_(kMaxBytes, Xbyak::DontSetProtectRWE), runs_(std::move(runs)) {
    std::vector<size_t> starts;
    for (const Run& run : runs_) {
      code_.align(32);
      starts.push_back(code_.getSize());
      RunWriter(code_, program, run.begin, run.end).write();
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
  size_t num_bytes() const {
    return code_.getSize();
  }

 private:
  static constexpr size_t kMaxBytes = 16 * 1024;

  Xbyak::CodeGenerator code_;
  std::vector<Run> runs_;
};

// As `perf` reads it: address, size, name.
void tell_perf(const WrittenAssembly& assembly, const std::string& program) {
  std::ofstream map("/tmp/perf-" + std::to_string(getpid()) + ".map", std::ios::app);
  map << std::hex << reinterpret_cast<uintptr_t>(assembly.runs().front().code) << ' ' << assembly.num_bytes()
      << " lazyplug: " << program << '\n';
}

bool has_avx2() {
  static const bool result = [] {
    const std::string capability = at::get_cpu_capability();
    return capability == "AVX2" || capability == "AVX512";
  }();
  return result;
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
  if (program.dtype != c10::ScalarType::Float || !has_avx2()) {
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
