#include "lowering/fusion/schedule.h"

#include <algorithm>

namespace lazyplug {
namespace {

// More of them rarely find anything more, and each is looked through for each node.
constexpr size_t kMaxOpen = 4;
// Elements. Calls that have nothing to do with each other only share what a call costs; of larger tensors, none should
// live longer for that.
constexpr int64_t kMaxUnrelated = 32'768;
// Elements. What a call costs besides its loop is half a microsecond less here than for PyTorch's kernels, so that
// small calls are groups even if they stand alone.
constexpr int64_t kMaxAlone = 4'096;

// Open groups have nothing to do with each other: a call that reads the results of two closes one of them, or both.
class Scheduler {
 public:
  Scheduler(Graph& graph, Grouping grouping)
      : graph_(graph), takes_functions_(grouping == Grouping::kFunctions), takes_all_(grouping == Grouping::kAll) {
    graph.number();
    group_of_.resize(graph.nodes().size());
  }

  void add(GraphNode& node) {
    const bool is_pointwise =
        node.is_call() && (find_pointwise_op(node.op()) || (takes_functions_ && is_function(node.op())));
    if (is_pointwise) {
      merge_before(node);
    }
    if (!is_pointwise || (!join(node) && !begin(node))) {
      close_before(node, nullptr);
      steps_.push_back({&node, nullptr});
    }
  }

  std::vector<Step> finish() && {
    while (!open_.empty()) {
      close(*open_.front());
    }
    return std::move(steps_);
  }

 private:
  using Group = PointwiseGroup;

  bool join(GraphNode& node) {
    for (const bool is_related : {true, false}) {
      for (size_t i = open_.size(); i-- > 0;) {
        Group& group = *open_[i];
        const bool may_join = reads_from(node, group) ? is_related : !is_related && may_be_unrelated(group);
        if (may_join && group.add(node)) {
          group_of_[node.place()] = &group;
          close_before(node, &group);
          return true;
        }
      }
    }
    return false;
  }

  // Makes one of the groups that it reads from, if they fit.
  void merge_before(const GraphNode& node) {
    Group* first = nullptr;
    for (size_t i = 0; i < open_.size(); ++i) {
      if (!reads_from(node, *open_[i])) {
        continue;
      }
      if (!first) {
        first = open_[i].get();
      } else if (merge(*first, *open_[i])) {
        open_.erase(open_.begin() + static_cast<int64_t>(i--));
      }
    }
  }

  bool merge(Group& into, const Group& from) {
    Group merged = into;
    for (GraphNode* node : from.nodes()) {
      if (!merged.add(*node)) {
        return false;
      }
    }
    into = std::move(merged);
    for (const GraphNode* node : from.nodes()) {
      group_of_[node->place()] = &into;
    }
    return true;
  }

  bool begin(GraphNode& node) {
    auto group = std::make_unique<Group>(graph_, takes_functions_);
    if (!group->add(node)) {
      return false;
    }
    close_before(node, nullptr);
    if (open_.size() == kMaxOpen) {
      close(*open_.front());
    }
    group_of_[node.place()] = group.get();
    open_.push_back(std::move(group));
    return true;
  }

  static bool may_be_unrelated(const Group& group) {
    return group.layout().numel() <= kMaxUnrelated;
  }

  bool reads_from(const GraphNode& node, const Group& group) const {
    for (size_t i = 0; i < node.num_operands(); ++i) {
      const GraphNode* maker = node.operand(i).value().node;
      if (maker && group_of_[maker->place()] == &group) {
        return true;
      }
    }
    return false;
  }

  // Those, but for its own, that it reads from, or that read what it writes.
  void close_before(const GraphNode& node, const Group* own) {
    const std::vector<GraphValue> written = node.is_call() ? node.written_values() : std::vector<GraphValue>();
    for (size_t i = open_.size(); i-- > 0;) {
      const Group& group = *open_[i];
      const bool loses =
          std::any_of(written.begin(), written.end(), [&](GraphValue value) { return group.reads(value); });
      if (&group != own && (loses || reads_from(node, group))) {
        close(group);
      }
    }
  }

  void close(const Group& closed) {
    const auto place =
        std::find_if(open_.begin(), open_.end(), [&](const auto& group) { return group.get() == &closed; });
    for (const GraphNode* node : closed.nodes()) {
      group_of_[node->place()] = nullptr;
    }
    std::unique_ptr<Group> group = std::move(*place);
    open_.erase(place);
    GraphNode* first = group->nodes().front();
    if (!group->has_outputs()) {
      return; // dead code that has not been removed
    }
    // A small sum that stands alone has a kernel that takes less: lowering/nodes/sum_kernel.h.
    const bool is_small = takes_functions_ && group->layout().numel() <= kMaxAlone && !group->has_rows();
    const bool may_be_alone = takes_all_ || group->has_functions() || is_small;
    const bool is_node = group->nodes().size() == 1 && !may_be_alone;
    steps_.push_back(is_node ? Step{first, nullptr} : Step{nullptr, std::move(group)});
  }

  const Graph& graph_;
  const bool takes_functions_;
  const bool takes_all_;
  std::vector<const Group*> group_of_; // by place of the node: the open group that it is in
  std::vector<std::unique_ptr<Group>> open_;
  std::vector<Step> steps_;
};

} // namespace

std::vector<Step> make_schedule(Graph& graph, Grouping grouping) {
  std::vector<Step> steps;
  Scheduler scheduler(graph, grouping);
  for (GraphNode& node : graph.nodes()) {
    if (node.kind() == NodeKind::kDeviceData) {
      continue; // an input
    }
    grouping == Grouping::kNone ? steps.push_back({&node, nullptr}) : scheduler.add(node);
  }
  return grouping == Grouping::kNone ? std::move(steps) : std::move(scheduler).finish();
}

} // namespace lazyplug
