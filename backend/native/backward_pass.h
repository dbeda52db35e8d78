#pragma once

#include <c10/util/flat_hash_map.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <queue>
#include <string>
#include <vector>

namespace lazyplug {

// A backward pass as one node of autograd, which runs all others, one after the other: in the order in which PyTorch's
// engine runs them on a thread, so that sums of gradients have the same bits, but without what the engine does around
// each, which takes as long as recording the node's ops: it sets and restores the state of the thread, queues, and
// locks. The engine runs this node as any other: its state, its callbacks and its errors are those of the pass.
class BackwardPass final : public torch::autograd::Node {
 public:
  // As engine.execute() takes them.
  struct Arguments {
    torch::autograd::edge_list roots;
    torch::autograd::variable_list gradients;
    bool keep_graph = false;
    bool create_graph = false;
    torch::autograd::edge_list inputs = {}; // whose gradients are asked for; none: they are accumulated in leaves
  };

  // Null if the engine has to run the nodes itself: if one of them runs Python's code, or has hooks, which may leave
  // the state of the thread other than it was, or belongs to a stream that is not current; if an input is not reached;
  // or if somebody watches: the profiler, anomaly mode, a dispatch mode.
  static c10::intrusive_ptr<BackwardPass> plan(Arguments arguments);

  explicit BackwardPass(Arguments arguments);
  std::string name() const override;
  // Has the gradients of the roots be as the roots want them, in the state of the thread that asks for the pass, which
  // need not be that of the pass. Before it runs.
  void prepare_gradients();
  torch::autograd::variable_list apply(torch::autograd::variable_list&& nothing) override;
  // The gradients of the inputs, when it has run.
  const torch::autograd::variable_list& results() const {
    return results_;
  }
  // The node that it is running, or null.
  const torch::autograd::Node* running() const {
    return running_;
  }

 private:
  using NodeIndex = uint32_t;
  using InputIndex = uint32_t;
  using Indices = ska::flat_hash_map<const torch::autograd::Node*, NodeIndex>;
  static constexpr NodeIndex kNoNode = static_cast<NodeIndex>(-1);
  static constexpr InputIndex kNoInput = static_cast<InputIndex>(-1);

  struct Step {
    torch::autograd::Node* node = nullptr;    // held by the roots
    size_t first_edge = 0;                    // of `edges_`
    uint32_t num_missing = 0;                 // gradients that have yet to come
    torch::autograd::variable_list gradients; // those that have come
    InputIndex first_input = kNoInput;        // of those that are asked for
    bool is_needed = true;                    // the node is run

    bool is_reached() const {
      return first_input != kNoInput || is_needed;
    }
  };
  struct Ready {
    uint64_t sequence_nr;
    NodeIndex index;
    // As the engine compares them, so that its heap has nodes with equal numbers in the same order.
    bool operator<(const Ready& other) const {
      return sequence_nr < other.sequence_nr;
    }
  };

  Indices find_nodes();
  bool find_inputs(const Indices& indices);
  bool are_plain() const;
  void tell_what_is_needed() const;
  void find_needed();
  void keep_results(const Step& step);
  c10::ArrayRef<NodeIndex> edges_of(const Step& step) const;
  void deliver(NodeIndex index, uint32_t input, at::Tensor&& gradient);
  void run_next();

  Arguments arguments_;
  torch::autograd::variable_list results_;
  std::vector<Step> steps_;
  std::vector<NodeIndex> edges_;       // of the roots, and then of each step, where they lead
  std::vector<InputIndex> next_input_; // of the same node, for each input
  std::priority_queue<Ready> ready_;   // the latest first
  const torch::autograd::Node* running_ = nullptr;
};

// Hooks for saved tensors begin, or end, on this thread: torch.autograd.graph.saved_tensors_hooks. Nodes that are made
// meanwhile may run Python's code when they run. Hooks of single saved tensors begin, but do not end.
void note_saved_tensors_hooks(bool begin);

// The node of autograd that is running on this thread, or null.
const torch::autograd::Node* current_autograd_node();

} // namespace lazyplug
