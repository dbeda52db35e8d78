#include "backend/inference/shape_inference.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "backend/inference/dtype_trials.h"
#include "backend/inference/make_signature.h"
#include "backend/inference/meta_kernels.h"
#include "backend/inference/result_layouts.h"
#include "backend/inference/stand_in_arguments.h"
#include "common/config.h"
#include "common/logging.h"
#include "common/metrics.h"
#include "device/cpu_allocator.h"
#include "lowering/execution/execution_guard.h"

namespace lazyplug {
namespace {

enum class Resized : uint8_t { kNone, kOut, kOther };

// Whether the call gave an argument another geometry. Meta kernels also change
// strides that the CPU's leave alone, so of them only the sizes are believed.
bool was_resized(const c10::TensorImpl& before, const at::Tensor& after) {
  return before.sizes() != after.sizes() || (after.is_cpu() && before.strides() != after.strides());
}

Resized find_resized(const Call& call, const StandInArguments& arguments) {
  Resized resized = Resized::kNone;
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    const TensorArg& arg = call.tensors[i];
    if (arg.tensor && arg.written && was_resized(*arg.tensor, arguments.tensors()[i])) {
      resized = arg.out && resized != Resized::kOther ? Resized::kOut : Resized::kOther;
    }
  }
  return resized;
}

// Arguments that were not resized keep their geometry.
std::vector<Geometry> geometries_after(const Call& call, const StandInArguments& arguments) {
  std::vector<Geometry> geometries;
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    const auto* before = call.tensors[i].tensor;
    const at::Tensor& after = arguments.tensors()[i];
    const bool keeps = before && !was_resized(*before, after);
    geometries.push_back(
        !before ? Geometry()
        : keeps ? Geometry::of(*before)
                : Geometry::of(*after.unsafeGetTensorImpl()));
    geometries.back().offset = before ? before->storage_offset() : 0;
  }
  return geometries;
}

bool is_inexact(c10::ScalarType dtype) {
  return !c10::isIntegralType(dtype, /*includeBool=*/true);
}

template <typename Predicate>
bool any_tensor(const Call& call, const Predicate& suits) {
  return std::any_of(call.tensors.begin(), call.tensors.end(), [&suits](const TensorArg& arg) {
    return arg.tensor && suits(arg);
  });
}

// A kernel lays out what it resizes as operands lie. Meta kernels need not.
bool reads_otherwise_than_in_order(const Call& call) {
  return any_tensor(call, [](const TensorArg& arg) { return !arg.out && !arg.tensor->is_contiguous(); });
}

// A kernel that computes in another dtype than the result's visits the elements
// in the order of the result's memory if that has its size already, else in
// that of the operands. What is vectorised depends on it, and so the last bit.
bool rounds_otherwise_once_resized(const Call& call) {
  return reads_otherwise_than_in_order(call) && any_tensor(call, [&call](const TensorArg& out) {
           const auto differs = [&out](const TensorArg& arg) { return arg.tensor->dtype() != out.tensor->dtype(); };
           return out.out && is_inexact(c10::typeMetaToScalarType(out.tensor->dtype())) && any_tensor(call, differs);
         });
}

bool overlaps_itself(const c10::TensorImpl& tensor) {
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    if (tensor.sizes()[i] > 1 && tensor.strides()[i] == 0) {
      return true;
    }
  }
  return false;
}

bool ranges_meet(const c10::TensorImpl& a, const c10::TensorImpl& b) {
  const Geometry first = Geometry::of(a);
  const Geometry second = Geometry::of(b);
  const auto begin = [](const Geometry& geometry) { return geometry.offset * geometry.itemsize(); };
  return begin(first) < second.extent_bytes() && begin(second) < first.extent_bytes();
}

// True if the call writes memory that it, or another argument, also sees
// elsewhere.
bool may_overlap(const Call& call) {
  for (const TensorArg& arg : call.tensors) {
    if (!arg.tensor || !arg.written) {
      continue;
    }
    if (overlaps_itself(*arg.tensor)) {
      return true;
    }
    for (const TensorArg& other : call.tensors) {
      if (other.tensor && other.tensor != arg.tensor && other.storage == arg.storage &&
          ranges_meet(*arg.tensor, *other.tensor)) {
        return true;
      }
    }
  }
  return false;
}

bool is_overlap_error(const c10::Error& error) {
  const std::string& message = error.msg();
  return message.find("unsupported operation:") != std::string::npos &&
         message.find("memory location") != std::string::npos;
}

// Meta kernels do not check for overlaps as the CPU's do, and which overlaps an
// op refuses is its own affair. Runs it once on zeros, to see whether it does.
void rehearse(const Call& call, const c10::Stack& stack) {
  const ExecutionGuard guard;
  const WarningCollector unwanted;
  StandInArguments arguments(call, c10::kCPU);
  c10::Stack cpu_stack = arguments.make(stack);
  try {
    call.op->handle().callBoxed(cpu_stack);
  } catch (const c10::Error& error) {
    if (is_overlap_error(error)) {
      throw;
    }
  } catch (...) {
    // Zeros are not the user's values: this error may not be theirs either.
  }
}

// Kernels that have nothing to do may return an argument as it is, although the
// schema says that they do not.
bool returns_empty_view(const OpInfo& op, const StandInArguments& arguments, const c10::Stack& results) {
  for (size_t i = 0; i < results.size(); ++i) {
    if (op.return_aliases()[i] >= 0 || !results[i].isTensor() || !results[i].toTensor().is_cpu()) {
      continue;
    }
    const at::Tensor result = results[i].toTensor();
    for (const at::Tensor& argument : arguments.tensors()) {
      if (argument.defined() && result.numel() == 0 && argument.is_cpu() && result.is_alias_of(argument)) {
        return true;
      }
    }
  }
  return false;
}

// Kernels of other libraries may do more than compute.
bool may_rehearse(const OpInfo& op) {
  return op.base_name().starts_with("aten::");
}

// Without tensors there is not much that could be large but the result.
bool makes_from_nothing(const Call& call) {
  return call.tensors.empty() && may_rehearse(*call.op) && !call.any_written;
}

// Returns whether only the CPU's kernel knows if the call is possible.
bool call_meta_kernel(
    const Call& call,
    const c10::Stack& stack,
    const StandInArguments& arguments,
    c10::Stack* results) {
  const Told told = call_cpp_meta_kernel(*call.op, results);
  const bool is_told = told == Told::kYes;
  if (!is_told && makes_from_nothing(call)) {
    throw c10::NotImplementedError({}, "the CPU is asked rather than Python");
  }
  if (!is_told) {
    static Counter& calls = counter("PythonMetaKernel");
    calls.add();
    log_debug(call.op->name(), " is told by its Meta kernel in Python");
    call.op->handle().callBoxed(results);
  }
  lay_out_as_cpu(call, stack, arguments.tensors(), /*knows_loops=*/is_told, results);
  return told == Told::kRefused;
}

// Runs the op on tensors without the data, and looks at what it returns.
Inference run_on_stand_ins(const Call& call, const c10::Stack& stack, c10::DeviceType device, int fill = 0) {
  const ExecutionGuard guard;
  const c10::AutoGradMode as_jobs_run(true);
  WarningCollector warnings;
  StandInArguments arguments(call, device, fill);
  c10::Stack results = arguments.make(stack);
  Inference inference;
  if (device != c10::kMeta) {
    call.op->handle().callBoxed(&results);
  } else if (call_meta_kernel(call, stack, arguments, &results)) {
    inference.run_now = "on trial";
  }
  inference.warnings = warnings.take();
  if (returns_empty_view(*call.op, arguments, results)) {
    return inference;
  }
  switch (find_resized(call, arguments)) {
    case Resized::kNone:
      inference.signature = make_signature(call, stack, results, device, inference.warnings.empty());
      break;
    case Resized::kOut:
      // Whether an op accepts that depends on what it checks before it resizes:
      // better run as it is.
      TORCH_CHECK(!call.any_shared_storage, call.op->name(), " would resize what it also reads");
      if (device == c10::kMeta && reads_otherwise_than_in_order(call)) {
        inference.run_now = "resizes an out= argument as operands lie";
        break;
      }
      if (rounds_otherwise_once_resized(call)) {
        inference.run_now = "resizes an out= argument of another dtype";
        break;
      }
      inference.resized = geometries_after(call, arguments);
      break;
    case Resized::kOther:
      // Meta kernels written in Python resize what is to be written in place.
      // No kernel does: it will raise.
      TORCH_CHECK(false, call.op->name(), " cannot resize what it writes in place");
  }
  return inference;
}

// A call that writes in place has the results that it was given.
bool is_in_place(const Call& call) {
  const auto is_out = [](const TensorArg& arg) { return arg.out; };
  return call.any_written && std::none_of(call.tensors.begin(), call.tensors.end(), is_out) &&
         call.op->returns_only_arguments();
}

// Whether a small call's CPU kernel may be asked instead of its Meta kernel. What
// Meta refuses to predict may differ for other data.
bool may_ask_cpu(const Call& call) {
  const OpInfo& op = *call.op;
  return !call.tensors.empty() && call.num_elements < config().small_call.get() && may_rehearse(op) &&
         (is_in_place(call) || op.handle().hasComputedKernelForDispatchKey(c10::DispatchKey::Meta));
}

// What the CPU kernel makes of zeros. They are no arguments for every op: some
// count from one, or divide.
Inference ask_cpu(const Call& call, const c10::Stack& stack) {
  try {
    return run_on_stand_ins(call, stack, c10::kCPU);
  } catch (const c10::OutOfMemoryError&) {
    throw; // as it would be again
  } catch (...) {
    return run_on_stand_ins(call, stack, c10::kCPU, /*fill=*/1);
  }
}

// Elements. A kernel is not run on more of them just to learn strides.
constexpr int64_t kLargeCall = 8192;

// An op whose Meta kernel is not to be believed. If the call is large, nobody knows
// but the call itself.
Inference ask_cpu_unless_large(const Call& call, const c10::Stack& stack) {
  if (call.op->is_quick()) {
    return ask_cpu(call, stack);
  }
  if (call.num_elements <= kLargeCall) {
    try {
      const AllocationLimit small(kLargeCall * sizeof(c10::complex<double>));
      return ask_cpu(call, stack);
    } catch (const c10::OutOfMemoryError&) {
      // It was not small after all.
    }
  }
  return {.run_now = "large, and asked for the first time", .learn = true};
}

// Numbers that not every dtype can hold: of floating-point ones, none that is negative fits an unsigned dtype.
bool is_unusual(const c10::IValue& scalar) {
  if (scalar.isList()) {
    const auto elements = scalar.toListRef();
    return std::any_of(elements.begin(), elements.end(), is_unusual);
  }
  constexpr double kUsual = 127;
  return scalar.isComplexDouble() || (scalar.isDouble() && !(scalar.toDouble() >= 0 && scalar.toDouble() <= kUsual)) ||
         (scalar.isInt() && std::abs(static_cast<double>(scalar.toInt())) > kUsual);
}

bool is_overflow(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return std::string_view(exception.what()).find("cannot be converted to type") != std::string_view::npos;
  } catch (...) {
    return false;
  }
}

bool makes_of_number(const OpInfo& op) {
  return op.base_name() == "aten::full" || op.base_name() == "aten::full_like" || op.base_name() == "aten::new_full" ||
         op.base_name() == "aten::scalar_tensor";
}

// What the CPU's kernel raises for tensors of one element each, or makes one of two, since single numbers are filled in
// by something else; null if nothing.
std::exception_ptr rehearse_on_little(const Call& call, const c10::Stack& stack) {
  const ExecutionGuard guard;
  const WarningCollector unwanted;
  StandInArguments stand_ins(call, call.tensors.empty() ? c10::kCPU : c10::kMeta);
  c10::Stack arguments = of_one_element(stand_ins.make(stack), /*fill=*/1);
  const bool makes = call.tensors.empty() || makes_of_number(*call.op);
  if (const auto size = call.op->handle().schema().argumentIndexWithName("size"); size && makes) {
    arguments[*size] = std::vector<int64_t>{2};
  } else if (makes_of_number(*call.op) && arguments[0].isTensor()) {
    arguments[0] = arguments[0].toTensor().new_empty({2});
  }
  for (size_t i = 0; i < arguments.size(); ++i) { // where Meta is named, nothing would be computed
    if (call.op->args()[i].kind == ArgKind::kDevice) {
      arguments[i] = c10::Device(c10::kCPU);
    }
  }
  try {
    call.op->handle().callBoxed(arguments);
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

// Meta kernels do not convert numbers, as the CPU's do, which raise if that overflows. Other ops than pointwise ones
// may not be called on tensors of other sizes.
void check_numbers(const Call& call, const c10::Stack& stack) {
  const bool has_any_size = call.op->fusion() == FusionClass::kPointwise || makes_of_number(*call.op);
  if (!has_any_size || std::none_of(call.scalars.begin(), call.scalars.end(), is_unusual)) {
    return;
  }
  if (const auto error = rehearse_on_little(call, stack); error && is_overflow(error)) {
    std::rethrow_exception(error);
  }
}

Inference ask_meta(const Call& call, const c10::Stack& stack) {
  // Each tensor of the lists is computed for itself, and its size makes no difference to what the kernels refuse.
  if (call.op->is_foreach() && rehearse_on_little(call, stack)) {
    return {.run_now = "on trial"};
  }
  check_numbers(call, stack);
  const DtypeTrial trial = try_dtypes(call, stack);
  try {
    Inference inference = run_on_stand_ins(call, stack, c10::kMeta);
    if (inference.signature && contradicts(trial, *inference.signature)) {
      return {};
    }
    if (trial.may_refuse && !inference.run_now) {
      inference.run_now = "on trial";
    }
    inference.trial = trial.key;
    return inference;
  } catch (const c10::NotImplementedError&) { // there is no Meta kernel
    if (makes_from_nothing(call)) {
      return ask_cpu_unless_large(call, stack);
    }
    return is_in_place(call) && may_rehearse(*call.op) ? ask_cpu(call, stack) : Inference();
  }
}

// Which values fit where a mask is true depends on data: no stand-in is as the mask. (Those of one element, or row,
// do.)
bool puts_by_mask(const Call& call, const c10::Stack& stack) {
  if (call.op->cpu_indices() < 0) {
    return false;
  }
  const auto arguments = torch::jit::last(stack, call.op->num_args());
  const c10::IValue& indices = arguments[call.op->cpu_indices()];
  const c10::IValue& values = arguments[call.op->cpu_indices() + 1];
  const auto is_mask = [](const c10::IValue& index) {
    return index.isTensor() && index.toTensor().defined() &&
           (index.toTensor().scalar_type() == at::kBool || index.toTensor().scalar_type() == at::kByte);
  };
  if (!indices.isList() || !values.isTensor() || values.toTensor().dim() == 0 || values.toTensor().size(0) == 1) {
    return false;
  }
  const auto elements = indices.toListRef();
  return std::any_of(elements.begin(), elements.end(), is_mask);
}

// Meta kernels do not always predict the strides of the CPU's, nor check what
// these check; and many are Python. Where that is cheap, the CPU kernel itself
// is asked.
Inference ask_kernels(const Call& call, const c10::Stack& stack) {
  if (call.op->infer_on_cpu()) {
    if (!puts_by_mask(call, stack)) {
      return ask_cpu_unless_large(call, stack);
    }
    return call.any_written ? Inference{.run_now = "what fits depends on a mask"} : ask_meta(call, stack);
  }
  if (!may_ask_cpu(call)) {
    return ask_meta(call, stack);
  }
  try {
    const AllocationLimit small(static_cast<size_t>(config().small_call.get()) * sizeof(double));
    return ask_cpu(call, stack);
  } catch (const c10::OutOfMemoryError&) {
    return ask_meta(call, stack); // it was not small after all
  } catch (...) {
    Inference inference = ask_meta(call, stack);
    inference.run_now = "on trial";
    return inference;
  }
}

} // namespace

Inference infer_shapes(const Call& call, const c10::Stack& stack) {
  static Counter& inferences = counter("ShapeInference");
  inferences.add();
  if (call.any_written && may_overlap(call)) {
    rehearse(call, stack);
  }
  try {
    return ask_kernels(call, stack);
  } catch (...) {
    // Most likely the user's mistake. The eager kernel will say it best.
    return {.error = std::current_exception()};
  }
}

SignaturePtr signature_of(const Call& call, const c10::Stack& arguments, const c10::Stack& results) {
  // A call that has resized its arguments is another one the next time.
  const bool is_as_before = read_arguments(*call.op, arguments).key == call.key;
  return is_as_before ? make_signature(call, arguments, results, kLazyDevice, /*is_silent=*/true) : nullptr;
}

} // namespace lazyplug
