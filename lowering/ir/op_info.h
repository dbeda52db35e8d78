#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/ArrayRef.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/metrics.h"

namespace lazyplug {

// What an argument is to the tracer.
enum class ArgKind : uint8_t {
  kTensor,     // Tensor or Tensor?
  kTensorList, // Tensor[] or Tensor?[]
  kScalar,     // number, number?, number[], float or float?, and what traits name: may change from call to call
  kGenerator,  // Generator?
  kDevice,     // Device or Device?
  kConstant,   // anything else: part of the operation's identity
};

struct ArgInfo {
  std::string name;
  ArgKind kind;
  bool written; // the schema says that the call writes it
  bool out;     // an out= argument, which the call may resize
  // Of a number: values that decide which of the CPU's kernels runs, or how it rounds, so that calls with each of them,
  // and with others, are different calls.
  c10::ArrayRef<double> decisive;

  // Which of them it is, from 1 on; 0: none.
  size_t decision(const c10::IValue& number) const;
};

// With what an op can share a kernel.
enum class FusionClass : uint8_t {
  kNone,      // nothing
  kPointwise, // other such ops: each element of its results depends on one element of each operand
};

// Facts about an op that its schema does not tell. They stand in the table in
// backend/registration/op_table.h, each with its reason.
struct OpTraits {
  // Scalars decide the output's shape, so they are constants.
  bool scalars_are_constants = false;
  // Integers, and lists of them, that change from call to call, as numbers do. They may
  // decide about shapes.
  std::vector<std::string> int_inputs = {};
  // Tagged as having an output whose shape depends on data, but often it does
  // not: only if there is a mask among the tensors after the first ...
  bool shape_may_be_static = false;
  // ... or if this argument is None.
  std::string size_argument = {};
  // The Meta kernel promises other shapes or strides than the CPU kernel
  // returns, or checks less: run the latter on zeros to learn them.
  bool infer_on_cpu = false;
  // ... also if they are large: that takes no longer than to read them.
  bool is_quick = false;
  // Arguments that are written although the schema does not say so ...
  std::vector<std::string> hidden_writes = {};
  // ... but only if this bool argument is true (empty: always).
  std::string hidden_writes_if = {};
  // Index tensors in this argument may live on the CPU.
  std::string cpu_indices = {};
  // If it is not what the tag `pointwise` says.
  std::optional<FusionClass> fusion = {};
  // If not empty: why no trace can hold what the op returns.
  std::string not_traceable_because = {};

  bool operator==(const OpTraits& other) const = default;
};

// What an op's kernels do with several threads.
enum class ThreadUse : uint8_t {
  kLoops, // divide long loops, so that small tensors have the same bits with any number of threads
  // The bits depend on the number of threads, also of small ones.
  kProduct,     // of matrices; see OpInfo::first_factor()
  kConvolution, // of the first argument and the second, or a gradient of that
  kMatrices,    // decompose matrices, or solve equations
  kNorm,        // of the first argument's rows or channels
  kAttention,   // of the first arguments
  kTransform,   // Fourier's, of the first argument
  kOwn,         // what a library chooses
};

// An operator as the tracer and the lowering see it. Alive as long as the process:
// refer to it by pointer. An op that is registered anew, perhaps with another
// schema, is another one.
class OpInfo {
 public:
  OpInfo(c10::OperatorHandle handle, const OpTraits& traits);

  // Not for ops that may have been deregistered, which is possible once a call
  // has been recorded.
  const c10::OperatorHandle& handle() const {
    return handle_;
  }
  // Calls the op, or raises if it has been deregistered.
  void call(c10::Stack& stack) const;
  // "aten::add.Tensor"
  const std::string& name() const {
    return name_;
  }
  // "aten::add"
  const std::string& base_name() const {
    return base_name_;
  }
  // The same, interned.
  c10::Symbol symbol() const {
    return symbol_;
  }
  // "Tensor"; often empty.
  const std::string& overload() const {
    return overload_;
  }
  const std::vector<ArgInfo>& args() const {
    return args_;
  }
  size_t num_args() const {
    return args_.size();
  }
  size_t num_returns() const {
    return return_aliases_.size();
  }
  // Counts recorded calls, in the metrics as "lazy::add" for all overloads.
  Counter& calls() const {
    return calls_;
  }
  // Counts calls that have run on the CPU, in the metrics as "aten::add" for all overloads.
  Counter& fallbacks() const;
  // One of PyTorch's own.
  bool is_aten() const {
    return is_aten_;
  }
  // Does the same to each tensor of its lists: recorded as one node, or, where
  // that is not possible, as the ops that its composite kernel makes of it.
  bool is_foreach() const {
    return is_foreach_;
  }
  // The first of two arguments that a library multiplies as matrices, over its last dimension, in parts that the
  // library chooses; or -1. The other is the next one.
  int first_factor() const {
    return first_factor_;
  }
  ThreadUse thread_use() const {
    return thread_use_;
  }
  FusionClass fusion() const {
    return fusion_;
  }
  // True if a call may write one of its arguments.
  bool writes() const {
    return writes_;
  }
  // The bool argument that decides whether hidden writes happen, or -1.
  int hidden_writes_if() const {
    return hidden_writes_if_;
  }
  // Whether a call with these arguments writes some of which its schema does not say so.
  bool makes_hidden_writes(c10::ArrayRef<c10::IValue> arguments) const {
    return !hidden_writes_.empty() && (hidden_writes_if_ < 0 || arguments[hidden_writes_if_].toBool());
  }
  // Whether a call, which makes hidden writes or does not, writes this argument.
  bool writes_argument(size_t arg, bool with_hidden) const {
    return args_[arg].written || (with_hidden && !hidden_writes_.empty() && hidden_writes_[arg]);
  }
  // Draws random numbers from its Generator argument.
  bool random() const {
    return random_;
  }
  // The output's shape may depend on the values of the arguments.
  bool shape_may_depend_on_data() const {
    return shape_may_depend_on_data_;
  }
  // The argument that tells the shape, or -1.
  int size_argument() const {
    return size_argument_;
  }
  // What the op returns depends on data, so that it cannot be traced.
  bool depends_on_data() const {
    return depends_on_data_;
  }
  bool infer_on_cpu() const {
    return infer_on_cpu_;
  }
  bool is_quick() const {
    return is_quick_;
  }
  // The argument whose tensors may live on the CPU, or -1.
  int cpu_indices() const {
    return cpu_indices_;
  }
  // For each return, the argument it is an alias of, or -1.
  const std::vector<int>& return_aliases() const {
    return return_aliases_;
  }
  // Whether it returns nothing but arguments. Some ops that write return what they make, too.
  bool returns_only_arguments() const {
    return std::all_of(return_aliases_.begin(), return_aliases_.end(), [](int alias) { return alias >= 0; });
  }
  // False if the op can never be traced: it returns something that is not a
  // tensor, its output's shape depends on data, or takes arguments that a
  // graph cannot hold.
  bool traceable() const {
    return not_traceable_because_.empty();
  }
  const std::string& not_traceable_because() const {
    return not_traceable_because_;
  }

  // How often the op has been given other kernels. What kernels said of a call
  // holds for one version of them.
  uint32_t kernel_version() const {
    return kernel_version_.load(std::memory_order_relaxed);
  }
  void note_new_kernels() {
    kernel_version_.fetch_add(1, std::memory_order_relaxed);
  }
  // The op is about to be deregistered.
  void retire() {
    is_retired_.store(true);
  }
  bool is_retired() const {
    return is_retired_.load();
  }

 private:
  void read_arguments(const OpTraits& traits);
  c10::ArrayRef<double> decisive_values(const std::string& argument) const;
  void read_returns();
  void judge_traceability(const OpTraits& traits);
  int argument_index(const std::string& name) const;
  int find_first_factor() const;
  ThreadUse find_thread_use() const;

  c10::OperatorHandle handle_;
  std::string name_;
  std::string base_name_;
  std::string overload_;
  c10::Symbol symbol_;
  Counter& calls_;
  mutable std::atomic<Counter*> fallbacks_{nullptr}; // most ops never need it
  std::vector<ArgInfo> args_;
  std::vector<bool> hidden_writes_; // by argument; empty: none
  std::vector<int> return_aliases_;
  int hidden_writes_if_ = -1;
  int cpu_indices_ = -1;
  int size_argument_ = -1;
  bool is_aten_ = false;
  bool is_foreach_ = false;
  int first_factor_ = -1;
  ThreadUse thread_use_ = ThreadUse::kLoops;
  FusionClass fusion_ = FusionClass::kNone;
  bool writes_ = false;
  bool random_ = false;
  bool infer_on_cpu_ = false;
  bool is_quick_ = false;
  bool shape_may_depend_on_data_ = false;
  bool depends_on_data_ = false;
  std::atomic<bool> is_retired_{false};
  std::atomic<uint32_t> kernel_version_{0};
  std::string not_traceable_because_;
};

} // namespace lazyplug
