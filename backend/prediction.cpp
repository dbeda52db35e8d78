#include "backend/prediction.h"

#include <algorithm>

namespace lazyplug {
namespace {

// Not by address: the cache may have made the signature anew.
bool same_call(const SignaturePtr& a, const SignaturePtr& b) {
  return a == b || (a && b && a->hash == b->hash);
}

} // namespace

const SignaturePtr& Prediction::next() const {
  static const SignaturePtr none;
  return expected_ && next_ < expected_->calls.size() ? expected_->calls[next_] : none;
}

void Prediction::note(const SignaturePtr& recorded) {
  if (same_call(next(), recorded)) {
    ++next_;
  } else if (expected_) {
    find_again(recorded);
  }
}

void Prediction::find_again(const SignaturePtr& recorded) {
  constexpr size_t kWindow = 16;
  const auto& calls = expected_->calls;
  const size_t end = std::min(next_ + kWindow, calls.size());
  for (size_t i = next_; i < end; ++i) {
    if (same_call(calls[i], recorded)) {
      next_ = i + 1;
      return;
    }
  }
}

void Prediction::cut(const Trace& trace) {
  const Hash128 hash = trace.hash();
  if (!expected_ || !(expected_->hash == hash)) {
    learn(trace);
  }
  std::copy_backward(last_traces_.begin(), last_traces_.end() - 1, last_traces_.end());
  last_traces_.front() = hash;
  auto found = successors_.find(context());
  if (!found) {
    found = successors_.find(hash);
  }
  expected_ = found ? *found : nullptr;
  next_ = 0;
}

void Prediction::learn(const Trace& trace) {
  auto program = std::make_shared<Program>();
  program->hash = trace.hash();
  program->size = trace.sizes();
  for (const Node& node : trace.nodes()) {
    if (node.kind == NodeKind::kCall) {
      program->calls.push_back(node.signature);
    }
  }
  successors_.replace(context(), program);
  successors_.replace(last_traces_.front(), std::move(program));
}

Hash128 Prediction::context() const {
  Hash128 context;
  for (const Hash128& hash : last_traces_) {
    context = hash_combine(context, hash);
  }
  return context;
}

} // namespace lazyplug
