#include "backend/execution/prediction.h"

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
  last_calls_[num_calls_++ % kRun] = recorded->hash;
  if (same_call(next(), recorded)) {
    ++next_;
  } else if (!find_nearby(recorded)) {
    find_anywhere();
  }
}

bool Prediction::find_nearby(const SignaturePtr& recorded) {
  constexpr size_t kWindow = 16;
  if (!expected_) {
    return false;
  }
  const auto& calls = expected_->calls;
  const size_t end = std::min(next_ + kWindow, calls.size());
  for (size_t i = next_; i < end; ++i) {
    if (same_call(calls[i], recorded)) {
      next_ = i + 1;
      return true;
    }
  }
  return false;
}

void Prediction::find_anywhere() {
  Hash128 run;
  for (size_t i = 0; i < kRun; ++i) {
    run = hash_combine(run, last_calls_[(num_calls_ + i) % kRun]);
  }
  if (const auto place = places_.find(run)) {
    expected_ = place->program;
    next_ = place->next;
  }
}

void Prediction::cut(const Trace& trace) {
  const Hash128 hash = trace.hash();
  if (!guess_ || !(guess_->hash == hash)) {
    learn(trace);
  }
  std::copy_backward(last_traces_.begin(), last_traces_.end() - 1, last_traces_.end());
  last_traces_.front() = hash;
  auto found = successors_.find(context());
  if (!found) {
    found = successors_.find(hash);
  }
  guess_ = expected_ = found ? *found : nullptr;
  next_ = 0;
}

void Prediction::learn(const Trace& trace) {
  ProgramPtr program = expected_;
  if (!program || !(program->hash == trace.hash())) {
    program = program_of(trace);
    remember_places(program);
  }
  successors_.replace(context(), program);
  successors_.replace(last_traces_.front(), std::move(program));
}

Prediction::ProgramPtr Prediction::program_of(const Trace& trace) {
  auto program = std::make_shared<Program>();
  program->hash = trace.hash();
  program->size = trace.sizes();
  for (const Node& node : trace.nodes()) {
    if (node.kind == NodeKind::kCall) {
      program->calls.push_back(node.signature);
    }
  }
  return program;
}

// From the end, so that the first of equal runs stays: most of the program is yet to come there.
void Prediction::remember_places(const ProgramPtr& program) {
  const auto& calls = program->calls;
  for (size_t next = calls.size(); next-- > kRun;) {
    Hash128 run;
    for (size_t i = next - kRun; i < next; ++i) {
      run = hash_combine(run, calls[i]->hash);
    }
    places_.replace(run, {program, next});
  }
}

Hash128 Prediction::context() const {
  Hash128 context;
  for (const Hash128& hash : last_traces_) {
    context = hash_combine(context, hash);
  }
  return context;
}

} // namespace lazyplug
