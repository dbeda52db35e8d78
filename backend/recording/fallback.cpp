#include "backend/recording/fallback.h"

#include <algorithm>
#include <unordered_set>

#include "backend/caches/short_steps.h"
#include "backend/diagnostics/journal.h"
#include "backend/diagnostics/python_hooks.h"
#include "backend/diagnostics/sync_cause.h"
#include "backend/diagnostics/sync_debug.h"
#include "backend/execution/device_context.h"
#include "common/fork_safe_mutex.h"
#include "common/logging.h"
#include "common/metrics.h"
#include "common/parsed_flag.h"
#include "device/fork.h"
#include "device/generator.h"
#include "device/runtime.h"
#include "lowering/calls/light_calls.h"
#include "lowering/calls/random_fill.h"
#include "lowering/execution/interpreter.h"
#include "lowering/nodes/exact_kernels.h"

namespace lazyplug {
namespace {

// Dense tensors on the CPU, which exact kernels take for granted.
bool are_plain(c10::ArrayRef<c10::IValue> arguments) {
  return std::none_of(arguments.begin(), arguments.end(), [](const c10::IValue& value) {
    if (!value.isTensor() || !value.toTensor().defined()) {
      return false;
    }
    const c10::DispatchKeySet keys = value.toTensor().key_set();
    return !keys.has(c10::DispatchKey::CPU) || keys.has(c10::DispatchKey::Python);
  });
}

// One run of an op on the CPU: lazy arguments in, lazy results out.
class CpuCall {
 public:
  CpuCall(const OpInfo& op, c10::Stack* stack)
      : op_(op), stack_(stack), device_(find_device()), tensors_(device_, op.writes()) {}

  // As a graph would; or by PyTorch's kernels, or exact ones.
  enum class Kernels : uint8_t { kOfGraphs, kExact, kOfPyTorch };

  void run(Kernels kernels) {
    const size_t first = stack_->size() - op_.num_args();
    const bool hidden_writes = op_.makes_hidden_writes(torch::jit::last(*stack_, op_.num_args()));
    for (const bool written : {true, false}) { // who reads a storage that is written, has it as it was made for writing
      for (size_t i = 0; i < op_.num_args(); ++i) {
        if (op_.writes_argument(i, hidden_writes) == written) {
          auto& argument = (*stack_)[first + i];
          argument = to_cpu(op_.args()[i].kind, std::move(argument), written);
        }
      }
    }
    {
      const CpuKernelScope scope(op_, device_);
      if (kernels == Kernels::kOfGraphs) {
        const ThreadsOfCall threads(op_, torch::jit::last(*stack_, op_.num_args()));
        run_call(op_, *stack_);
      } else if (!fill_randomly(op_, *stack_) && !(kernels == Kernels::kExact && run_exactly())) {
        op_.handle().callBoxed(stack_);
      }
    }
    tensors_.update_written();
    for (size_t i = stack_->size() - op_.num_returns(); !result_elsewhere_ && i < stack_->size(); ++i) {
      (*stack_)[i] = to_lazy(std::move((*stack_)[i]));
    }
  }

  int64_t num_elements() const {
    return tensors_.num_elements();
  }

 private:
  bool run_exactly() {
    return are_plain(torch::jit::last(*stack_, op_.num_args())) && run_exact_kernel(op_, *stack_);
  }

  // Where the lazy arguments are. Notes whether a device argument asks for a
  // result elsewhere.
  c10::DeviceIndex find_device() {
    std::optional<c10::DeviceIndex> found;
    const auto note = [&](c10::Device device) {
      if (!found && device.type() == kLazyDevice) {
        found = resolve_device_index(device.index());
      }
    };
    const auto note_tensor = [&](const c10::IValue& value) {
      if (value.isTensor() && value.toTensor().defined()) {
        note(value.toTensor().device());
      }
    };
    for (const c10::IValue& value : torch::jit::last(*stack_, op_.num_args())) {
      if (value.isTensorList()) {
        const auto elements = value.toListRef();
        std::for_each(elements.begin(), elements.end(), note_tensor);
      } else if (value.isDevice()) {
        note(value.toDevice());
        result_elsewhere_ |= value.toDevice().type() != kLazyDevice;
      } else {
        note_tensor(value);
      }
    }
    return found.value_or(current_device());
  }

  c10::IValue to_cpu(ArgKind kind, c10::IValue value, bool written) {
    if (value.isTensor()) {
      return tensors_.to_cpu(std::move(value).toTensor(), written);
    }
    if (kind == ArgKind::kTensorList && value.isList()) {
      return list_to_cpu(value, written);
    }
    if (value.isDevice() && value.toDevice().type() == kLazyDevice) {
      return c10::Device(c10::kCPU);
    }
    if (kind == ArgKind::kGenerator && op_.random()) {
      return seeded(op_, static_cast<int64_t>(next_seed(value.toOptional<at::Generator>(), device_)));
    }
    return value;
  }

  c10::IValue list_to_cpu(const c10::IValue& value, bool written) {
    c10::impl::GenericList list(value.toList().elementType());
    for (const c10::IValue& element : value.toListRef()) {
      list.push_back(to_cpu(ArgKind::kTensor, element, written));
    }
    return list;
  }

  c10::IValue to_lazy(c10::IValue value) {
    if (value.isTensor()) {
      return tensors_.to_lazy(std::move(value).toTensor());
    }
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) {
        list.push_back(tensors_.to_lazy(tensor));
      }
      return list;
    }
    return value;
  }

  const OpInfo& op_;
  c10::Stack* stack_;
  bool result_elsewhere_ = false;
  const c10::DeviceIndex device_;
  CpuTensors tensors_;
};

bool first_time(const OpInfo& op) {
  static ForkSafeMutex mutex;
  static auto* warned = new std::unordered_set<const OpInfo*>();
  const ForkSafeLock lock(mutex);
  return warned->insert(&op).second;
}

std::string at_current_line() {
  const char* location = current_location();
  return location ? std::string(" (at ") + location + ")" : "";
}

enum class Fallback : uint8_t { kSilent, kWarn, kError };

Fallback mode() {
  static ParsedFlag<Fallback> mode(config().fallback, [](const std::string& text) {
    return text == "error" ? Fallback::kError : text == "warn" ? Fallback::kWarn : Fallback::kSilent;
  });
  return mode.get();
}

void warn(const OpInfo& op, const char* reason) {
  if (mode() != Fallback::kWarn || !first_time(op)) {
    return;
  }
  TORCH_WARN(op.name(), " runs on the CPU at once instead of being recorded: ", reason, at_current_line());
}

void refuse(const OpInfo& op, const char* reason) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      mode() != Fallback::kError,
      op.name(),
      " cannot be recorded: ",
      reason,
      ". It would run on the CPU, which the setting fallback=error forbids",
      at_current_line(),
      ".");
}

// The device has made the call, though it is no node.
void note_at_once(const OpInfo& op, int64_t num_elements, const char* reason, int64_t start_ns) {
  static Counter& runs = counter("RunAtOnce");
  runs.add();
  op.calls().add();
  note_call(op, num_elements);
  if (config().debug.get()) {
    const int64_t duration_ns = since(start_ns);
    const char* location = current_location();
    add_to_journal(
        {.kind = JournalKind::kRun,
         .cause = "at once",
         .detail = reason,
         .location = location,
         .duration_ns = duration_ns,
         .ops = {{op.name(), location, static_cast<float>(duration_ns) * 1e-9F}}});
  }
}

} // namespace

void run_fallback(const OpInfo& op, c10::Stack* stack, const char* reason) {
  static Counter& total = counter("FallbackTotal");
  const bool forced = std::string_view(reason) == kForced;
  if (!forced) {
    refuse(op, reason);
  }
  note_sync(op.name(), " on the CPU");
  const SyncCause cause("fallback");
  const int64_t start = journal_start();
  CpuCall(op, stack).run(forced ? CpuCall::Kernels::kOfPyTorch : CpuCall::Kernels::kExact);
  total.add();
  op.fallbacks().add();
  log_debug(op.name(), " ran on the CPU: ", reason);
  if (config().debug.get()) {
    add_to_journal(
        {.kind = JournalKind::kFallback,
         .cause = op.name(),
         .detail = reason,
         .location = current_location(),
         .duration_ns = since(start)});
  }
  if (!forced) {
    warn(op, reason);
  }
}

void run_at_once(const OpInfo& op, c10::Stack* stack, const char* reason) {
  const SyncCause cause(reason);
  const int64_t start = journal_start();
  CpuCall call(op, stack);
  call.run(CpuCall::Kernels::kOfGraphs);
  note_at_once(op, call.num_elements(), reason, start);
}

void run_at_once(
    const OpInfo& op,
    c10::DeviceIndex device,
    const char* reason,
    c10::function_ref<void(CpuTensors&)> run) {
  const SyncCause cause(reason);
  const int64_t start = journal_start();
  CpuTensors tensors(device, /*may_write=*/false);
  run(tensors);
  note_at_once(op, tensors.num_elements(), reason, start);
}

void run_writing_at_once(
    const OpInfo& op,
    c10::DeviceIndex device,
    const char* reason,
    c10::function_ref<void(CpuTensors&)> run) {
  const SyncCause cause(reason);
  const int64_t start = journal_start();
  CpuTensors tensors(device, /*may_write=*/true);
  run(tensors);
  tensors.update_written();
  note_at_once(op, tensors.num_elements(), reason, start);
}

at::Tensor run_small_at_once(
    const OpInfo& op,
    const SmallCalls& calls,
    c10::DeviceIndex device,
    const char* reason,
    c10::ArrayRef<c10::IValue> arguments) {
  check_not_bad_fork(); // a factory asks for no memory that would
  const SyncCause cause(reason);
  const int64_t start = journal_start();
  // Another thread may give a tensor other memory.
  c10::SmallVector<std::pair<const LazyStorageImpl*, c10::Storage>, 3> held;
  int64_t num_elements = 0;
  const auto memory_of = [&](const c10::TensorImpl& tensor, bool written) -> void* {
    auto* storage = LazyStorageImpl::of(&tensor);
    if (!storage) {
      return nullptr;
    }
    num_elements = std::max(num_elements, tensor.numel());
    const auto num_held =
        std::count_if(held.begin(), held.end(), [&](const auto& other) { return other.first == storage; });
    held.emplace_back(
        storage,
        written ? DeviceContext::materialize_for_write(*storage, static_cast<size_t>(num_held))
                : DeviceContext::materialize(*storage));
    auto* memory = static_cast<char*>(held.back().second.mutable_data());
    return memory ? memory + tensor.storage_offset() * static_cast<int64_t>(tensor.itemsize()) : nullptr;
  };
  at::Tensor result;
  {
    const KernelMemoryScope scope(device);
    const RunningOp running(op.name().c_str());
    result = calls.run(arguments, memory_of);
  }
  if (result.defined()) {
    result = op.writes() ? std::move(result) : move_to_device(std::move(result), device);
    note_at_once(op, num_elements, reason, start);
  }
  return result;
}

} // namespace lazyplug
