#include "lowering/optimizer_programs.h"

#include <algorithm>

#include "kernels/tile_program.h"
#include "lowering/fusion/pointwise_ops.h"

namespace lazyplug {
namespace {

using kernels::Instruction;
using kernels::Opcode;
using kernels::Program;
using kernels::Slot;

class ProgramBuilder {
 public:
  ProgramBuilder(c10::ScalarType dtype, uint8_t num_memory) {
    program_.dtype = dtype;
    program_.num_memory = num_memory;
    program_.num_slots = num_memory;
  }

  Slot add_slot() {
    return program_.num_slots++;
  }
  uint8_t add_number() {
    return program_.num_numbers++;
  }
  void add(Opcode opcode, Slot out, std::initializer_list<Slot> inputs, uint8_t number = 0) {
    Instruction instruction{opcode, out};
    std::copy(inputs.begin(), inputs.end(), instruction.inputs);
    instruction.number = number;
    program_.instructions.push_back(instruction);
  }
  const Program& program() const {
    return program_;
  }

 private:
  Program program_;
};

c10::ScalarType dtype_of(const UpdateForm& form) {
  return form.is_double ? c10::ScalarType::Double : c10::ScalarType::Float;
}

// As it is for a _foreach_sqrt.
Opcode square_root(const UpdateForm& form, bool has_functions) {
  return has_functions && !form.is_double ? Opcode::kSqrtExact : Opcode::kSqrt;
}

// The gradient that the rest of a step uses.
Slot add_gradient(ProgramBuilder& program, const UpdateForm& form, Slot params, Slot grads) {
  if (!form.maximizes && !form.adds_weights) {
    return grads;
  }
  const Slot gradient = program.add_slot();
  if (form.maximizes) {
    program.add(Opcode::kNeg, gradient, {grads});
  }
  if (form.adds_weights) {
    program.add(Opcode::kAdd, gradient, {form.maximizes ? gradient : grads, params}, program.add_number());
  }
  return gradient;
}

Program adam_program(const UpdateForm& form, bool has_functions) {
  constexpr Slot kParams = 0;
  constexpr Slot kAverages = 1;
  constexpr Slot kSquares = 2;
  constexpr Slot kGrads = 3;
  ProgramBuilder program(dtype_of(form), 4);
  const Slot gradient = add_gradient(program, form, kParams, kGrads);
  if (form.decays) {
    program.add(Opcode::kMulNumber, kParams, {kParams}, program.add_number());
  }
  program.add(Opcode::kLerp, kAverages, {kAverages, gradient}, program.add_number());
  program.add(Opcode::kMulNumber, kSquares, {kSquares}, program.add_number());
  program.add(Opcode::kAddcmul, kSquares, {kSquares, gradient, gradient}, program.add_number());
  const uint8_t eps = program.add_number(); // before those that may differ from parameter to parameter
  const Slot divisor = program.add_slot();
  program.add(square_root(form, has_functions), divisor, {kSquares});
  program.add(Opcode::kDivNumber, divisor, {divisor}, program.add_number());
  program.add(Opcode::kAddNumber, divisor, {divisor}, eps);
  program.add(Opcode::kAddcdiv, kParams, {kParams, kAverages, divisor}, program.add_number());
  return program.program();
}

Program sgd_program(const UpdateForm& form, bool /*has_functions*/) {
  constexpr Slot kParams = 0;
  constexpr Slot kBuffers = 1;
  const Slot grads = form.has_momentum ? 2 : 1;
  ProgramBuilder program(dtype_of(form), grads + 1);
  Slot gradient = add_gradient(program, form, kParams, grads);
  if (form.has_momentum) {
    program.add(Opcode::kMulNumber, kBuffers, {kBuffers}, program.add_number());
    program.add(Opcode::kAdd, kBuffers, {kBuffers, gradient}, program.add_number());
    gradient = kBuffers;
  }
  program.add(Opcode::kAdd, kParams, {kParams, gradient}, program.add_number());
  return program.program();
}

Update update_of(const Program& program) {
  Update update{to_string(program), std::vector<size_t>(program.num_memory)};
  for (const Instruction& instruction : program.instructions) {
    if (instruction.out < program.num_memory) {
      ++update.num_writes[instruction.out];
    }
  }
  return update;
}

using Make = Program (*)(const UpdateForm&, bool has_functions);

// All of one optimizer, made when the first is asked for.
class Updates {
 public:
  Updates(Make make, bool has_functions) {
    for (size_t i = 0; i < kCount; ++i) {
      const auto bit = [i](size_t place) { return (i >> place & 1) != 0; };
      updates_.push_back(update_of(make({bit(0), bit(1), bit(2), bit(3), bit(4)}, has_functions)));
    }
  }
  const Update& of(const UpdateForm& form) const {
    return updates_
        [form.is_double + 2 * form.maximizes + 4 * form.adds_weights + 8 * form.decays + 16 * form.has_momentum];
  }

 private:
  static constexpr size_t kCount = 32;
  std::vector<Update> updates_;
};

template <Make kMake>
const Update& find(const UpdateForm& form) {
  static const auto* const plain = new Updates(kMake, /*has_functions=*/false);
  static const auto* const with_functions = new Updates(kMake, /*has_functions=*/true);
  return (computes_functions() ? with_functions : plain)->of(form);
}

} // namespace

const Update& adam_update(UpdateForm form) {
  return find<adam_program>(form);
}

const Update& sgd_update(UpdateForm form) {
  return find<sgd_program>(form);
}

} // namespace lazyplug
