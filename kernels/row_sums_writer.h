// What machine code makes of a row as one element, for run_writer.h. Rows are of whole vectors of kRowLanes elements.
#pragma once

#include <xbyak/xbyak.h>

#include <cstdint>
#include <vector>

#include "kernels/instruction_writer.h"
#include "kernels/opcode.h"

namespace lazyplug::kernels {
namespace {

// Rows are gone through so many elements at a time, two vectors of AVX-512 or four of AVX2, in which there are the
// partial sums that kernels/cascade_sum.h and kernels/row_functions.h have of a row.
constexpr int64_t kRowLanes = 32;

// Writes one sum: in registers from a row's beginning to its end, in the order of the loops.
class RowSumWriter {
 public:
  // Of a cascade, where partial sums start anew. The second level of sums has room for 16 of these.
  static constexpr int kBytesOfPart = 16 * kRowLanes * sizeof(float);
  static constexpr int64_t kMostBytes = 16 * kBytesOfPart;

  static int num_vectors() {
    return static_cast<int>(kRowLanes * static_cast<int64_t>(sizeof(float)) / Target::here().vector_bytes());
  }
  // It has these registers from `first` on: the partial sums; then those of a cascade's second level, or a guess.
  static int num_registers(Opcode opcode) {
    return is_cascade(opcode) ? 2 * num_vectors() : num_vectors() + (opcode == Opcode::kRowCenter ? 1 : 0);
  }
  RowSumWriter(Xbyak::CodeGenerator& code, Opcode opcode, int first) : code_(code), opcode_(opcode), first_(first) {}

  bool is_in_parts() const {
    return is_cascade(opcode_);
  }

  void begin() const {
    for (int i = 0; i < num_registers(opcode_); ++i) {
      clear(i);
    }
  }

  // One of the vectors of what the row is. `operands` are the instruction's, whose element for the row is in each lane.
  void add(const std::vector<Vector>& operands, int64_t vector, const Vector& temporary) const {
    const Vector sum = own(vector);
    switch (opcode_) {
      case Opcode::kRowCenter:
        code_.vsubps(temporary, operands[0], guess_register());
        return code_.vaddps(sum, sum, temporary);
      case Opcode::kRowRstd:
        code_.vsubps(temporary, operands[0], operands[1]);
        return code_.vfmadd231ps(sum, temporary, temporary);
      default:
        return code_.vaddps(sum, sum, operands[0]);
    }
  }

  // Of kRowCenter, before the others: the first elements, and what is subtracted from all because of them.
  void add_first(const Vector& elements, int64_t vector) const {
    const Vector sum = own(vector);
    code_.vaddps(sum, sum, elements);
  }
  void guess(const Xbyak::Address& one_by_their_number, int temporary) const {
    const Xbyak::Xmm sum(temporary);
    fold(temporary);
    code_.vmulss(sum, sum, one_by_their_number);
    code_.vbroadcastss(guess_register(), sum);
    for (int i = 0; i < num_vectors_; ++i) {
      clear(i);
    }
  }

  void end_part() const {
    for (int i = 0; i < num_vectors_ && is_in_parts(); ++i) {
      const Vector above = own(num_vectors_ + i);
      code_.vaddps(above, above, own(i));
      clear(i);
    }
  }

  struct Length {
    Xbyak::Reg64 bytes;
    Xbyak::Reg64 scratch;
  };

  // What is made of the row, in the first lane of `temporary`; the next two registers are written, too.
  void end(const Length& row, const Xbyak::Address& number, const Xbyak::Address& one, int temporary) const {
    const Xbyak::Xmm result(temporary);
    const Xbyak::Xmm other(temporary + 1);
    is_in_parts() ? fold_cascade(temporary) : fold(temporary);
    if (opcode_ == Opcode::kRowSum) {
      return;
    }
    code_.mov(row.scratch, row.bytes);
    code_.shr(row.scratch, 2);
    code_.vcvtsi2ss(other, other, row.scratch);
    code_.vdivss(result, result, other);
    if (opcode_ == Opcode::kRowCenter) {
      code_.vaddss(result, Xbyak::Xmm(guess_register().getIdx()), result);
    } else if (opcode_ == Opcode::kRowRstd) {
      code_.vaddss(result, result, number);
      code_.vsqrtss(result, result, result);
      code_.vmovss(other, one);
      code_.vdivss(result, other, result);
    }
  }

 private:
  static bool is_cascade(Opcode opcode) {
    return opcode == Opcode::kRowSum || opcode == Opcode::kRowMean;
  }

  Vector own(int64_t index) const {
    return Target::here().vector(first_ + static_cast<int>(index));
  }
  Vector guess_register() const {
    return own(num_vectors_);
  }
  void clear(int index) const {
    code_.vxorps(own(index), own(index), own(index));
  }

  // By halves, as kernels/row_functions.h folds.
  void fold(int temporary) const {
    const Xbyak::Ymm low(temporary);
    const Xbyak::Ymm high(temporary + 1);
    const Xbyak::Xmm sum(temporary);
    const Xbyak::Xmm other(temporary + 1);
    if (Target::here().has_avx512) {
      code_.vaddps(Xbyak::Zmm(temporary), own(0), own(1));
      code_.vextractf64x4(high, Xbyak::Zmm(temporary), 1);
    } else {
      code_.vaddps(low, own(0), own(2));
      code_.vaddps(high, own(1), own(3));
    }
    code_.vaddps(low, low, high);
    code_.vextractf128(other, low, 1);
    code_.vaddps(sum, sum, other);
    code_.vmovhlps(other, other, sum);
    code_.vaddps(sum, sum, other);
    code_.vmovshdup(other, sum);
    code_.vaddss(sum, sum, other);
  }

  // The four parts of the cascade, then their lanes, one after the other.
  void fold_cascade(int temporary) const {
    const Xbyak::Ymm parts(temporary);
    const Xbyak::Ymm part(temporary + 1);
    if (Target::here().has_avx512) {
      const Xbyak::Zmm first(own(num_vectors_).getIdx());
      const Xbyak::Zmm second(own(num_vectors_ + 1).getIdx());
      code_.vmovaps(Xbyak::Zmm(temporary), first);
      code_.vextractf64x4(part, first, 1);
      code_.vaddps(parts, parts, part);
      code_.vmovaps(Xbyak::Zmm(temporary + 1), second);
      code_.vaddps(parts, parts, part);
      code_.vextractf64x4(part, second, 1);
      code_.vaddps(parts, parts, part);
    } else {
      code_.vaddps(parts, own(num_vectors_), own(num_vectors_ + 1));
      code_.vaddps(parts, parts, own(num_vectors_ + 2));
      code_.vaddps(parts, parts, own(num_vectors_ + 3));
    }
    const Xbyak::Xmm sum(temporary);
    const Xbyak::Xmm upper(temporary + 2);
    code_.vextractf128(upper, parts, 1);
    add_upper_lanes(sum, sum, temporary + 1);
    code_.vaddss(sum, sum, upper);
    add_upper_lanes(sum, upper, temporary + 1);
  }
  void add_upper_lanes(const Xbyak::Xmm& sum, const Xbyak::Xmm& lanes, int temporary) const {
    const Xbyak::Xmm lane(temporary);
    code_.vmovshdup(lane, lanes);
    code_.vaddss(sum, sum, lane);
    code_.vmovhlps(lane, lane, lanes);
    code_.vaddss(sum, sum, lane);
    code_.vpermilps(lane, lanes, 3);
    code_.vaddss(sum, sum, lane);
  }

  Xbyak::CodeGenerator& code_;
  Opcode opcode_;
  int first_;
  int num_vectors_ = num_vectors();
};

} // namespace
} // namespace lazyplug::kernels
