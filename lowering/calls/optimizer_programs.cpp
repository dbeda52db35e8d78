#include "lowering/calls/optimizer_programs.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <unordered_map>
#include <utility>

#include "common/fork_safe_mutex.h"
#include "kernels/tile_program.h"
#include "lowering/fusion/narrow_floats.h"
#include "lowering/fusion/pointwise_ops.h"

namespace lazyplug {
namespace {

using kernels::Instruction;
using kernels::Opcode;
using kernels::Program;
using kernels::Slot;

// A step's program, call by call. Its lists are the first slots.
class Builder {
 public:
  Builder(const UpdateForm& form, bool has_functions, size_t num_kept) : form_(form), has_functions_(has_functions) {
    program_.dtype = *kernels::computing_dtype(form.dtype);
    program_.num_memory = program_.num_slots = static_cast<uint8_t>(num_kept + 2);
    gradient_ = static_cast<Slot>(num_kept + 1);
  }

  static constexpr Slot kParams = 0;
  // What the optimizer keeps.
  static constexpr Slot kept(size_t index) {
    return static_cast<Slot>(index + 1);
  }
  // What the step takes for the gradient.
  Slot gradient() const {
    return gradient_;
  }
  uint8_t add_number() {
    return program_.num_numbers++;
  }

  // The call's result, in a slot of its own.
  Slot make(Opcode opcode, std::initializer_list<Slot> inputs, uint8_t number = 0) {
    return add(opcode, program_.num_slots++, inputs, number);
  }
  // With a number of its own.
  Slot make_with_number(Opcode opcode, std::initializer_list<Slot> inputs) {
    return make(opcode, inputs, add_number());
  }
  // In place of the first input.
  Slot update(Opcode opcode, std::initializer_list<Slot> inputs, uint8_t number = 0) {
    return add(opcode, *inputs.begin(), inputs, number);
  }
  Slot update_with_number(Opcode opcode, std::initializer_list<Slot> inputs) {
    return update(opcode, inputs, add_number());
  }

  void prepare_gradient() {
    if (form_.maximizes) {
      gradient_ = make(Opcode::kNeg, {gradient_});
    }
    if (form_.adds_weights) {
      const uint8_t decay = add_number();
      gradient_ = form_.maximizes ? update(Opcode::kAdd, {gradient_, kParams}, decay)
                                  : make(Opcode::kAdd, {gradient_, kParams}, decay);
    }
    if (form_.decays) {
      update_with_number(Opcode::kMulNumber, {kParams});
    }
  }
  void average_gradients(Slot averages) {
    update_with_number(Opcode::kLerp, {averages, gradient_});
  }
  // average = factor * average + other * gradient^2
  void average_squares(Slot averages) {
    update_with_number(Opcode::kMulNumber, {averages});
    update_with_number(Opcode::kAddcmul, {averages, gradient_, gradient_});
  }
  // As it is for a _foreach_sqrt; one that writes is always the CPU's.
  Slot square_root(Slot x) {
    return make(has_functions_ && form_.dtype == c10::ScalarType::Float ? Opcode::kSqrtExact : Opcode::kSqrt, {x});
  }

  // sqrt(squares) / correction + epsilon, as Adam divides by it.
  Slot corrected_root(Slot squares) {
    const uint8_t epsilon = add_number(); // before those that may differ from parameter to parameter
    const Slot root = square_root(squares);
    update_with_number(Opcode::kDivNumber, {root});
    return update(Opcode::kAddNumber, {root}, epsilon);
  }

  // Nothing if some call rounds by place.
  std::optional<Program> program() const {
    return is_exact_ ? std::optional(program_) : std::nullopt;
  }

 private:
  Slot add(Opcode opcode, Slot out, std::initializer_list<Slot> inputs, uint8_t number) {
    Instruction instruction{opcode, out};
    std::copy(inputs.begin(), inputs.end(), instruction.inputs);
    instruction.number = number;
    is_exact_ &= append_rounded(program_.instructions, form_.dtype, instruction);
    return out;
  }

  const UpdateForm& form_;
  const bool has_functions_;
  Program program_;
  bool is_exact_ = true;
  Slot gradient_;
};

constexpr Slot kParams = Builder::kParams;

std::optional<Program> adadelta(const UpdateForm& form, bool has_functions) {
  Builder step(form, has_functions, 2);
  const Slot squares = Builder::kept(0);
  const Slot changes = Builder::kept(1);
  step.prepare_gradient();
  const uint8_t rho = step.add_number();
  const uint8_t rest = step.add_number();
  const uint8_t epsilon = step.add_number();
  step.update(Opcode::kMulNumber, {squares}, rho);
  step.update(Opcode::kAddcmul, {squares, step.gradient(), step.gradient()}, rest);
  const Slot divisor = step.make(Opcode::kAddNumber, {squares}, epsilon);
  step.update(Opcode::kSqrt, {divisor});
  const Slot change = step.make(Opcode::kAddNumber, {changes}, epsilon);
  step.update(Opcode::kSqrt, {change});
  step.update(Opcode::kDiv, {change, divisor});
  step.update(Opcode::kMul, {change, step.gradient()});
  step.update(Opcode::kMulNumber, {changes}, rho);
  step.update(Opcode::kAddcmul, {changes, change, change}, rest);
  step.update_with_number(Opcode::kAdd, {kParams, change});
  return step.program();
}

std::optional<Program> adagrad(const UpdateForm& form, bool has_functions) {
  Builder step(form, has_functions, 1);
  const Slot sums = Builder::kept(0);
  step.prepare_gradient();
  const uint8_t one = step.add_number();
  step.update(Opcode::kAddcmul, {sums, step.gradient(), step.gradient()}, one);
  const Slot divisor = step.square_root(sums);
  step.update_with_number(Opcode::kAddNumber, {divisor});
  // Where PyTorch has made a gradient of its own, it writes there, which rounds the number to narrow dtypes.
  const bool writes = form.maximizes || form.adds_weights;
  const Slot change = writes ? step.update_with_number(Opcode::kMulNumber, {step.gradient()})
                             : step.make_with_number(Opcode::kMulNumber, {step.gradient()});
  step.update(Opcode::kAddcdiv, {kParams, change, divisor}, one);
  return step.program();
}

std::optional<Program> adam(const UpdateForm& form, bool has_functions) {
  Builder step(form, has_functions, form.keeps_maximum ? 3 : 2);
  const Slot averages = Builder::kept(0);
  Slot squares = Builder::kept(1);
  step.prepare_gradient();
  step.average_gradients(averages);
  step.average_squares(squares);
  if (form.keeps_maximum) {
    squares = step.update(Opcode::kMaximum, {Builder::kept(2), squares});
  }
  const Slot divisor = step.corrected_root(squares);
  step.update_with_number(Opcode::kAddcdiv, {kParams, averages, divisor});
  return step.program();
}

std::optional<Program> adamax(const UpdateForm& form, bool has_functions) {
  Builder step(form, has_functions, 2);
  const Slot averages = Builder::kept(0);
  const Slot largest = Builder::kept(1);
  step.prepare_gradient();
  step.average_gradients(averages);
  step.update_with_number(Opcode::kMulNumber, {largest});
  const Slot magnitude = step.make(Opcode::kAbs, {step.gradient()});
  step.update_with_number(Opcode::kAddNumber, {magnitude});
  step.update(Opcode::kMaximum, {largest, magnitude});
  step.update_with_number(Opcode::kAddcdiv, {kParams, averages, largest});
  return step.program();
}

std::optional<Program> nadam(const UpdateForm& form, bool has_functions) {
  Builder step(form, has_functions, 2);
  const Slot averages = Builder::kept(0);
  const Slot squares = Builder::kept(1);
  step.prepare_gradient();
  step.average_gradients(averages);
  step.average_squares(squares);
  const Slot divisor = step.corrected_root(squares);
  step.update_with_number(Opcode::kAddcdiv, {kParams, step.gradient(), divisor});
  step.update_with_number(Opcode::kAddcdiv, {kParams, averages, divisor});
  return step.program();
}

std::optional<Program> radam(const UpdateForm& form, bool has_functions) {
  Builder step(form, has_functions, 2);
  const Slot averages = Builder::kept(0);
  const Slot squares = Builder::kept(1);
  step.prepare_gradient();
  step.average_gradients(averages);
  step.average_squares(squares);
  const uint8_t epsilon = step.add_number();
  const uint8_t one = step.add_number();
  const Slot factor = step.square_root(squares);
  step.update(Opcode::kAddNumber, {factor}, epsilon);
  step.update_with_number(Opcode::kDivNumber, {factor});
  step.update(Opcode::kReciprocal, {factor});
  step.update_with_number(Opcode::kAddNumber, {factor});
  step.update(Opcode::kAddcmul, {kParams, averages, factor}, one);
  return step.program();
}

std::optional<Program> rmsprop(const UpdateForm& form, bool has_functions) {
  Builder step(form, has_functions, 1 + (form.is_centered ? 1 : 0) + (form.has_momentum ? 1 : 0));
  const Slot squares = Builder::kept(0);
  step.prepare_gradient();
  step.average_squares(squares);
  Slot divisor = 0;
  if (form.is_centered) {
    const Slot averages = Builder::kept(1);
    step.average_gradients(averages);
    divisor = step.make_with_number(Opcode::kAddcmul, {squares, averages, averages});
    step.update(Opcode::kSqrt, {divisor});
  } else {
    divisor = step.square_root(squares);
  }
  step.update_with_number(Opcode::kAddNumber, {divisor});
  if (form.has_momentum) {
    const Slot buffers = Builder::kept(form.is_centered ? 2 : 1);
    step.update_with_number(Opcode::kMulNumber, {buffers});
    step.update_with_number(Opcode::kAddcdiv, {buffers, step.gradient(), divisor});
    step.update_with_number(Opcode::kAdd, {kParams, buffers});
  } else {
    step.update_with_number(Opcode::kAddcdiv, {kParams, step.gradient(), divisor});
  }
  return step.program();
}

std::optional<Program> sgd(const UpdateForm& form, bool has_functions) {
  Builder step(form, has_functions, form.has_momentum ? 1 : 0);
  step.prepare_gradient();
  Slot change = step.gradient();
  if (form.has_momentum) {
    const Slot buffers = Builder::kept(0);
    step.update_with_number(Opcode::kMulNumber, {buffers});
    step.update_with_number(Opcode::kAdd, {buffers, change});
    change = form.is_nesterov ? step.update_with_number(Opcode::kAdd, {change, buffers}) : buffers;
  }
  step.update_with_number(Opcode::kAdd, {kParams, change});
  return step.program();
}

std::optional<Program> program_of(Optimizer optimizer, const UpdateForm& form, bool has_functions) {
  switch (optimizer) {
    case Optimizer::kAdadelta:
      return adadelta(form, has_functions);
    case Optimizer::kAdagrad:
      return adagrad(form, has_functions);
    case Optimizer::kAdam:
      return adam(form, has_functions);
    case Optimizer::kAdamax:
      return adamax(form, has_functions);
    case Optimizer::kNAdam:
      return nadam(form, has_functions);
    case Optimizer::kRAdam:
      return radam(form, has_functions);
    case Optimizer::kRMSprop:
      return rmsprop(form, has_functions);
    case Optimizer::kSGD:
      return sgd(form, has_functions);
  }
  return {};
}

Update to_update(const Program& program) {
  Update update{to_string(program), std::vector<size_t>(program.num_memory)};
  for (const Instruction& instruction : program.instructions) {
    if (instruction.out < program.num_memory && !kernels::is_narrowing(instruction.opcode)) {
      ++update.num_writes[instruction.out];
    }
  }
  return update;
}

// All that decides about a program, as a number.
size_t key_of(Optimizer optimizer, const UpdateForm& form, bool has_functions) {
  auto key = static_cast<size_t>(optimizer) * c10::NumScalarTypes + static_cast<size_t>(form.dtype);
  for (const bool bit :
       {form.maximizes,
        form.adds_weights,
        form.decays,
        form.has_momentum,
        form.is_nesterov,
        form.is_centered,
        form.keeps_maximum,
        has_functions}) {
    key = 2 * key + (bit ? 1 : 0);
  }
  return key;
}

// Those that have been asked for, for ever.
struct Updates {
  ForkSafeMutex mutex;
  std::unordered_map<size_t, std::optional<Update>> of; // never moves its elements
};

const Update* to_pointer(const std::optional<Update>& update) {
  return update ? &*update : nullptr;
}

} // namespace

bool has_updates(c10::ScalarType dtype) {
  return kernels::computes_floats_of(dtype);
}

const Update* update_of(Optimizer optimizer, const UpdateForm& form) {
  static auto* const updates = new Updates();
  static const bool may_have_functions = lazyplug::has_functions();
  const bool has_functions = may_have_functions && computes_functions();
  const size_t key = key_of(optimizer, form, has_functions);
  {
    const ForkSafeLock lock(updates->mutex);
    if (const auto found = updates->of.find(key); found != updates->of.end()) {
      return to_pointer(found->second);
    }
  }
  const auto program = program_of(optimizer, form, has_functions);
  auto update = program ? std::optional(to_update(*program)) : std::nullopt;
  const ForkSafeLock lock(updates->mutex);
  return to_pointer(updates->of.try_emplace(key, std::move(update)).first->second);
}

} // namespace lazyplug
