#include "backend/varying_sizes.h"

#include <algorithm>
#include <array>
#include <deque>
#include <iterator>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "common/config.h"

namespace lazyplug {
namespace {

Hash128 add_kind(Hash128 hash, c10::ScalarType dtype, size_t dim) {
  return hash_combine(hash, static_cast<uint64_t>(dtype) | static_cast<uint64_t>(dim) << 8);
}

Hash128 kind_of(const OpInfo& op) {
  return hash_combine(Hash128(), reinterpret_cast<uintptr_t>(&op));
}

// What is left of a call without its sizes and constants.
Hash128 kind_of(const Call& call) {
  Hash128 kind = kind_of(*call.op);
  for (const TensorArg& arg : call.tensors) {
    kind = arg.tensor ? add_kind(kind, c10::typeMetaToScalarType(arg.tensor->dtype()), arg.tensor->dim())
                      : add_kind(kind, c10::ScalarType::Undefined, 0);
  }
  return kind;
}

Hash128 kind_of(const Signature& signature) {
  Hash128 kind = kind_of(*signature.op);
  for (const Geometry& operand : signature.operands) {
    kind = add_kind(kind, operand.dtype, operand.sizes.size());
  }
  return kind;
}

// What is left of a trace.
Hash128 shape_of_program(const Trace& trace) {
  Hash128 hash;
  for (const Node& node : trace.nodes()) {
    hash = node.kind == NodeKind::kCall ? hash_combine(hash, kind_of(*node.signature))
                                        : add_kind(hash, node.layout->dtype, node.layout->sizes.size());
    for (const Operand& operand : trace.operands(node)) {
      hash = hash_combine(hash, uint64_t{operand.value.node} << 32 | operand.value.output);
    }
  }
  return hash;
}

// How many variants of a program are too many; 0: no number is.
size_t patience() {
  constexpr int64_t kIfExpected = 2;
  const int64_t variants = config().max_size_variants.get();
  return static_cast<size_t>(config().symbolic_shape_mode.get() ? std::min(variants, kIfExpected) : variants);
}

class VaryingSizes {
 public:
  void note(const Trace& trace) {
    const Hash128 program = shape_of_program(trace);
    Kinds kinds = kinds_in(trace);
    const size_t limit = patience();
    const std::lock_guard<std::mutex> lock(mutex_);
    last_compiled_.push_front({program, std::move(kinds)});
    // As much again for what else a step compiles.
    last_compiled_.resize(std::min(last_compiled_.size(), 2 * limit));
    find_varying(limit);
  }

  bool is_first_time(const Call& call) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (varying_.empty() || varying_.count(kind_of(call)) == 0) {
      return false;
    }
    Line& line = met_[call.key.lo % met_.size()];
    if (std::find(line.begin(), line.end(), call.key.hi) != line.end()) {
      return false;
    }
    std::copy_backward(line.begin(), std::prev(line.end()), line.end());
    line.front() = call.key.hi;
    return true;
  }

 private:
  using Kinds = std::unordered_set<Hash128>;
  struct Compiled {
    Hash128 program;
    Kinds kinds; // of its calls
  };

  static Kinds kinds_in(const Trace& trace) {
    Kinds kinds;
    for (const Node& node : trace.nodes()) {
      if (node.kind == NodeKind::kCall) {
        kinds.insert(kind_of(*node.signature));
      }
    }
    return kinds;
  }

  void find_varying(size_t limit) {
    varying_.clear();
    std::unordered_map<Hash128, size_t> variants;
    for (const Compiled& compiled : last_compiled_) {
      if (++variants[compiled.program] == limit) {
        varying_.insert(compiled.kinds.begin(), compiled.kinds.end());
      }
    }
  }

  std::mutex mutex_; // guards all members
  std::deque<Compiled> last_compiled_;
  Kinds varying_; // of calls in programs that have too many variants
  // Keys of calls that have run at once: half of a key says where it is, the other half is there, the last one to come
  // first. What is pushed out just runs at once again.
  using Line = std::array<uint64_t, 8>; // of the processor's cache
  std::array<Line, 2048> met_{};
};

VaryingSizes& varying_sizes() {
  static auto* sizes = new VaryingSizes();
  return *sizes;
}

} // namespace

void note_sizes(const Trace& trace) {
  varying_sizes().note(trace);
}

bool has_varying_sizes(const Call& call) {
  return patience() != 0 && !config().launch_blocking.get() && varying_sizes().is_first_time(call);
}

} // namespace lazyplug
