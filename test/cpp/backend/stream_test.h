// Streams on their own, called as the DeviceContext calls them: none of the device's, so that a test knows what runs.
#pragma once

#include "backend/execution/stream_context.h"

#include "test/cpp/backend/backend_test.h"
#include "test/cpp/backend/test_ops.h"
#include "test/cpp/lowering/programs.h"

namespace lazyplug {

class StreamTest : public BackendTest {
 protected:
  static constexpr char kLocation[] = "program.py:7"; // compared by its address

  at::Tensor record(
      StreamContext& stream,
      const SignaturePtr& signature,
      const std::vector<at::Tensor>& tensors,
      const std::vector<c10::IValue>& scalars) {
    std::vector<TensorArg> args;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const c10::TensorImpl& tensor = *tensors[i].unsafeGetTensorImpl();
      args.emplace_back(tensor, LazyStorageImpl::of(&tensor), signature->writes_operand(i));
    }
    StreamContext::Aftermath aftermath;
    Outputs outputs;
    stream.record(signature, args, scalars, kLocation, aftermath, outputs);
    num_freed_ = aftermath.discarded.size();
    new_numbers_ = aftermath.numbers.size();
    return outputs.empty() ? tensors.front() : outputs.front();
  }
  at::Tensor add(StreamContext& stream, const at::Tensor& a, const at::Tensor& b) {
    static const OpInfo& op = make_op("aten::add", "Tensor");
    const auto signature = make_signature(op, {an_operand(), an_operand(), a_scalar()}, {floats({2, 3})});
    return record(stream, signature, {a, b}, {1});
  }
  at::Tensor add(const at::Tensor& a, const at::Tensor& b) {
    return add(stream_, a, b);
  }
  void add_(const at::Tensor& a, const at::Tensor& b) {
    static const OpInfo& op = make_op("aten::add_", "Tensor");
    record(stream_, make_signature(op, {an_operand(), an_operand(), a_scalar()}, {}, {true, false}), {a, b}, {1});
  }
  at::Tensor fail(const at::Tensor& a) {
    static const OpInfo& op = make_op("lazyplug_backend_test::fail");
    return record(stream_, make_signature(op, {an_operand()}, {floats({2, 3})}), {a}, {});
  }

  FailurePtr settle_leaves() {
    StreamContext::Aftermath aftermath;
    return stream_.settle_leaves(aftermath);
  }

  // Runs everything recorded, on this thread.
  Worker::Ticket run() {
    const Worker::Ticket ticket = stream_.submit(/*wake=*/false);
    stream_.worker().wait(ticket);
    return ticket;
  }

  StreamContext stream_{context_, /*id=*/17};
  StreamContext other_{context_, /*id=*/18};
  const at::Tensor cpu = iota({2, 3});
  const at::Tensor x = to_lazy(cpu);
  // What the last call left to do without the lock.
  size_t num_freed_ = 0;
  size_t new_numbers_ = 0;
};

} // namespace lazyplug
