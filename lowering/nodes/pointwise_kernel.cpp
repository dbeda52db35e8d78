#include "lowering/nodes/pointwise_kernel.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/sum.h>
#include <c10/util/StringUtil.h>
#include <sys/mman.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>
#include <atomic>
#include <sstream>

#include "lowering/calls/runtime_ops.h"
#include "lowering/fusion/program_numbers.h"
#include "lowering/nodes/node_attributes.h"
#include "lowering/nodes/tile_kernel.h"

namespace lazyplug {
namespace {

using JitNode = torch::jit::Node;

struct PointwiseNames {
  const c10::Symbol program = c10::Symbol::attr("program");
  const c10::Symbol layout = c10::Symbol::attr("layout");
  const c10::Symbol dtypes = c10::Symbol::attr("dtypes");
  const c10::Symbol places = c10::Symbol::attr("places");
  const c10::Symbol moving = c10::Symbol::attr("moving");
  const c10::Symbol depends = c10::Symbol::attr("depends");
  const c10::Symbol old = c10::Symbol::attr("old");
  const c10::Symbol made_by = c10::Symbol::attr("made_by");
  const c10::Symbol for_rows = c10::Symbol::attr("for_rows");
  const c10::Symbol squeezed = c10::Symbol::attr("squeezed");
  const c10::Symbol windows = c10::Symbol::attr("windows");
  const c10::Symbol literals = c10::Symbol::attr("literals");
  const c10::Symbol rounded = c10::Symbol::attr("rounded");
  const c10::Symbol totals = c10::Symbol::attr("totals");
};

const PointwiseNames& pointwise_names() {
  static const PointwiseNames names;
  return names;
}

// "0 8 1;4 0 1"
using Lists = std::vector<std::vector<int64_t>>;

std::string to_text(const Lists& lists) {
  std::ostringstream text;
  for (const auto& list : lists) {
    text << (&list == &lists.front() ? "" : ";") << c10::Join(" ", list);
  }
  return text.str();
}

// `text` ends each of `size` lists but the last.
Lists parse_lists(const std::string& text, size_t size) {
  Lists lists(size);
  std::istringstream rest(text);
  std::string list;
  for (size_t i = 0; i < size && std::getline(rest, list, ';'); ++i) {
    std::istringstream words(list);
    for (int64_t word = 0; words >> word;) {
      lists[i].push_back(word);
    }
  }
  return lists;
}

std::vector<kernels::Total> totals_of(const JitNode& node) {
  std::vector<kernels::Total> result;
  if (node.hasAttribute(pointwise_names().totals)) {
    const Lists totals = parse_lists(node.s(pointwise_names().totals), 1);
    for (const int64_t total : totals[0]) {
      result.push_back(static_cast<kernels::Total>(total));
    }
  }
  return result;
}

std::vector<Geometry> outputs_of(const JitNode& node) {
  const Lists layout = parse_lists(node.s(pointwise_names().layout), 2);
  const Lists dtypes = parse_lists(node.s(pointwise_names().dtypes), 1);
  std::vector<Geometry> outputs;
  for (const int64_t dtype : dtypes[0]) {
    Geometry& output = outputs.emplace_back();
    output.dtype = static_cast<c10::ScalarType>(dtype);
    output.sizes = c10::DimVector(layout[0].begin(), layout[0].end());
    output.strides = c10::DimVector(layout[1].begin(), layout[1].end());
  }
  const auto totals = totals_of(node);
  for (size_t i = 0; i < totals.size(); ++i) {
    if (totals[i] != kernels::Total::kNone) {
      outputs[i] = Geometry::contiguous(outputs[i].dtype, {});
    }
  }
  for (const auto name : {pointwise_names().for_rows, pointwise_names().squeezed}) {
    const Lists rows = parse_lists(node.hasAttribute(name) ? node.s(name) : std::string(), 1);
    for (const int64_t output : rows[0]) {
      Geometry& row = outputs.at(output);
      row.sizes.pop_back();
      if (name == pointwise_names().for_rows) {
        row.sizes.push_back(1);
      }
      row = Geometry::contiguous(row.dtype, row.sizes);
    }
  }
  return outputs;
}

kernels::PointwiseSpace space_of(const JitNode& node, size_t num_inputs) {
  const Lists layout = parse_lists(node.s(pointwise_names().layout), 2);
  std::vector<kernels::PointwiseSpace::Input> inputs;
  for (const auto& place : parse_lists(node.s(pointwise_names().places), num_inputs)) {
    inputs.push_back({place.at(0), c10::DimVector(place.begin() + 1, place.end())});
  }
  if (node.hasAttribute(pointwise_names().windows)) {
    const Lists windows = parse_lists(node.s(pointwise_names().windows), num_inputs);
    for (size_t i = 0; i < num_inputs; ++i) {
      inputs[i].window = {windows[i].at(0), windows[i].at(1)};
    }
  }
  return {layout[0], layout[1], inputs};
}

// What stands for an input that has failed, perhaps since there was no memory for it: pages that are only read have
// none.
at::Tensor zeros_without_memory(const Geometry& layout) {
  const size_t size = std::max<size_t>(layout.extent_bytes(), 1);
  void* pages = mmap(
      nullptr,
      size,
      PROT_READ,
      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
      /*fd=*/-1,
      /*offset=*/0);
  TORCH_CHECK_WITH(OutOfMemoryError, pages != MAP_FAILED, "there are no addresses for ", size, " bytes");
  return at::from_blob(pages, layout.sizes, layout.strides, [size](void* data) { munmap(data, size); }, layout.dtype);
}

// As at::TensorIterator decides.
bool is_shared_by_threads(int64_t num_elements) {
  return num_elements >= at::internal::GRAIN_SIZE && at::get_num_threads() > 1 && !at::in_parallel_region();
}

} // namespace

struct PointwiseKernel::Call {
  c10::SmallVector<at::Tensor, 8> inputs;
  std::vector<bool> is_missing; // inputs; empty: none is
  c10::SmallVector<double, 8> numbers;
  c10::SmallVector<at::Tensor, 4> outputs;
  std::vector<std::exception_ptr> errors; // of outputs; empty: none
  c10::SmallVector<kernels::Memory, 12> memory;
};

PointwiseKernel::PointwiseKernel(const JitNode& node, bool may_donate)
    : program_(parse_program(node.s(pointwise_names().program))),
      outputs_(outputs_of(node)),
      space_(space_of(node, program_.num_memory - outputs_.size())),
      is_negated_(find_negated_numbers(program_)),
      totals_(totals_of(node)),
      infos_(num_outputs()),
      donors_(num_outputs()) {
  for (size_t i = 0; i < space_.num_inputs(); ++i) {
    inputs_.push_back(geometry_of(*node.input(i)->type()));
  }
  const Lists layout = parse_lists(node.s(pointwise_names().layout), 2);
  layout_ = Geometry::contiguous(program_.dtype, c10::DimVector(layout[0].begin(), layout[0].end()));
  if (node.hasAttribute(pointwise_names().moving)) {
    moving_ = parse_lists(node.s(pointwise_names().moving), 1)[0];
  }
  if (node.hasAttribute(pointwise_names().literals)) {
    literals_ = parse_lists(node.s(pointwise_names().literals), 1)[0];
  }
  if (node.hasAttribute(pointwise_names().rounded)) {
    const Lists rounded = parse_lists(node.s(pointwise_names().rounded), 1);
    for (const int64_t dtype : rounded[0]) {
      rounded_.push_back(static_cast<c10::ScalarType>(dtype));
    }
  }
  const Lists depends = parse_lists(node.s(pointwise_names().depends), num_outputs());
  const Lists olds = parse_lists(node.s(pointwise_names().old), num_outputs());
  const Lists makers = parse_lists(node.s(pointwise_names().made_by), num_outputs());
  const std::vector<std::string> ops = ops_of(node);
  for (size_t i = 0; i < num_outputs(); ++i) {
    infos_[i].inputs.resize(space_.num_inputs());
    for (const int64_t input : depends[i]) {
      infos_[i].inputs.at(input) = true;
    }
    infos_[i].old = olds[i].at(0);
    infos_[i].node = static_cast<NodeId>(makers[i].at(0));
    infos_[i].op = ops.at(makers[i].at(1));
  }
  if (may_donate) {
    find_donors();
  }
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
      // What is not written as it is computed is written after all of a tile has been read.
      const bool is_over =
          outputs_[output].dtype != program_.dtype || last_read[input] <= first_write[space_.num_inputs() + output];
      if (space_.is_like_outputs(input) && inputs_[input] == outputs_[output] && is_over) {
        donors_[output].push_back(input);
      }
    }
    // Memory stays where it is if it can, or else is left to what replaces others.
    if (infos_[output].old >= 0) {
      std::erase_if(donors_[output], [&](size_t input) { return static_cast<int64_t>(input) != infos_[output].old; });
    }
  }
}

void PointwiseKernel::operator()(c10::Stack& stack) const {
  Call call;
  read_inputs(stack, call);
  make_outputs(call);
  // If there is memory for none of them, there may be elements without end.
  const bool has_any = std::any_of(call.outputs.begin(), call.outputs.end(), [](const auto& x) { return x.defined(); });
  if (has_any && !totals_.empty() && is_shared_by_threads(layout_.numel())) {
    find_totals(call);
  } else if (has_any) {
    kernels::run(program_, space_, call.memory, call.numbers.data(), assembly_.next(program_));
  }
  return_outputs(call, stack);
}

// What several threads add up, the CPU's kernel does.
void PointwiseKernel::find_totals(Call& call) const {
  std::vector<at::Tensor> wholes(num_outputs());
  for (size_t i = 0; i < num_outputs(); ++i) {
    kernels::Memory& memory = call.memory[space_.num_inputs() + i];
    if (!memory.data || totals_[i] == kernels::Total::kNone) {
      continue;
    }
    try {
      wholes[i] = empty(layout_);
      memory = {wholes[i].mutable_data_ptr(), layout_.dtype};
    } catch (...) {
      keep_error(i, call);
      memory.data = nullptr;
    }
  }
  kernels::run(program_, space_, call.memory, call.numbers.data(), assembly_.next(program_));
  for (size_t i = 0; i < num_outputs(); ++i) {
    if (wholes[i].defined()) {
      totals_[i] == kernels::Total::kMean ? at::mean_out(call.outputs[i], wholes[i], c10::OptionalIntArrayRef())
                                          : at::sum_out(call.outputs[i], wholes[i], c10::OptionalIntArrayRef());
    }
  }
}

void PointwiseKernel::return_outputs(Call& call, c10::Stack& stack) const {
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    if (!call.errors.empty() && call.errors[i]) {
      stack.emplace_back(infos_[i].old < 0 ? at::Tensor() : call.inputs[infos_[i].old]);
    } else {
      stack.emplace_back(is_missing(i, call) ? at::Tensor() : std::move(call.outputs[i]));
    }
  }
  if (!call.errors.empty()) {
    throw OutputErrors(std::move(call.errors));
  }
}

bool PointwiseKernel::is_missing(size_t output, const Call& call) const {
  for (size_t input = 0; input < call.is_missing.size(); ++input) {
    if (call.is_missing[input] && infos_[output].inputs[input]) {
      return true;
    }
  }
  return false;
}

void PointwiseKernel::read_inputs(c10::Stack& stack, Call& call) const {
  const size_t num_inputs = space_.num_inputs();
  const size_t num_numbers = program_.num_numbers - literals_.size();
  const auto first = stack.end() - static_cast<int64_t>(num_inputs + num_numbers + moving_.size());
  for (size_t i = 0; i < num_inputs; ++i) {
    c10::IValue& value = first[static_cast<int64_t>(i)];
    if (value.isTensor() && value.toTensor().defined()) {
      at::Tensor tensor = std::move(value).toTensor();
      // Numbers may be of another dtype than the type says.
      const bool is_sure = tensor.dim() == 0 || !inputs_[i];
      call.inputs.push_back(is_sure ? std::move(tensor) : ensure_layout(tensor, *inputs_[i]));
    } else {
      call.is_missing.resize(num_inputs);
      call.is_missing[i] = true;
      call.inputs.push_back(zeros_without_memory(*inputs_[i]));
    }
    const at::Tensor& input = call.inputs.back();
    call.memory.push_back({const_cast<void*>(input.const_data_ptr()), input.scalar_type()});
  }
  for (size_t i = 0; i < num_numbers; ++i) {
    const c10::IValue& number = first[static_cast<int64_t>(num_inputs + i)];
    double& value = call.numbers.emplace_back(
        c10::isIntegralType(program_.dtype, /*includeBool=*/false)
            ? kernels::number_of_bits(number.toInt())
            : negatable(number, number_for(program_.dtype, number), is_negated_[i]));
    if (!rounded_.empty() && kernels::is_narrow_float(rounded_[i])) {
      value = rounded_to(rounded_[i], value);
    }
  }
  call.numbers.append(literals_.begin(), literals_.end());
  if (!moving_.empty()) {
    move_inputs(&first[static_cast<int64_t>(num_inputs + num_numbers)], call);
  }
  stack.erase(first, stack.end());
}

void PointwiseKernel::move_inputs(const c10::IValue* offsets, Call& call) const {
  for (const int64_t input : moving_) {
    const int64_t offset = (offsets++)->toInt();
    const at::Tensor& tensor = call.inputs[input];
    TORCH_CHECK_INDEX(
        offset >= 0 && offset <= tensor.numel() - space_.extent(input),
        "a view at ",
        offset,
        " leaves its storage");
    auto& data = call.memory[input].data;
    data = static_cast<char*>(data) + offset * static_cast<int64_t>(tensor.itemsize());
  }
}

// If there is no memory for one, the others are made all the same. What replaces an input comes first: the old contents
// stay if that fails, so nothing else may take their memory then.
void PointwiseKernel::make_outputs(Call& call) const {
  call.outputs.resize(num_outputs());
  c10::SmallVector<at::Tensor, 2> kept;
  for (const bool replaces : {true, false}) {
    for (size_t i = 0; i < num_outputs(); ++i) {
      if (replaces == (infos_[i].old >= 0) && !make_output(i, call) && replaces) {
        kept.push_back(call.inputs[infos_[i].old]);
      }
    }
  }
  for (size_t i = 0; i < num_outputs(); ++i) {
    at::Tensor& output = call.outputs[i];
    call.memory.push_back({output.defined() ? output.mutable_data_ptr() : nullptr, outputs_[i].dtype});
    if (!totals_.empty()) {
      call.memory.back().total = totals_[i];
    }
  }
}

bool PointwiseKernel::make_output(size_t i, Call& call) const {
  try {
    call.outputs[i] = find_donor(i, call);
    if (!call.outputs[i].defined()) {
      call.outputs[i] = at::detail::empty_strided_cpu(outputs_[i].sizes, outputs_[i].strides, outputs_[i].dtype);
    }
    return true;
  } catch (...) {
    keep_error(i, call);
    return false;
  }
}

void PointwiseKernel::keep_error(size_t output, Call& call) const {
  call.errors.resize(outputs_.size());
  call.errors[output] = std::current_exception();
}

// Whoever else holds the memory would see it change. An input that has been given away has two owners.
at::Tensor PointwiseKernel::find_donor(size_t output, const Call& call) const {
  for (const size_t input : donors_[output]) {
    const at::Tensor& tensor = call.inputs[input];
    const auto& storage = tensor.unsafeGetTensorImpl()->unsafe_storage();
    const bool is_there = call.is_missing.empty() || !call.is_missing[input];
    if (is_there && tensor.use_count() == 1 && storage.use_count() == 1 &&
        storage.nbytes() == outputs_[output].extent_bytes()) {
      // The counts are read relaxed: what other threads did with the memory comes before.
      std::atomic_thread_fence(std::memory_order_acquire);
      return tensor;
    }
  }
  return {};
}

void set_pointwise(JitNode& node, const PointwiseGroup& group, const std::vector<PointwiseGroup::Output>& outputs) {
  Lists places;
  Lists windows;
  std::vector<int64_t> moving;
  for (const auto& input : group.inputs()) {
    if (input.moves()) {
      moving.push_back(static_cast<int64_t>(places.size()));
    }
    places.push_back({input.moves() ? 0 : input.offset});
    places.back().insert(places.back().end(), input.strides.begin(), input.strides.end());
    windows.push_back({input.window.begin, input.window.end});
  }
  Lists depends;
  Lists olds;
  Lists makers;
  std::vector<int64_t> dtypes;
  std::vector<int64_t> for_rows;
  std::vector<int64_t> totals;
  std::vector<int64_t> squeezed; // for rows, too, but without a dimension for them
  for (const auto& output : outputs) {
    if (output.is_for_row) {
      const bool is_squeezed = output.value.layout().sizes.size() < group.layout().sizes.size();
      (is_squeezed ? squeezed : for_rows).push_back(static_cast<int64_t>(dtypes.size()));
    }
    totals.push_back(static_cast<int64_t>(output.total));
    depends.emplace_back(output.inputs.begin(), output.inputs.end());
    olds.push_back({output.old ? int64_t{*output.old} : -1});
    dtypes.push_back(static_cast<int64_t>(output.value.layout().dtype));
    makers.push_back({output.value.node->id(), static_cast<int64_t>(group.index_of(output.value.node))});
  }
  node.s_(pointwise_names().program, kernels::to_string(group.program(outputs)));
  const Geometry& layout = group.layout();
  node.s_(pointwise_names().layout, c10::Join(" ", layout.sizes) + ";" + c10::Join(" ", layout.strides));
  node.s_(pointwise_names().dtypes, to_text({dtypes}));
  node.s_(pointwise_names().places, to_text(places));
  if (!moving.empty()) {
    node.s_(pointwise_names().moving, to_text({moving}));
  }
  if (!group.literals().empty()) {
    node.s_(pointwise_names().windows, to_text(windows));
    node.s_(pointwise_names().literals, to_text({group.literals()}));
  }
  std::vector<int64_t> rounded;
  bool rounds_any = false;
  for (const auto& number : group.numbers()) {
    rounded.push_back(static_cast<int64_t>(number.dtype));
    rounds_any |= kernels::is_narrow_float(number.dtype);
  }
  if (rounds_any) {
    node.s_(pointwise_names().rounded, to_text({rounded}));
  }
  node.s_(pointwise_names().depends, to_text(depends));
  node.s_(pointwise_names().old, to_text(olds));
  node.s_(pointwise_names().made_by, to_text(makers));
  if (!for_rows.empty()) {
    node.s_(pointwise_names().for_rows, to_text({for_rows}));
  }
  if (!squeezed.empty()) {
    node.s_(pointwise_names().squeezed, to_text({squeezed}));
  }
  const auto is_total = [](const auto& output) { return output.total != kernels::Total::kNone; };
  if (std::any_of(outputs.begin(), outputs.end(), is_total)) {
    node.s_(pointwise_names().totals, to_text({totals}));
  }
}

namespace {

torch::jit::Operation make_operation(const JitNode* node) {
  return [kernel = PointwiseKernel(*node, /*may_donate=*/false)](c10::Stack& stack) { kernel(stack); };
}

const torch::jit::RegisterOperators kRegistered(
    {torch::jit::Operator(runtime_ops().pointwise, make_operation, c10::AliasAnalysisKind::CONSERVATIVE)});

} // namespace
} // namespace lazyplug
