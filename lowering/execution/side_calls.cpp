#include "lowering/execution/side_calls.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "lowering/calls/light_calls.h"
#include "lowering/calls/runtime_ops.h"
#include "lowering/nodes/node_attributes.h"

namespace lazyplug {
namespace {

using JitNode = torch::jit::Node;
using JitValue = torch::jit::Value;

// What one core of a usual processor does, roughly.
constexpr double kSecondsPerMultiplication = 1.0 / 30e9;
constexpr double kSecondsPerElement = 0.25e-9;

enum class Kind : uint8_t { kOther, kProduct, kConvolution };

Kind kind_of(const JitNode& node) {
  static const auto* kinds = new std::unordered_map<c10::Symbol, Kind>{
      {c10::Symbol::fromQualString("aten::mm"), Kind::kProduct},
      {c10::Symbol::fromQualString("aten::addmm"), Kind::kProduct},
      {c10::Symbol::fromQualString("aten::bmm"), Kind::kProduct},
      {c10::Symbol::fromQualString("aten::baddbmm"), Kind::kProduct},
      {c10::Symbol::fromQualString("aten::convolution"), Kind::kConvolution},
      {c10::Symbol::fromQualString("aten::convolution_backward"), Kind::kConvolution},
  };
  const auto found = kinds->find(node.kind());
  return found == kinds->end() ? Kind::kOther : found->second;
}

// 0 if it is no tensor, or nobody knows.
double num_elements(const JitValue& value) {
  const auto* type = value.type()->castRaw<c10::TensorType>();
  const auto count = type ? type->numel() : std::nullopt;
  return count ? static_cast<double>(*count) : 0;
}

std::vector<double> sizes_of(const JitValue& value) {
  const auto* type = value.type()->castRaw<c10::TensorType>();
  const auto sizes = type ? type->sizes().concrete_sizes() : std::nullopt;
  return sizes ? std::vector<double>(sizes->begin(), sizes->end()) : std::vector<double>();
}

double multiplications_of_product(const JitNode& node) {
  ThreeLargest largest;
  const auto insert = [&](const JitValue* value) { largest.insert(num_elements(*value)); };
  std::for_each(node.inputs().begin(), node.inputs().end(), insert);
  std::for_each(node.outputs().begin(), node.outputs().end(), insert);
  return largest.multiplications();
}

// Each element of the result takes one for each weight of its channel; a gradient as many for the input's, and for the
// weight's.
double multiplications_of_convolution(const JitNode& node) {
  const bool is_backward = node.inputs().size() > 9; // (grad_output, input, weight, ...), not (input, weight, ...)
  const JitValue& weight = *node.input(is_backward ? 2 : 1);
  const JitValue& result = is_backward ? *node.input(0) : *node.output(0);
  const auto sizes = sizes_of(weight);
  return sizes.empty() ? 0 : num_elements(result) * num_elements(weight) / std::max(1.0, sizes[0]);
}

// Sets of values that may share memory.
class Aliases {
 public:
  void unite(const JitValue* a, const JitValue* b) {
    parents_[find(a)] = find(b);
  }
  const JitValue* find(const JitValue* value) {
    const JitValue* root = value;
    for (auto parent = parents_.find(root); parent != parents_.end(); parent = parents_.find(root)) {
      if (parent->second == root) {
        break;
      }
      root = parent->second;
    }
    return root;
  }

 private:
  std::unordered_map<const JitValue*, const JitValue*> parents_;
};

bool is_list(const JitNode& node) {
  return node.kind() == torch::jit::prim::ListConstruct || node.kind() == torch::jit::prim::ListUnpack;
}

void add_aliases(const JitNode& node, Aliases& aliases) {
  if (is_list(node)) {
    for (const auto* input : node.inputs()) {
      for (const auto* output : node.outputs()) {
        aliases.unite(input, output);
      }
    }
  } else if (node.kind() == runtime_ops().own || node.kind() == runtime_ops().strided_view) {
    aliases.unite(node.output(), node.input(0));
  }
  for (const auto* written : written_values(node)) {
    for (const auto* output : node.outputs()) {
      aliases.unite(output, written);
    }
  }
}

class SideCalls {
 public:
  SideCalls(c10::ArrayRef<const JitNode*> nodes, double least_seconds) : nodes_(nodes), least_seconds_(least_seconds) {}

  std::vector<size_t> find() {
    std::vector<size_t> needed_by(nodes_.size(), kNoSideCall);
    const auto is_candidate = [this](const JitNode* node) { return this->is_candidate(*node); };
    if (std::count_if(nodes_.begin(), nodes_.end(), is_candidate) < 2) {
      return needed_by;
    }
    prepare();
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (!is_candidate(nodes_[i])) {
        continue;
      }
      const size_t first = first_to_wait(i);
      if (seconds_before(first) - seconds_before(i + 1) >= least_seconds_) {
        needed_by[i] = first;
      }
    }
    return needed_by;
  }

 private:
  bool is_candidate(const JitNode& node) const {
    return kind_of(node) != Kind::kOther && estimated_seconds(node) >= least_seconds_ && written_values(node).empty();
  }

  void prepare() {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const JitNode& node = *nodes_[i];
      seconds_.push_back(seconds_before(i) + estimated_seconds(node));
      add_aliases(node, aliases_);
      for (const auto* input : node.inputs()) {
        readers_[input].push_back(i);
      }
    }
    // All aliases are known now.
    for (size_t i = 0; i < nodes_.size(); ++i) {
      for (const auto* input : nodes_[i]->inputs()) {
        if (takes(i, input)) {
          takers_[aliases_.find(input)].push_back(i);
        }
      }
    }
  }

  double seconds_before(size_t place) const {
    return place == 0 ? 0 : seconds_[place - 1];
  }

  // Whether it may write its input's memory if nobody else holds it: views and products do not, others might.
  bool takes(size_t place, const JitValue* input) const {
    const JitNode& node = *nodes_[place];
    return readers_.at(input).back() == place && kind_of(node) == Kind::kOther && !is_list(node) &&
           node.kind() != runtime_ops().strided_view;
  }

  size_t first_to_wait(size_t place) {
    size_t first = nodes_.size();
    for (const auto* output : nodes_[place]->outputs()) {
      if (const auto readers = readers_.find(output); readers != readers_.end()) {
        first = std::min(first, readers->second.front());
      }
    }
    for (const auto* input : nodes_[place]->inputs()) {
      const auto takers = takers_.find(aliases_.find(input));
      if (takers == takers_.end()) {
        continue;
      }
      const auto next = std::upper_bound(takers->second.begin(), takers->second.end(), place);
      first = next == takers->second.end() ? first : std::min(first, *next);
    }
    return first;
  }

  const c10::ArrayRef<const JitNode*> nodes_;
  const double least_seconds_;
  std::vector<double> seconds_; // of each node and those before it
  Aliases aliases_;
  std::unordered_map<const JitValue*, std::vector<size_t>> readers_; // places, ascending
  std::unordered_map<const JitValue*, std::vector<size_t>> takers_;  // by the root of their aliases
};

} // namespace

double estimated_seconds(const JitNode& node) {
  switch (kind_of(node)) {
    case Kind::kProduct:
      return kSecondsPerMultiplication * multiplications_of_product(node);
    case Kind::kConvolution:
      return kSecondsPerMultiplication * multiplications_of_convolution(node);
    case Kind::kOther:
      break;
  }
  if (is_list(node) || node.kind() == runtime_ops().strided_view || node.kind() == runtime_ops().own) {
    return 0;
  }
  const auto add = [](double sum, const JitValue* value) { return sum + num_elements(*value); };
  const double read = std::accumulate(node.inputs().begin(), node.inputs().end(), 0.0, add);
  return kSecondsPerElement * std::accumulate(node.outputs().begin(), node.outputs().end(), read, add);
}

std::vector<size_t> find_side_calls(c10::ArrayRef<const JitNode*> nodes, double least_seconds) {
  return SideCalls(nodes, least_seconds).find();
}

} // namespace lazyplug
