// Writes machine code for assembly.cpp, which alone includes this, where the build has found Xbyak.
#pragma once

#include <xbyak/xbyak.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kernels/instruction_writer.h"
#include "kernels/register_needs.h"
#include "kernels/row_sums_writer.h"
#include "kernels/tile_program.h"

namespace lazyplug::kernels {
namespace {

using Xbyak::Reg64;
// Writes the loop of one run. Registers are given out while instructions are written: who is read again last gives way.
// Where there are enough, each instruction is written for several vectors, one after the other: what is computed of one
// waits for itself, and not for the others.
//
// Of a run that is about rows, that is the loop of one row within another one. Columns, what is read of a row as one
// element, and what is made of it, have registers of their own, from the last one down. Such a run has as many vectors
// as a row's partial sums, and writes those together for which there are registers.
class RunWriter {
 public:
  RunWriter(Xbyak::CodeGenerator& code, const Program& program, size_t begin, size_t end, int64_t num_copies)
      : code_(code), program_(program), begin_(begin), end_(end), num_copies_(num_copies) {
    is_of_rows_ = std::any_of(at(begin), at(end), [](const Instruction& each) { return is_about_rows(each.opcode); });
  }

  void write() {
    choose_pointers();
    choose_registers_of_rows();
    choose_vectors_together();
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
    is_of_rows_ ? write_loop_of_rows() : write_loop(num_bytes());
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

  // Slots whose memory it reads or writes.
  const std::set<Slot>& slots_in_memory() const {
    return slots_in_memory_;
  }

 private:
  static constexpr size_t kMaxRegisters = 32;
  static constexpr size_t kNumPointers = 9;
  static constexpr size_t kNumPointersOfRows = kNumPointers - 3;
  static constexpr size_t kNever = SIZE_MAX;
  static constexpr int kTemporary = 0; // a register, at a row's beginning and end

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
        {code_.r8, code_.r9, code_.r10, code_.r11, code_.rbx, code_.rbp, code_.r12, code_.r13, code_.r14};
    return all[index];
  }
  bool is_saved(size_t index) const {
    return index >= 4 && (index < pointed_.size() || (is_of_rows_ && index >= kNumPointersOfRows));
  }
  // Of runs that are about rows: the last argument, and three that others may use as pointers.
  Reg64 row_bytes() const {
    return code_.rcx;
  }
  Reg64 place_of_row() const { // of what is one element for each
    return pointer(kNumPointersOfRows);
  }
  Reg64 end_of_row() const {
    return pointer(kNumPointersOfRows + 1);
  }
  Reg64 end_of_part() const {
    return pointer(kNumPointersOfRows + 2);
  }

  void write_loop(const Reg64& end) {
    Xbyak::Label loop;
    code_.L(loop);
    for_vectors_together([&] { write_body(end_); });
    if (reads_columns_) {
      load(kThirtyTwo, vector(kTemporary));
    }
    for (size_t i = num_registers_; i < target_.num_registers(); ++i) {
      if (registers_[i].value == kColumns) {
        code_.vaddps(vector(i), vector(i), vector(kTemporary));
      }
    }
    code_.add(offset(), static_cast<uint32_t>(target_.vector_bytes() * num_copies_));
    code_.cmp(offset(), end);
    code_.jb(loop, Xbyak::CodeGenerator::T_NEAR);
  }

  template <typename Write>
  void for_vectors_together(const Write& write) {
    for (first_copy_ = 0; first_copy_ < num_copies_; first_copy_ += num_together_) {
      write();
    }
  }
  template <typename Write>
  void for_each_together(const Write& write) {
    for (copy_ = first_copy_; copy_ < first_copy_ + num_together_; ++copy_) {
      write();
    }
  }

  // What is made of the vectors that are written together, by the instructions before `end`.
  void write_body(size_t end) {
    for (place_ = begin_; place_ < end; ++place_) {
      for_each_together([&] { write_instruction(); });
      release();
    }
  }

  // Rows.
  struct RowSum {
    size_t place; // of the instruction
    RowSumWriter writer;
  };

  void choose_registers_of_rows() {
    for (size_t i = begin_; i < end_; ++i) {
      const Instruction& instruction = program_.instructions[i];
      for (const Value value : values_read(instruction)) {
        if (value < kFirstOfRow || find(value)) {
          continue;
        }
        reads_columns_ |= value == kColumns;
        for (int64_t copy = value == kColumns ? num_copies_ : 1; copy-- > 0;) {
          registers_[--num_registers_] = {value, copy, true, false};
        }
      }
      if (reduces_rows(instruction.opcode)) {
        num_registers_ -= RowSumWriter::num_registers(instruction.opcode);
        row_sums_.push_back({i, RowSumWriter(code_, instruction.opcode, static_cast<int>(num_registers_))});
      }
    }
  }

  void choose_vectors_together() {
    num_together_ = num_copies_;
    if (!is_of_rows_) {
      return;
    }
    const int64_t most = most_alive(program_, begin_, end_);
    int64_t others = kOtherRegisters;
    std::for_each(at(begin_), at(end_), [&](const Instruction& each) {
      others = std::max(others, registers_of(each));
    });
    while (num_together_ > 1 && !fit(num_together_, most, static_cast<int64_t>(num_registers_), others)) {
      num_together_ /= 2;
    }
  }

  void write_loop_of_rows() {
    const bool is_in_parts =
        std::any_of(row_sums_.begin(), row_sums_.end(), [](const RowSum& each) { return each.writer.is_in_parts(); });
    code_.xor_(place_of_row(), place_of_row());
    Xbyak::Label next_row;
    code_.L(next_row);
    begin_row();
    code_.lea(end_of_row(), code_.ptr[offset() + row_bytes()]);
    if (is_in_parts) {
      Xbyak::Label next_part;
      code_.L(next_part);
      code_.lea(end_of_part(), code_.ptr[offset() + RowSumWriter::kBytesOfPart]);
      code_.cmp(end_of_part(), end_of_row());
      code_.cmova(end_of_part(), end_of_row());
      write_loop(end_of_part());
      for (const RowSum& sum : row_sums_) {
        sum.writer.end_part();
      }
      code_.cmp(offset(), end_of_row());
      code_.jb(next_part, Xbyak::CodeGenerator::T_NEAR);
    } else {
      write_loop(end_of_row());
    }
    end_row();
    code_.add(place_of_row(), sizeof(float));
    code_.cmp(offset(), num_bytes());
    code_.jb(next_row, Xbyak::CodeGenerator::T_NEAR);
  }

  Xbyak::Address one_of_row(Slot slot) {
    slots_in_memory_.insert(slot);
    code_.mov(scratch(), code_.ptr[slots() + 8 * slot]);
    return code_.ptr[scratch() + place_of_row()];
  }

  void begin_row() {
    for (size_t i = num_registers_; i < target_.num_registers(); ++i) {
      if (registers_[i].value == kColumns) {
        const auto first = static_cast<int>(registers_[i].copy * target_.vector_bytes());
        code_.vmovups(vector(i), code_.ptr[code_.rip + columns_ + first]);
      } else if (registers_[i].value) {
        code_.vbroadcastss(vector(i), one_of_row(static_cast<Slot>(*registers_[i].value - kFirstOfRow)));
      }
    }
    for (const RowSum& sum : row_sums_) {
      sum.writer.begin();
    }
    for (const RowSum& sum : row_sums_) {
      if (program_.instructions[sum.place].opcode == Opcode::kRowCenter) {
        write_guess(sum);
      }
    }
  }

  // The mean of a row's first elements, for which nothing is stored, and nothing added to other sums.
  void write_guess(const RowSum& sum) {
    stores_ = false;
    for_vectors_together([&] {
      write_body(sum.place);
      for_each_together([&] {
        sum.writer.add_first(get(program_.instructions[sum.place].inputs[0]), copy_);
        unpin();
      });
      std::fill_n(registers_, num_registers_, Register());
    });
    stores_ = true;
    sum.writer.guess(code_.ptr[code_.rip + constants_[kThirtySecond - kOnes]], kTemporary);
  }

  void end_row() {
    for (const RowSum& sum : row_sums_) {
      const Instruction& instruction = program_.instructions[sum.place];
      sum.writer.end(
          {row_bytes(), scratch()},
          code_.ptr[numbers() + sizeof(float) * instruction.number],
          code_.ptr[code_.rip + constants_[0]],
          kTemporary);
      code_.vmovss(one_of_row(instruction.out), Xbyak::Xmm(kTemporary));
    }
  }

  // The first slots whose memory is needed have their pointers in registers.
  void choose_pointers() {
    for (size_t i = begin_; i < end_; ++i) {
      const Instruction& instruction = program_.instructions[i];
      for (size_t input = 0; input < num_inputs(instruction.opcode); ++input) {
        if (!reads_one(instruction.opcode, input) && !is_made_before(instruction.inputs[input], i)) {
          choose_pointer(instruction.inputs[input]);
        }
      }
      if (!reduces_rows(instruction.opcode) && is_stored(i)) {
        choose_pointer(instruction.out);
      }
    }
  }
  void choose_pointer(Slot slot) {
    const bool is_new = std::find(pointed_.begin(), pointed_.end(), slot) == pointed_.end();
    if (is_new && pointed_.size() < (is_of_rows_ ? kNumPointersOfRows : kNumPointers)) {
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

  Xbyak::Address memory_of(Slot slot, int64_t copy) {
    slots_in_memory_.insert(slot);
    const auto place = static_cast<int>(copy * target_.vector_bytes());
    const auto found = std::find(pointed_.begin(), pointed_.end(), slot);
    if (found != pointed_.end()) {
      return code_.ptr[pointer(static_cast<size_t>(found - pointed_.begin())) + offset() + place];
    }
    code_.mov(scratch(), code_.ptr[slots() + 8 * slot]);
    return code_.ptr[scratch() + offset() + place];
  }

  // Registers.
  struct Register {
    std::optional<Value> value;
    int64_t copy = 0;        // of a slot
    bool is_pinned = false;  // by the instruction that is being written
    bool is_unsaved = false; // a slot's only copy
  };

  Vector vector(size_t index) const {
    return target_.vector(static_cast<int>(index));
  }

  std::optional<size_t> find(Value value) const {
    const auto found = std::find_if(std::begin(registers_), std::end(registers_), [&](const Register& each) {
      return each.value == value && ((value >= kFirstNumber && value != kColumns) || each.copy == copy_);
    });
    return found == std::end(registers_) ? std::nullopt : std::optional<size_t>(found - std::begin(registers_));
  }

  // A pinned one that holds nothing.
  size_t take() {
    size_t chosen = num_registers_;
    size_t latest = 0;
    for (size_t i = 0; i < num_registers_; ++i) {
      const Register& each = registers_[i];
      if (each.is_pinned) {
        continue;
      }
      // What the instruction has made of earlier vectors is read by the next ones.
      const bool is_done = each.value < kFirstNumber && each.copy < copy_;
      const size_t use = each.value ? next_use(*each.value, is_done ? place_ + 1 : place_) : kNever;
      if (!stores_ && each.is_unsaved && use != kNever) {
        continue;
      }
      if (chosen == num_registers_ || use > latest) {
        chosen = i;
        latest = use;
      }
    }
    TORCH_INTERNAL_ASSERT(chosen < num_registers_, "an instruction that needs too many registers");
    Register& result = registers_[chosen];
    if (result.value && result.is_unsaved && latest != kNever) {
      code_.vmovups(memory_of(static_cast<Slot>(*result.value), result.copy), vector(chosen));
    }
    result = {std::nullopt, 0, true, false};
    return chosen;
  }
  Vector temporary() {
    return vector(take());
  }

  Vector get(Value value) {
    auto place = find(value);
    if (!place) {
      place = take();
      registers_[*place].value = value;
      registers_[*place].copy = copy_;
      load(value, vector(*place));
    }
    registers_[*place].is_pinned = true;
    return vector(*place);
  }

  void load(Value value, const Vector& to) {
    if (value < kFirstNumber) {
      code_.vmovups(to, memory_of(static_cast<Slot>(value), copy_));
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
    for (size_t i = 0; i < std::size(kConstants); ++i) {
      code_.L(constants_[i]);
      code_.dd(kConstants[i]);
    }
    code_.L(columns_);
    for (int64_t column = 0; is_of_rows_ && column < kRowLanes; ++column) {
      code_.dd(std::bit_cast<uint32_t>(static_cast<float>(column)));
    }
  }

  void write_instruction() {
    const Instruction& instruction = program_.instructions[place_];
    if (!stores_ && reduces_rows(instruction.opcode)) {
      return;
    }
    std::vector<Vector> operands;
    for (const Value value : values_read(instruction)) {
      operands.push_back(get(value));
    }
    if (reduces_rows(instruction.opcode)) {
      const auto sum =
          std::find_if(row_sums_.begin(), row_sums_.end(), [&](const RowSum& each) { return each.place == place_; });
      sum->writer.add(operands, copy_, temporary());
    } else {
      const size_t result = take();
      instructions_.write(instruction.opcode, vector(result), operands);
      keep(result, instruction.out);
      if (stores_ && is_stored(place_)) {
        code_.vmovups(memory_of(instruction.out, copy_), vector(result));
        registers_[result].is_unsaved = false;
      }
    }
    unpin();
  }

  void unpin() {
    for (size_t i = 0; i < num_registers_; ++i) {
      registers_[i].is_pinned = false;
    }
  }

  // What nobody reads any more.
  void release() {
    for (size_t i = 0; i < num_registers_; ++i) {
      Register& each = registers_[i];
      if (each.value && next_use(*each.value, place_ + 1) == kNever) {
        each = {};
      }
    }
  }

  void keep(size_t result, Slot slot) {
    if (const auto before = find(slot)) {
      registers_[*before] = {};
    }
    registers_[result] = {slot, copy_, true, true};
  }

  Xbyak::CodeGenerator& code_;
  const Target& target_ = Target::here();
  const InstructionWriter instructions_{code_, [this] { return temporary(); }};
  const Program& program_;
  const size_t begin_;
  const size_t end_;
  const int64_t num_copies_; // how many vectors a round of the loop computes
  int64_t num_together_ = 1; // of those
  bool is_of_rows_ = false;
  bool stores_ = true;                             // and adds up
  size_t num_registers_ = target_.num_registers(); // which are given out
  bool reads_columns_ = false;
  std::vector<RowSum> row_sums_;
  std::vector<Slot> pointed_;
  std::set<Slot> slots_in_memory_;
  Register registers_[kMaxRegisters];
  // The instruction that is being written, and for which of the vectors.
  size_t place_ = 0;
  int64_t first_copy_ = 0; // of those together
  int64_t copy_ = 0;
  Xbyak::Label constants_[std::size(kConstants)];
  Xbyak::Label columns_;
};

} // namespace
} // namespace lazyplug::kernels
