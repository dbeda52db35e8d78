#include "backend/native/backward_pass.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/tensor.h>
#include <torch/csrc/autograd/input_buffer.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <numeric>
#include <typeinfo>
#include <utility>

#include "device/runtime.h"
#include "device/stream.h"

namespace lazyplug {
namespace {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::InputBuffer;
using AutogradNode = torch::autograd::Node;
using torch::autograd::variable_list;

// Whether something is to see each node, or makes other tensors of what they compute.
bool is_watched() {
  constexpr c10::DispatchKeySet kTransforms{
      c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
      c10::DispatchKey::FuncTorchVmapMode,
      c10::DispatchKey::VmapMode};
  return torch::autograd::AnomalyMode::is_enabled() || at::hasCallbacks() || c10::InferenceMode::is_enabled() ||
         c10::impl::TorchDispatchModeTLS::any_modes_set() ||
         c10::impl::tls_local_dispatch_key_set().included_.has_any(kTransforms);
}

// How many threads have hooks for saved tensors, and the latest number that a node may have that has been made on such
// a thread. Numbers are a thread's own, and nodes do not tell of which one: so others may be taken for such.
std::atomic<int64_t> num_with_hooks{0};
std::atomic<uint64_t> end_of_hooks{0};

bool may_have_saved_hooks(const AutogradNode& node) {
  constexpr uint64_t kOfLeaves = std::numeric_limits<uint64_t>::max(); // they save nothing
  return node.sequence_nr() != kOfLeaves && (num_with_hooks.load(std::memory_order_acquire) != 0 ||
                                             node.sequence_nr() < end_of_hooks.load(std::memory_order_acquire));
}

// Of torch.autograd.Function. The type is libtorch_python's own, which shows its name only.
bool is_python_function(const AutogradNode& node) {
  return std::strcmp(typeid(node).name(), "N5torch8autograd6PyNodeE") == 0;
}

// Whether it runs Python's code.
bool is_python(const AutogradNode& node) {
  if (is_python_function(node) || may_have_saved_hooks(node)) {
    return true;
  }
  // What writes a view is held by what writes its base.
  const auto* slices = typeid(node) == typeid(torch::autograd::CopySlices)
                           ? static_cast<const torch::autograd::CopySlices*>(&node)
                           : nullptr;
  if (slices && slices->fn && is_python(*slices->fn)) {
    return true;
  }
  for (uint32_t i = 0; i < node.num_inputs(); ++i) {
    if (node.input_metadata(i).is_tensor_subclass()) {
      return true;
    }
  }
  return false;
}

bool has_hooks(AutogradNode& node) {
  return !node.pre_hooks().empty() || !node.tensor_pre_hooks().empty() || !node.retains_grad_hooks().empty() ||
         !node.post_hooks().empty() || node.tensor_post_acc_grad_hooks() != nullptr;
}

// Nodes run on the stream of what they differentiate.
bool is_elsewhere(const AutogradNode& node, c10::Stream current) {
  for (uint32_t i = 0; i < node.num_inputs(); ++i) {
    const auto& input = node.input_metadata(i);
    if (input.device().type() == kLazyDevice) {
      return input.stream() != current;
    }
  }
  return false;
}

void check(const edge_list& edges, variable_list& gradients, const AutogradNode* node) {
  torch::autograd::validate_outputs(edges, gradients, [&](const std::string& message) {
    return node ? "Function " + node->name() + " returned an " + message : message;
  });
}

// The sum as the engine makes it: in place if nobody else sees `sum`.
void accumulate(at::Tensor& sum, at::Tensor&& gradient, AutogradNode& node) {
  InputBuffer buffer(1);
  buffer.add(0, std::move(sum), std::nullopt, std::nullopt, &node);
  buffer.add(0, std::move(gradient), std::nullopt, std::nullopt, &node);
  sum = std::move(buffer.buffer[0]);
}

} // namespace

c10::intrusive_ptr<BackwardPass> BackwardPass::plan(Arguments arguments) {
  if (is_watched()) {
    return {};
  }
  auto pass = c10::make_intrusive<BackwardPass>(std::move(arguments));
  const Indices indices = pass->find_nodes();
  return pass->find_inputs(indices) && pass->are_plain() ? pass : c10::intrusive_ptr<BackwardPass>();
}

BackwardPass::BackwardPass(Arguments arguments)
    : AutogradNode(/*sequence_nr=*/0), arguments_(std::move(arguments)), results_(arguments_.inputs.size()) {}

std::string BackwardPass::name() const {
  return "LazyBackwardPass";
}

BackwardPass::Indices BackwardPass::find_nodes() {
  Indices indices;
  const auto add_edges = [&](const edge_list& edges) {
    for (const Edge& edge : edges) {
      if (!edge.is_valid()) {
        edges_.push_back(kNoNode);
        continue;
      }
      const auto [place, is_new] = indices.emplace(edge.function.get(), static_cast<NodeIndex>(steps_.size()));
      if (is_new) {
        steps_.emplace_back().node = edge.function.get();
      }
      ++steps_[place->second].num_missing;
      edges_.push_back(place->second);
    }
  };
  add_edges(arguments_.roots);
  for (size_t i = 0; i < steps_.size(); ++i) {
    steps_[i].first_edge = edges_.size();
    add_edges(steps_[i].node->next_edges());
  }
  return indices;
}

// Says whether all of them are there.
bool BackwardPass::find_inputs(const Indices& indices) {
  if (arguments_.inputs.empty()) {
    return true;
  }
  for (const Edge& input : arguments_.inputs) {
    const auto found = indices.find(input.function.get());
    if (found == indices.end()) {
      return false;
    }
    Step& step = steps_[found->second];
    next_input_.push_back(std::exchange(step.first_input, static_cast<InputIndex>(next_input_.size())));
  }
  find_needed();
  return true;
}

void BackwardPass::find_needed() {
  std::vector<NodeIndex> order(steps_.size()); // what a node leads to comes before it
  std::iota(order.begin(), order.end(), NodeIndex{0});
  std::sort(order.begin(), order.end(), [this](NodeIndex a, NodeIndex b) {
    return steps_[a].node->topological_nr() < steps_[b].node->topological_nr();
  });
  for (NodeIndex index : order) {
    Step& step = steps_[index];
    const auto edges = edges_of(step);
    step.is_needed = std::any_of(edges.begin(), edges.end(), [this](NodeIndex next) {
      return next != kNoNode && steps_[next].is_reached();
    });
  }
}

c10::ArrayRef<BackwardPass::NodeIndex> BackwardPass::edges_of(const Step& step) const {
  return {edges_.data() + step.first_edge, step.node->num_outputs()};
}

bool BackwardPass::are_plain() const {
  const c10::Stream current = current_stream(current_device());
  return std::all_of(steps_.begin(), steps_.end(), [&](const Step& step) {
    return !step.is_reached() || !(is_python(*step.node) || has_hooks(*step.node) || is_elsewhere(*step.node, current));
  });
}

// Nodes ask the engine which of their gradients are needed. It has planned this node only, and so would not know.
void BackwardPass::tell_what_is_needed() const {
  using torch::autograd::GraphTask;
  const auto* planned = torch::autograd::get_current_graph_task_exec_info();
  TORCH_INTERNAL_ASSERT(planned, "a backward pass outside of the engine");
  auto& needed = const_cast<std::unordered_map<AutogradNode*, GraphTask::ExecInfo>&>(*planned); // this node's own
  for (const Step& step : steps_) {
    if (step.is_reached()) {
      needed[step.node].needed_ = true;
    }
  }
}

void BackwardPass::prepare_gradients() {
  check(arguments_.roots, arguments_.gradients, nullptr);
}

variable_list BackwardPass::apply(variable_list&& /*nothing*/) {
  const c10::AutoGradMode grad_mode(arguments_.create_graph);
  const edge_list& roots = arguments_.roots;
  if (!arguments_.inputs.empty()) {
    tell_what_is_needed();
  }
  for (size_t i = 0; i < roots.size(); ++i) {
    deliver(edges_[i], roots[i].input_nr, std::move(arguments_.gradients[i]));
  }
  while (!ready_.empty()) {
    run_next();
  }
  return {};
}

void BackwardPass::deliver(NodeIndex index, uint32_t input, at::Tensor&& gradient) {
  Step& step = steps_[index];
  if (step.gradients.empty()) {
    step.gradients.resize(step.node->num_inputs());
  }
  if (gradient.defined()) {
    at::Tensor& sum = step.gradients.at(input);
    if (sum.defined()) {
      accumulate(sum, std::move(gradient), *step.node);
    } else {
      sum = std::move(gradient);
    }
  }
  if (--step.num_missing == 0) {
    ready_.push({step.node->sequence_nr(), index});
  }
}

void BackwardPass::keep_results(const Step& step) {
  for (InputIndex i = step.first_input; i != kNoInput; i = next_input_[i]) {
    results_[i] = step.gradients.at(arguments_.inputs[i].input_nr);
  }
}

void BackwardPass::run_next() {
  Step& step = steps_[ready_.top().index];
  ready_.pop();
  AutogradNode& node = *step.node;
  keep_results(step);
  variable_list inputs = std::move(step.gradients);
  if (!step.is_needed) {
    return;
  }
  if (!arguments_.keep_graph) {
    node.will_release_variables();
  }
  running_ = &node;
  variable_list gradients = node(std::move(inputs)); // which leaves them as they are
  check(node.next_edges(), gradients, &node);
  inputs.clear(); // nobody else must hold a gradient that the next node takes over
  if (!arguments_.keep_graph) {
    node.release_variables();
  }
  const auto edges = edges_of(step);
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (edges[i] != kNoNode && steps_[edges[i]].is_reached()) {
      deliver(edges[i], node.next_edge(i).input_nr, std::move(gradients[i]));
    }
  }
}

void note_saved_tensors_hooks(bool begin) {
  if (begin) {
    ++num_with_hooks;
    return;
  }
  const uint64_t end = at::sequence_number::peek();
  uint64_t latest = end_of_hooks.load();
  while (latest < end && !end_of_hooks.compare_exchange_weak(latest, end)) {
  }
  --num_with_hooks;
}

const AutogradNode* current_autograd_node() {
  const AutogradNode* node = torch::autograd::get_current_node().get(); // held by who runs it
  const auto* pass = dynamic_cast<const BackwardPass*>(node);
  return pass ? pass->running() : node;
}

} // namespace lazyplug
