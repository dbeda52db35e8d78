#include "lowering/pointwise_kernel.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <atomic>
#include <sstream>

#include "lowering/node_attributes.h"
#include "lowering/runtime_ops.h"

namespace lazyplug {
namespace {

using JitNode = torch::jit::Node;

const c10::Symbol& program_attribute() {
  static const c10::Symbol symbol = c10::Symbol::attr("program");
  return symbol;
}

const c10::Symbol& places_attribute() {
  static const c10::Symbol symbol = c10::Symbol::attr("places");
  return symbol;
}

kernels::Program program_of(const JitNode& node) {
  auto program = kernels::parse(node.s(program_attribute()));
  TORCH_CHECK(program, "no tile program: ", node.s(program_attribute()));
  return std::move(*program);
}

Geometry layout_of(const torch::jit::Value& value) {
  auto layout = geometry_of(*value.type());
  TORCH_CHECK(layout, "the type of %", value.debugName(), " does not say how it lies");
  return std::move(*layout);
}

kernels::PointwiseSpace space_of(const JitNode& node) {
  std::vector<kernels::PointwiseSpace::Input> inputs;
  std::istringstream places(node.s(places_attribute()));
  for (std::string place; std::getline(places, place, ';');) {
    std::istringstream words(place);
    auto& input = inputs.emplace_back();
    words >> input.offset;
    for (int64_t stride = 0; words >> stride;) {
      input.strides.push_back(stride);
    }
  }
  const Geometry results = layout_of(*node.output(0));
  return {results.sizes, results.strides, inputs};
}

double to_double(const c10::IValue& number) {
  return number.isInt() ? static_cast<double>(number.toInt()) : number.toDouble();
}

} // namespace

struct PointwiseKernel::Call {
  c10::SmallVector<at::Tensor, 8> inputs;
  std::vector<bool> is_missing; // inputs; empty: none is
  c10::SmallVector<double, 8> numbers;
  c10::SmallVector<at::Tensor, 4> outputs;
  c10::SmallVector<kernels::Memory, 12> memory;
};

PointwiseKernel::PointwiseKernel(const JitNode& node, bool may_donate)
    : program_(program_of(node)), space_(space_of(node)) {
  for (size_t i = 0; i < space_.num_inputs(); ++i) {
    inputs_.push_back(layout_of(*node.input(i)));
  }
  for (const auto* output : node.outputs()) {
    outputs_.push_back(layout_of(*output));
  }
  find_dependences();
  donors_.resize(num_outputs());
  if (may_donate) {
    find_donors();
  }
}

void PointwiseKernel::find_dependences() {
  std::vector<std::vector<bool>> of_slots(program_.num_slots, std::vector<bool>(space_.num_inputs()));
  for (size_t i = 0; i < space_.num_inputs(); ++i) {
    of_slots[i][i] = true;
  }
  for (const auto& instruction : program_.instructions) {
    std::vector<bool> result(space_.num_inputs());
    for (size_t i = 0; i < kernels::num_inputs(instruction.opcode); ++i) {
      for (size_t input = 0; input < result.size(); ++input) {
        result[input] = result[input] || of_slots[instruction.inputs[i]][input];
      }
    }
    of_slots[instruction.out] = std::move(result);
  }
  dependences_.assign(of_slots.begin() + static_cast<int64_t>(space_.num_inputs()),
                      of_slots.begin() + program_.num_memory);
}

// An output may take the memory of an input that lies like it, and that is not read any more once the output has been
// written.
void PointwiseKernel::find_donors() {
  const auto& instructions = program_.instructions;
  std::vector<size_t> last_read(program_.num_slots, 0);
  std::vector<size_t> first_write(program_.num_slots, instructions.size());
  for (size_t i = instructions.size(); i-- > 0;) {
    first_write[instructions[i].out] = i;
    for (size_t j = 0; j < kernels::num_inputs(instructions[i].opcode); ++j) {
      size_t& last = last_read[instructions[i].inputs[j]];
      last = std::max(last, i);
    }
  }
  for (size_t output = 0; output < num_outputs(); ++output) {
    for (size_t input = 0; input < space_.num_inputs(); ++input) {
      if (space_.is_like_outputs(input) && inputs_[input] == outputs_[output] &&
          outputs_[output].dtype == program_.dtype && last_read[input] <= first_write[space_.num_inputs() + output]) {
        donors_[output].push_back(input);
      }
    }
  }
}

void PointwiseKernel::operator()(c10::Stack& stack) const {
  Call call;
  read_inputs(stack, call);
  make_outputs(call);
  kernels::run(program_, space_, call.memory, call.numbers.data());
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    bool is_missing = false;
    for (size_t input = 0; input < call.is_missing.size(); ++input) {
      is_missing = is_missing || (call.is_missing[input] && dependences_[i][input]);
    }
    stack.emplace_back(is_missing ? at::Tensor() : std::move(call.outputs[i]));
  }
}

void PointwiseKernel::read_inputs(c10::Stack& stack, Call& call) const {
  const size_t num_inputs = space_.num_inputs();
  const auto first = stack.end() - static_cast<int64_t>(num_inputs + program_.num_numbers);
  for (size_t i = 0; i < num_inputs; ++i) {
    c10::IValue& value = first[static_cast<int64_t>(i)];
    if (value.isTensor() && value.toTensor().defined()) {
      at::Tensor tensor = std::move(value).toTensor();
      // Numbers may be of another dtype than the type says.
      call.inputs.push_back(tensor.dim() == 0 ? std::move(tensor) : ensure_layout(tensor, inputs_[i]));
    } else {
      call.is_missing.resize(num_inputs);
      call.is_missing[i] = true;
      call.inputs.push_back(empty(inputs_[i]).zero_());
    }
    const at::Tensor& input = call.inputs.back();
    call.memory.push_back({const_cast<void*>(input.const_data_ptr()), input.scalar_type()});
  }
  for (size_t i = 0; i < program_.num_numbers; ++i) {
    call.numbers.push_back(to_double(first[static_cast<int64_t>(num_inputs + i)]));
  }
  stack.erase(first, stack.end());
}

void PointwiseKernel::make_outputs(Call& call) const {
  for (size_t i = 0; i < outputs_.size(); ++i) {
    at::Tensor output = find_donor(i, call);
    if (!output.defined()) {
      output = at::detail::empty_strided_cpu(outputs_[i].sizes, outputs_[i].strides, outputs_[i].dtype);
    }
    call.memory.push_back({output.mutable_data_ptr(), output.scalar_type()});
    call.outputs.push_back(std::move(output));
  }
}

// Whoever else holds the memory would see it change. An input that has been given away has two owners.
at::Tensor PointwiseKernel::find_donor(size_t output, const Call& call) const {
  for (const size_t input : donors_[output]) {
    const at::Tensor& tensor = call.inputs[input];
    const auto& storage = tensor.unsafeGetTensorImpl()->unsafe_storage();
    if (tensor.use_count() == 1 && storage.use_count() == 1 && storage.nbytes() == outputs_[output].extent_bytes()) {
      // The counts are read relaxed: what other threads did with the memory comes before.
      std::atomic_thread_fence(std::memory_order_acquire);
      return tensor;
    }
  }
  return {};
}

void set_pointwise(JitNode& node, const PointwiseGroup& group) {
  std::ostringstream places;
  for (const auto& input : group.inputs()) {
    places << (&input == &group.inputs().front() ? "" : ";") << input.offset;
    for (const int64_t stride : input.strides) {
      places << ' ' << stride;
    }
  }
  node.s_(program_attribute(), kernels::to_string(group.program()));
  node.s_(places_attribute(), places.str());
}

namespace {

torch::jit::Operation make_operation(const JitNode* node) {
  return [kernel = PointwiseKernel(*node, /*may_donate=*/false)](c10::Stack& stack) { kernel(stack); };
}

const torch::jit::RegisterOperators kRegistered({torch::jit::Operator(
    runtime_ops().pointwise,
    make_operation,
    c10::AliasAnalysisKind::CONSERVATIVE)});

} // namespace
} // namespace lazyplug
