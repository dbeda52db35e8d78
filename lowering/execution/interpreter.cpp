#include "lowering/execution/interpreter.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "common/config.h"
#include "common/intra_op_threads.h"
#include "common/running_op.h"
#include "lowering/calls/function_kernel.h"
#include "lowering/calls/light_calls.h"
#include "lowering/calls/norm_gradient_kernel.h"
#include "lowering/calls/random_fill.h"
#include "lowering/calls/runtime_ops.h"
#include "lowering/execution/call_errors.h"
#include "lowering/execution/execution_guard.h"
#include "lowering/execution/reproducer.h"
#include "lowering/execution/warnings.h"
#include "lowering/fusion/pointwise_ops.h"
#include "lowering/ir/dump.h"
#include "lowering/nodes/exact_kernels.h"

namespace lazyplug {
namespace {

using Clock = std::chrono::steady_clock;

// Types of tensors say neither where these begin nor their bits, and errors are those of graphs.
std::string describe_operand(const Geometry& operand) {
  Geometry described = operand;
  described.offset = 0;
  described.conj = described.neg = described.wrapped_number = false;
  return operand.dtype == at::ScalarType::Undefined ? "None" : to_string(described);
}

std::string describe(const Signature& signature) {
  std::vector<std::string> operands;
  auto next = signature.operands.begin();
  for (const ArgBinding& arg : signature.args) {
    const bool is_one = arg.kind == ArgBinding::Kind::kOperand;
    const size_t count = arg.kind == ArgBinding::Kind::kOperandList ? arg.count : is_one ? 1 : 0;
    for (size_t i = 0; i < count && next != signature.operands.end(); ++i) {
      operands.push_back(describe_operand(*next++));
    }
    if (arg.kind == ArgBinding::Kind::kConstant && arg.constant.isNone()) {
      operands.emplace_back("None");
    }
  }
  return describe_call(signature.op->name().c_str(), operands);
}

// The nodes that are run, in order, and where their results stand.
struct Plan {
  Plan(const Trace& trace, c10::ArrayRef<Value> roots)
      : trace(trace), roots(roots), nodes(needed_nodes(trace, roots)), first_results(trace.size()) {
    for (const NodeId id : nodes) {
      first_results[id] = num_results;
      num_results += trace.node(id).num_outputs;
      num_ops += trace.node(id).kind == NodeKind::kDeviceData ? 0 : 1;
    }
  }

  size_t place(Value value) const {
    return first_results[value.node] + value.output;
  }

  const Trace& trace;
  const c10::ArrayRef<Value> roots;
  const std::vector<NodeId> nodes;
  std::vector<uint32_t> first_results; // by node
  uint32_t num_results = 0;
  size_t num_ops = 0;
};

// One run: what it has computed so far.
class Run {
 public:
  Run(const Plan& plan, ComputationInputs inputs)
      : plan_(plan), trace_(plan.trace), inputs_(std::move(inputs)), results_(plan.num_results) {
    for (const NodeId id : plan.nodes) {
      for (const Operand& operand : trace_.operands(trace_.node(id))) {
        if (operand.value.defined()) {
          ++result(operand.value).num_reads;
        }
      }
    }
    for (const Value root : plan.roots) {
      ++result(root).num_reads;
    }
  }

  ComputationResult run() && {
    for (const NodeId id : plan_.nodes) {
      const Node& node = trace_.node(id);
      switch (node.kind) {
        case NodeKind::kDeviceData:
          take_leaf(id, node.leaf_index);
          break;
        case NodeKind::kEmpty:
          note_errors(id, [&] { result({id, 0}).tensor = empty(*node.layout); });
          break;
        case NodeKind::kCall:
          inputs_.timed ? call_timed(id) : call(id);
          break;
      }
    }
    for (const Value root : plan_.roots) {
      Result& of_root = result(root);
      told_.outputs.push_back({std::move(of_root.tensor), of_root.error, of_root.failed_node});
    }
    return std::move(told_);
  }

 private:
  struct Result {
    at::Tensor tensor;
    uint32_t num_reads = 0; // that are still to come
    std::exception_ptr error = nullptr;
    NodeId failed_node = Value::kNone;
  };

  Result& result(Value value) {
    return results_[plan_.place(value)];
  }

  // The last reader takes it, so that memory is freed, or reused, as early as possible.
  at::Tensor read(Value value, uint32_t num_reads = 1) {
    Result& of_value = result(value);
    of_value.num_reads -= num_reads;
    return of_value.num_reads == 0 ? std::move(of_value.tensor) : of_value.tensor;
  }

  void take_leaf(NodeId id, uint32_t leaf) {
    Result& of_leaf = result({id, 0});
    of_leaf.tensor = std::move(inputs_.leaves[leaf]);
    of_leaf.error = inputs_.errors.empty() ? nullptr : inputs_.errors[leaf];
  }

  void call_timed(NodeId id) {
    const auto start = Clock::now();
    call(id);
    const auto seconds = [](Clock::duration duration) { return std::chrono::duration<float>(duration).count(); };
    const char* name = trace_.node(id).signature->op->name().c_str();
    told_.times.push_back({id, name, seconds(start - begin_), seconds(Clock::now() - start)});
  }

  void call(NodeId id) {
    const Node& node = trace_.node(id);
    if (const Result* failed = find_error(node)) {
      const Result error{{}, 0, failed->error, failed->failed_node};
      note_errors(id, [&] {
        hand_on_written(id);
        drop_operands(node);
      });
      spoil(id, error.error, error.failed_node);
      return;
    }
    const RunningOp running(node.signature->op->name().c_str());
    note_errors(id, [&] {
      hand_on_written(id);
      gather(id);
      choose_threads(*node.signature);
      run_call(*node.signature->op, stack_);
      take_results(id);
    });
    stack_.clear();
    operands_.clear();
  }

  template <typename F>
  void note_errors(NodeId id, const F& run) {
    try {
      run();
    } catch (...) {
      const std::exception_ptr error = std::current_exception();
      const Node& node = trace_.node(id);
      if (node.kind == NodeKind::kCall) {
        if (!operands_.empty()) {
          add_reproducer(error, *node.signature->op, operands_);
        }
        add_context(error, describe(*node.signature));
      }
      spoil(id, error, id);
    }
  }

  const Result* find_error(const Node& node) {
    for (const Operand& operand : trace_.operands(node)) {
      if (operand.value.defined() && result(operand.value).error) {
        return &result(operand.value);
      }
    }
    return nullptr;
  }

  // What was to be written keeps its contents.
  void spoil(NodeId id, const std::exception_ptr& error, NodeId failed_node) {
    for (uint32_t i = 0; i < trace_.node(id).num_outputs; ++i) {
      Result& spoiled = result({id, i});
      spoiled.error = error;
      spoiled.failed_node = failed_node;
    }
  }

  void drop_operands(const Node& node) {
    for (const Operand& operand : trace_.operands(node)) {
      if (operand.value.defined() && !find_written(node, operand.value)) {
        read(operand.value);
      }
    }
  }

  std::optional<uint32_t> find_written(const Node& node, Value value) const {
    for (uint32_t i = first_written(node); i < node.num_outputs; ++i) {
      if (trace_.written_value(node, i - first_written(node)) == value) {
        return i;
      }
    }
    return std::nullopt;
  }
  static uint32_t first_written(const Node& node) {
    return static_cast<uint32_t>(node.signature->outputs.size());
  }

  // Makes each value that the call writes private; what the call reads of it is the same memory, as in eager.
  void hand_on_written(NodeId id) {
    const Node& node = trace_.node(id);
    for (uint32_t i = first_written(node); i < node.num_outputs; ++i) {
      const Value value = trace_.written_value(node, i - first_written(node));
      const auto operands = trace_.operands(node);
      const auto num_reads = std::count_if(operands.begin(), operands.end(), [&](const Operand& operand) {
        return operand.value == value;
      });
      if (at::Tensor base = read(value, static_cast<uint32_t>(num_reads)); base.defined()) {
        result({id, i}).tensor = own(std::move(base), trace_.layout(value));
      }
    }
  }

  at::Tensor operand(NodeId id, const Operand& operand) {
    if (!operand.value.defined()) {
      return {};
    }
    const Node& node = trace_.node(id);
    const auto written = find_written(node, operand.value);
    at::Tensor base = written ? result({id, *written}).tensor : read(operand.value);
    if (!operand.view) {
      return base;
    }
    const Geometry& layout = trace_.layout(operand.value);
    if (!operand.view->moves()) {
      return strided_view(base, layout, *operand.view);
    }
    Geometry view = *operand.view;
    view.offset = 0;
    const int64_t offset = inputs_.scalars[operand.view->offset_scalar].toInt();
    return moved(strided_view(base, layout, view), offset, view.extent_bytes());
  }

  // Operands of one value by one view are one tensor.
  c10::SmallVector<at::Tensor, 8> operands(NodeId id) {
    const auto recorded = trace_.operands(trace_.node(id));
    c10::SmallVector<at::Tensor, 8> tensors;
    for (const Operand& each : recorded) {
      const auto* first =
          each.view ? std::find_if(
                          recorded.begin(),
                          &each,
                          [&](const Operand& other) { return other.value == each.value && other.view == each.view; })
                    : &each;
      tensors.push_back(first == &each ? operand(id, each) : tensors[first - recorded.begin()]);
      if (first != &each && !find_written(trace_.node(id), each.value)) {
        read(each.value);
      }
    }
    return tensors;
  }

  void gather(NodeId id) {
    const Node& node = trace_.node(id);
    auto tensors = operands(id);
    auto operand = tensors.begin();
    size_t scalar = node.first_scalar;
    const auto as_value = [](at::Tensor& tensor) {
      return tensor.defined() ? c10::IValue(std::move(tensor)) : c10::IValue();
    };
    for (const ArgBinding& arg : node.signature->args) {
      switch (arg.kind) {
        case ArgBinding::Kind::kConstant:
          stack_.push_back(arg.constant);
          break;
        case ArgBinding::Kind::kOperand:
          stack_.push_back(as_value(*operand++));
          break;
        case ArgBinding::Kind::kOperandList: {
          const bool is_optional =
              std::any_of(operand, operand + arg.count, [](const at::Tensor& tensor) { return !tensor.defined(); });
          c10::impl::GenericList list(
              is_optional ? c10::TypePtr(c10::OptionalType::ofTensor()) : c10::TypePtr(c10::TensorType::get()));
          list.reserve(arg.count);
          for (uint32_t i = 0; i < arg.count; ++i) {
            list.push_back(as_value(*operand++));
          }
          stack_.emplace_back(std::move(list));
          break;
        }
        case ArgBinding::Kind::kScalar:
          stack_.push_back(inputs_.scalars[scalar++]);
          break;
        case ArgBinding::Kind::kGenerator:
          stack_.push_back(seeded(*node.signature->op, inputs_.scalars[scalar++].toInt()));
          break;
      }
    }
    if (reproduces_ && is_reproducible(*node.signature->op)) {
      operands_ = copy_operands(stack_);
    }
  }

  void choose_threads(const Signature& signature) {
    threads_.use(signature.work <= light_limit_ ? 1 : threads_.before());
  }

  void take_results(NodeId id) {
    const Signature& signature = *trace_.node(id).signature;
    uint32_t next = 0;
    for (size_t i = 0; i < signature.returns.size(); ++i) {
      const ReturnBinding& binding = signature.returns[i];
      if (binding.kind == ReturnBinding::Kind::kFresh) {
        take_fresh(id, next++, std::move(stack_[i]).toTensor());
      } else if (binding.kind == ReturnBinding::Kind::kFreshList) {
        for (at::Tensor& tensor : std::move(stack_[i]).toTensorVector()) {
          take_fresh(id, next++, std::move(tensor));
        }
      }
    }
  }

  // What the signature promises: see lowering/execution/instruction_run.cpp.
  void take_fresh(NodeId id, uint32_t output, at::Tensor tensor) {
    Result& fresh = result({id, output});
    const Geometry& promised = trace_.node(id).signature->outputs[output];
    if (fresh.num_reads == 0) {
      return;
    }
    const bool is_view = promised.offset != 0 || promised.has_bits();
    if (tensor.defined() && !is_view && !promised.matches(*tensor.unsafeGetTensorImpl())) {
      if (tensor.strides() != c10::IntArrayRef(promised.strides)) {
        told_.unexpected.push_back({id, output, c10::DimVector(tensor.strides())});
      }
      tensor = ensure_layout(tensor, promised);
    }
    fresh.tensor = std::move(tensor);
  }

  const ExecutionGuard guard_;
  const ShownWarningsMuted muted_;
  const Plan& plan_;
  const Trace& trace_;
  ComputationInputs inputs_;
  std::vector<Result> results_;
  ComputationResult told_;
  c10::Stack stack_;
  const bool reproduces_ = config().debug.get(); // what an op was given is kept until it has run
  c10::Stack operands_;                          // which that is
  IntraOpThreadsScope threads_;
  const float light_limit_ = light_limit(threads_.before());
  const Clock::time_point begin_ = Clock::now();
};

class Interpreter final : public Computation {
 public:
  Interpreter(const Trace& trace, c10::ArrayRef<Value> roots) : plan_(trace, roots) {}

  ComputationResult run(ComputationInputs inputs) const override {
    return Run(plan_, std::move(inputs)).run();
  }
  size_t num_ops() const override {
    return plan_.num_ops;
  }
  std::string to_string() const override {
    return to_text(plan_.trace, plan_.roots);
  }

 private:
  const Plan plan_;
};

} // namespace

void run_call(const OpInfo& op, c10::Stack& stack) {
  if (!fill_randomly(op, stack) && !run_function(op, stack) && !run_exact_kernel(op, stack)) {
    op.call(stack);
  }
}

bool may_have_kernel_of_ours(const OpInfo& op) {
  return random_fill_symbol(op) || is_function(op) || is_norm_gradient(op) || has_exact_kernel(op);
}

ComputationPtr make_interpreter(const Trace& trace, c10::ArrayRef<Value> roots) {
  return std::make_shared<Interpreter>(trace, roots);
}

} // namespace lazyplug
