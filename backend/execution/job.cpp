#include "backend/execution/job.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <c10/util/ApproximateClock.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>

#include "backend/caches/beginnings.h"
#include "backend/caches/compile_storms.h"
#include "backend/caches/find_or_compile.h"
#include "backend/caches/rare_graphs.h"
#include "backend/diagnostics/journal.h"
#include "common/config.h"
#include "common/fail_point.h"
#include "common/intra_op_threads.h"
#include "common/metrics.h"
#include "device/activity_profiler.h"
#include "device/cpu_allocator.h"
#include "device/memory_pools.h"
#include "lowering/calls/runtime_ops.h"
#include "lowering/execution/call_errors.h"
#include "lowering/execution/execution_guard.h"
#include "lowering/execution/interpreter.h"
#include "lowering/ir/trace_slice.h"

namespace lazyplug {
namespace {

using Clock = std::chrono::steady_clock;

// One failure per error, however many results it spoils: those that leaves
// brought along, then those of this job.
class Failures {
 public:
  void add_inherited(FailurePtr failure) {
    all_.push_back(std::move(failure));
    ++num_inherited_;
  }

  FailurePtr find_or_add(const std::exception_ptr& error) {
    for (const auto& failure : all_) {
      if (failure->error == error) {
        return failure;
      }
    }
    return all_.emplace_back(std::make_shared<Failure>(error));
  }

  bool empty() const {
    return all_.empty();
  }

  std::vector<FailurePtr> of_this_job() && {
    all_.erase(all_.begin(), all_.begin() + static_cast<std::ptrdiff_t>(num_inherited_));
    return std::move(all_);
  }

 private:
  std::vector<FailurePtr> all_;
  size_t num_inherited_ = 0;
};

// Takes the memory if nobody else can ask for it, so that it may be donated.
c10::Storage take_memory(FutureContentsPtr data) {
  return data.is_uniquely_owned() ? std::move(data->memory) : data->memory;
}

ComputationInputs collect_inputs(Job& job, Failures& failures) {
  ComputationInputs inputs{std::move(job.trace.leaves()), std::move(job.trace.all_scalars()), {}};
  pass(FailPoint::kInputs);
  for (PendingLeaf& pending : job.pending_leaves) {
    pending.data->wait();
    if (const FailurePtr failure = pending.data->failure) {
      failures.add_inherited(failure);
      inputs.errors.resize(inputs.leaves.size());
      inputs.errors[pending.leaf] = failure->error;
    }
    if (c10::Storage memory = take_memory(std::move(pending.data))) {
      inputs.leaves[pending.leaf] = make_cpu_tensor(std::move(memory), *pending.layout);
    }
  }
  return inputs;
}

// Names the user's lines, where they are known. The computation cannot: it may
// have been compiled for other lines.
void add_locations(const Trace& trace, const std::vector<ComputationOutput>& outputs) {
  std::vector<std::exception_ptr> done;
  for (const ComputationOutput& output : outputs) {
    const char* location = output.failed_node == Value::kNone ? nullptr : trace.node(output.failed_node).location;
    if (output.error && location && std::find(done.begin(), done.end(), output.error) == done.end()) {
      add_context(output.error, std::string("recorded at ") + location);
      done.push_back(output.error);
    }
  }
}

// Two storages never share memory, though a kernel may have returned its input.
c10::Storage unshare(c10::Storage memory, c10::DeviceIndex device) {
  static Counter& copies = counter("AliasedResultCopied");
  if (memory.use_count() == 1 || memory.nbytes() == 0) {
    return memory;
  }
  copies.add();
  c10::Storage copy = allocate_storage(memory.nbytes(), device);
  std::memcpy(copy.mutable_data(), memory.data(), memory.nbytes());
  return copy;
}

// Other jobs may have held it, too: tools/tsan.supp names this function.
void give_up(at::Tensor tensor) {
  tensor.reset();
}

c10::Storage result_memory(const Job& job, size_t root, at::Tensor result) {
  result = ensure_layout(result, *job.layouts[root]);
  c10::Storage memory = result.storage();
  give_up(std::move(result));
  return unshare(std::move(memory), job.device);
}

void deliver(const Job& job, std::vector<ComputationOutput> outputs, Failures& failures) {
  add_locations(job.trace, outputs);
  for (size_t i = 0; i < outputs.size(); ++i) {
    c10::Storage memory;
    try {
      TORCH_INTERNAL_ASSERT(outputs[i].tensor.defined() || outputs[i].error, "a kernel returned no tensor");
      pass(FailPoint::kDelivery);
      if (outputs[i].tensor.defined()) {
        memory = result_memory(job, i, std::move(outputs[i].tensor));
      }
    } catch (...) {
      outputs[i].error = std::current_exception();
    }
    job.results[i]->set(std::move(memory), outputs[i].error ? failures.find_or_add(outputs[i].error) : nullptr);
  }
}

void fail_all(const Job& job, const std::exception_ptr& error, Failures& failures) {
  for (const FutureContentsPtr& result : job.results) {
    if (!result->is_ready()) {
      result->set({}, failures.find_or_add(error));
    }
  }
}

std::vector<Lesson> lessons_of(const Trace& trace, std::vector<UnexpectedStrides> unexpected) {
  std::vector<Lesson> lessons;
  for (UnexpectedStrides& result : unexpected) {
    lessons.push_back({trace.node(result.node).signature, result.output, std::move(result.strides)});
  }
  return lessons;
}

// Empty if nothing was timed.
std::vector<float> seconds_by_call(const Trace& trace, const std::vector<KernelTime>& times) {
  std::vector<float> by_call;
  if (times.empty()) {
    return by_call;
  }
  std::vector<float> by_node(trace.size());
  for (const KernelTime& time : times) {
    by_node[time.node] += time.seconds;
  }
  for (NodeId node = 0; node < trace.size(); ++node) {
    if (trace.node(node).kind == NodeKind::kCall) {
      by_call.push_back(by_node[node]);
    }
  }
  return by_call;
}

std::vector<JournalOp> journal_ops(const Trace& trace, const std::vector<KernelTime>& times) {
  std::vector<JournalOp> ops;
  for (const KernelTime& time : times) {
    const Node& node = trace.node(time.node);
    if (node.kind == NodeKind::kCall) {
      ops.push_back({node.signature->op->name(), node.location, time.seconds});
    }
  }
  return ops;
}

std::vector<ProfiledKernel> profiled_kernels(const std::vector<KernelTime>& times, int64_t start_ns) {
  const auto ns = [](float seconds) { return static_cast<int64_t>(1e9 * seconds); };
  std::vector<ProfiledKernel> kernels;
  for (const KernelTime& time : times) {
    if (time.name) {
      kernels.push_back({time.name, start_ns + ns(time.start), ns(time.seconds)});
    }
  }
  return kernels;
}

bool has_errors(const ComputationResult& result) {
  return std::any_of(result.outputs.begin(), result.outputs.end(), [](const auto& output) {
    return output.error != nullptr;
  });
}

// Those of ops whose kernels have run.
void mark_proven(const Trace& trace, c10::ArrayRef<Value> roots) {
  for (const NodeId id : needed_nodes(trace, roots)) {
    if (const auto& signature = trace.node(id).signature) {
      signature->proven.value.store(true, std::memory_order_relaxed);
    }
  }
}

// What a thread has while it runs a job, or a part of one.
class JobScope {
 public:
  JobScope(c10::DeviceIndex device, FloatControl float_control) : float_control_(float_control), memory_(device) {}

 private:
  const FloatControlScope float_control_;
  const KernelMemoryScope memory_;
  // Whichever thread this is: a few kernels return less if it is off.
  const c10::AutoGradMode grad_mode_{true};
};

// The threads of the job's worker.
class JobThreads final : public SideThreads {
 public:
  explicit JobThreads(const Job& job)
      : worker_(job.side),
        device_(job.device),
        num_threads_(at::get_num_threads()),
        float_control_(job.float_control) {}

  SideThreads* get() {
    return worker_ ? this : nullptr;
  }
  void offer(SideTask& task) override {
    worker_->offer(task);
  }
  void await(SideTask& task) override {
    worker_->await(task);
  }
  void run_as_job(c10::function_ref<void()> body) override {
    IntraOpThreadsScope threads;
    threads.use(num_threads_);
    const JobScope scope(device_, float_control_);
    body();
  }

 private:
  Worker* const worker_;
  const c10::DeviceIndex device_;
  const int num_threads_;
  const FloatControl float_control_;
};

// Calls whose results died before anybody could read them are not computed, but the trace that holds them is known by
// them, too. Where their number varies, as in a loop that is cut at ever other places and drops what it makes, each
// trace would be another graph; so if what is needed of it has been needed before, only that is looked up.
bool leave_out_unneeded(Job& job) {
  static Counter& counter = lazyplug::counter("UnneededLeftOut");
  TraceSlice needed = extract(job.trace, job.roots);
  if (needed.trace.size() == job.trace.size() || !is_graph_familiar(needed.trace, needed.roots)) {
    return false;
  }
  std::vector<PendingLeaf> pending;
  for (PendingLeaf& leaf : job.pending_leaves) {
    const auto place = std::find(needed.leaves.begin(), needed.leaves.end(), leaf.leaf);
    if (place != needed.leaves.end()) {
      pending.push_back({static_cast<uint32_t>(place - needed.leaves.begin()), leaf.layout, std::move(leaf.data)});
    }
  }
  if (!job.provenance.origins.empty()) {
    std::vector<const char*> origins;
    for (const uint32_t leaf : needed.leaves) {
      origins.push_back(job.provenance.origins[leaf]);
    }
    job.provenance.origins = std::move(origins);
  }
  job.pending_leaves = std::move(pending);
  job.roots = std::move(needed.roots);
  job.whole = std::exchange(job.trace, std::move(needed.trace));
  job.whole.leaves().clear(); // their memory may be donated
  counter.add();
  return true;
}

Ages ages_of(const Job& job) {
  Ages ages{.newest = job.newest_tensor};
  ages.device = static_cast<size_t>(job.device);
  ages.graph = job.trace.hash().lo;
  if (const MemoryPool* pool = device_pool(job.device)) {
    ages.times_empty = pool->times_empty();
  }
  for (size_t leaf = 0; leaf < job.trace.leaves().size(); ++leaf) {
    const int64_t id = job.trace.leaf_info(leaf).tensor_id;
    if (id != DeviceDataInfo::kNoTensor) {
      ages.oldest_read = std::min(ages.oldest_read, static_cast<uint64_t>(id));
    }
  }
  return ages;
}

CachedComputationPtr find_known(Job& job) {
  auto known = find_compiled(job.trace, job.roots);
  if (!known && !job.timed && leave_out_unneeded(job)) { // a timed one tells the times of all calls
    known = find_compiled(job.trace, job.roots);
  }
  return known;
}

// Null if the job is to run call by call.
CachedComputationPtr find_graph(Job& job) {
  const Ages ages = ages_of(job); // before what nobody needs is left out
  auto known = find_known(job);
  if (note_ages(ages, known != nullptr)) {
    note_another_program();
  }
  if (known) {
    return known;
  }
  return runs_uncompiled(job.trace, job.roots) ? nullptr : find_or_compile(job.trace, job.roots, job.provenance);
}

ComputationResult compute(Job& job, Failures& failures) {
  static Counter& executed = counter("NodesExecuted");
  static Timer& time = timer("ExecuteTime");
  pass(FailPoint::kCompile);
  const CachedComputationPtr graph = find_graph(job); // before the inputs are taken from the trace
  const ComputationPtr computation = graph ? graph->computation : make_interpreter(job.trace, job.roots);
  ComputationInputs inputs = collect_inputs(job, failures);
  executed.add(static_cast<int64_t>(computation->num_ops()));
  const bool tells = config().debug.get();
  const bool is_profiled = is_profiling();
  inputs.timed = job.timed || tells || is_profiled;
  JobThreads side_threads(job);
  inputs.side_threads = side_threads.get();
  const TimerScope scope(time);
  const int64_t start = journal_start();
  pass(FailPoint::kRun);
  const int64_t start_ns = is_profiled ? c10::getTime() : 0;
  auto result = computation->run(std::move(inputs));
  if (is_profiled) {
    add_profiled_kernels(job.device, profiled_kernels(result.times, start_ns));
  }
  if (tells) {
    add_to_journal(
        {.kind = JournalKind::kRun,
         .cause = graph ? "graph" : "call by call",
         .detail = std::to_string(computation->num_ops()) + " ops",
         .location = job.provenance.cut.location,
         .duration_ns = since(start),
         .trace = job.provenance.cut.trace,
         .ops = journal_ops(job.trace, result.times)});
  }
  return result;
}

} // namespace

bool may_teach(const Trace& trace, c10::ArrayRef<Value> roots) {
  const std::vector<NodeId> needed = needed_nodes(trace, roots);
  return std::any_of(needed.begin(), needed.end(), [&](NodeId id) {
    const auto& signature = trace.node(id).signature;
    return signature && !signature->proven.value.load(std::memory_order_relaxed);
  });
}

JobReport run_job(Job job) {
  static Counter& flushes = counter("Flush");
  flushes.add();
  Failures failures;
  JobReport report;
  const auto start = job.timed ? Clock::now() : Clock::time_point();
  try {
    IntraOpThreadsScope threads; // of this thread, which may only be waiting for the job
    threads.use(job.num_threads > 0 ? job.num_threads : threads.before());
    const JobScope scope(job.device, job.float_control);
    ComputationResult result = compute(job, failures);
    report.kernels = job.timed ? seconds_by_call(job.trace, result.times) : std::vector<float>();
    report.lessons = lessons_of(job.trace, std::move(result.unexpected));
    if (job.may_teach && failures.empty() && !has_errors(result)) {
      mark_proven(job.trace, job.roots);
    }
    const ExecutionGuard guard;
    deliver(job, std::move(result.outputs), failures);
  } catch (...) {
    fail_all(job, std::current_exception(), failures);
  }
  report.failures = std::move(failures).of_this_job();
  if (job.timed) {
    const double kernels = std::accumulate(report.kernels.begin(), report.kernels.end(), 0.0);
    report.overhead = std::chrono::duration<double>(Clock::now() - start).count() - kernels;
  }
  return report;
}

} // namespace lazyplug
