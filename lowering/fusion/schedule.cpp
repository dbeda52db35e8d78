#include "lowering/fusion/schedule.h"

#include <algorithm>

#include "lowering/fusion/fusible_calls.h"

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
// Bytes. What is read for the last time would be free by now, if the group had been computed: the results of products,
// say, that are added up one after the other. More than this must not wait,
constexpr int64_t kMaxHeld = 64 * 1024;
// unless for what hardly takes memory itself.
constexpr int64_t kSmallResult = kMaxHeld / 16;

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
    const bool is_in_group = is_pointwise ? join(node) || begin(node) : begin_with_parts(node);
    if (!is_in_group) {
      close_before(node, nullptr);
      if (bytes_of(node) > kSmallResult) {
        close_holding_before(node);
      }
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
      if (!merged.add(*node, from.window_of(node))) {
        return false;
      }
    }
    into = std::move(merged);
    set_group(into);
    return true;
  }

  bool begin(GraphNode& node) {
    auto group = std::make_unique<Group>(graph_, takes_functions_);
    return group->add(node) && open(std::move(group));
  }

  // What it reads is closed before.
  bool open(std::unique_ptr<Group> group) {
    for (const GraphNode* node : group->nodes()) {
      close_before(*node, nullptr);
    }
    if (open_.size() == kMaxOpen) {
      close(*open_.front());
    }
    set_group(*group);
    open_.push_back(std::move(group));
    return true;
  }

  // A concatenation of rows that some pointwise call reads, if open groups make parts of it, and for nobody else: these
  // leave the groups. Otherwise the CPU's kernel copies as quickly.
  bool begin_with_parts(GraphNode& node) {
    if (!Group::is_join(node) || !is_read_by_pointwise(node)) {
      return false;
    }
    std::vector<Group::Part> parts;
    find_parts(node, parts);
    auto group = std::make_unique<Group>(graph_, takes_functions_);
    if (parts.empty() || !group->begin_join(node, parts) || !take_from_open(parts)) {
      return false;
    }
    return open(std::move(group));
  }

  static bool is_read_by_pointwise(const GraphNode& node) {
    for (const GraphUse* use = node.uses_of(0); use; use = use->next()) {
      if (use->user() && use->user()->is_call() && !use->view() && find_pointwise_op(use->user()->op())) {
        return true;
      }
    }
    return false;
  }

  // In the order of the graph.
  void find_parts(const GraphNode& join, std::vector<Group::Part>& parts) const {
    int64_t begin = 0;
    for (size_t i = 0; i < join.num_operands(); ++i) {
      const GraphUse& operand = join.operand(i);
      const int64_t size =
          operand.value().defined() && !seen_by(operand).sizes.empty() ? seen_by(operand).sizes.back() : 0;
      add_parts(operand, {begin, begin + size}, join, parts);
      begin += size;
    }
  }

  // The call that makes the operand, if it is in an open group and nobody but the last of the parts reads it.
  void add_parts(
      const GraphUse& operand,
      kernels::Window window,
      const GraphNode& reader,
      std::vector<Group::Part>& parts) const {
    GraphNode* maker = operand.value().node;
    if (!maker || operand.view() || !group_of_[maker->place()] || maker->num_outputs() != 1) {
      return;
    }
    for (const GraphUse* use = maker->uses_of(0); use; use = use->next()) {
      if (use->user() != &reader) {
        return;
      }
    }
    const bool is_known = std::any_of(parts.begin(), parts.end(), [&](const auto& part) { return part.node == maker; });
    if (is_known) {
      return;
    }
    for (size_t i = 0; i < maker->num_operands(); ++i) {
      add_parts(maker->operand(i), window, *maker, parts);
    }
    parts.push_back({maker, window});
  }

  // Whether the open groups can do without.
  bool take_from_open(c10::ArrayRef<Group::Part> parts) {
    const auto is_part = [&](const GraphNode* node) {
      return std::any_of(parts.begin(), parts.end(), [&](const auto& part) { return part.node == node; });
    };
    std::vector<std::unique_ptr<Group>> rests(open_.size()); // null: a group without parts
    for (size_t i = 0; i < open_.size(); ++i) {
      const auto& nodes = open_[i]->nodes();
      if (std::none_of(nodes.begin(), nodes.end(), is_part)) {
        continue;
      }
      rests[i] = std::make_unique<Group>(graph_, takes_functions_);
      for (GraphNode* node : nodes) {
        if (!is_part(node) && !rests[i]->add(*node, open_[i]->window_of(node))) {
          return false;
        }
      }
    }
    for (const Group::Part& part : parts) {
      group_of_[part.node->place()] = nullptr;
    }
    for (size_t i = 0; i < open_.size(); ++i) {
      if (rests[i]) {
        open_[i] = std::move(rests[i]);
        set_group(*open_[i]);
      }
    }
    std::erase_if(open_, [](const auto& group) { return group->nodes().empty(); });
    return true;
  }

  void set_group(const Group& group) {
    for (const GraphNode* node : group.nodes()) {
      group_of_[node->place()] = &group;
    }
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

  static int64_t bytes_of(GraphNode& node) {
    int64_t bytes = 0;
    for (uint32_t i = 0; i < node.num_outputs(); ++i) {
      bytes += static_cast<int64_t>(node.output(i).layout().extent_bytes());
    }
    return bytes;
  }

  // Those that hold most, until the rest does not hold much.
  void close_holding_before(const GraphNode& node) {
    for (;;) {
      int64_t total = 0;
      std::pair<int64_t, const Group*> most;
      for (const auto& group : open_) {
        const int64_t held = held_bytes(*group, node);
        total += held;
        most = std::max(most, {held, group.get()});
      }
      if (total <= kMaxHeld) {
        return;
      }
      close(*most.second);
    }
  }

  // By how much less memory there would be, if the group were computed before the node; 0 if that is little anyway.
  static int64_t held_bytes(const Group& group, const GraphNode& node) {
    const auto elements = group.layout().numel() * static_cast<int64_t>(group.inputs().size());
    if (elements * static_cast<int64_t>(sizeof(double)) <= kSmallResult) {
      return 0;
    }
    int64_t held = 0;
    const auto& inputs = group.inputs();
    for (auto input = inputs.begin(); input != inputs.end(); ++input) {
      const bool is_first =
          std::none_of(inputs.begin(), input, [&](const auto& other) { return other.value == input->value; });
      if (is_first && is_last_read_before(input->value, node)) {
        held += static_cast<int64_t>(input->value.layout().extent_bytes());
      }
    }
    for (const auto& output : group.outputs()) {
      held -= static_cast<int64_t>(output.value.layout().extent_bytes());
    }
    return std::max<int64_t>(held, 0);
  }

  // Of what the graph itself makes.
  static bool is_last_read_before(GraphValue value, const GraphNode& node) {
    for (const GraphUse* use = value.uses(); use; use = use->next()) {
      if (use->is_root() || use->user()->place() >= node.place()) {
        return false;
      }
    }
    return value.node->is_call();
  }

  // Whether the result of the only call may lie where something lies that the graph has made, and that nobody else
  // reads: a call on large tensors then takes less than one of PyTorch's kernels, which asks for memory.
  static bool may_overwrite_input(const Group& group) {
    GraphNode& node = *group.nodes().front();
    const Geometry& result = node.output(0).layout();
    const auto is_in_its_place = [&](const Group::Input& input) {
      const Geometry& there = input.value.layout();
      return input.value.node->is_call() && input.value.num_uses() == 1 && there.dtype == result.dtype &&
             there.extent_bytes() == result.extent_bytes();
    };
    return node.signature()->written.empty() && is_wide_float(result.dtype) &&
           std::any_of(group.inputs().begin(), group.inputs().end(), is_in_its_place);
  }

  static bool is_wide_float(c10::ScalarType dtype) {
    return dtype == c10::ScalarType::Float || dtype == c10::ScalarType::Double;
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
    const bool is_quicker =
        takes_functions_ && !group->has_rows() && (group->layout().numel() <= kMaxAlone || may_overwrite_input(*group));
    const bool may_be_alone = takes_all_ || group->has_functions() || is_quicker;
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
