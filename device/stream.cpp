#include "device/stream.h"

#include "device/callbacks.h"
#include "device/event.h"
#include "device/fork.h"
#include "device/runtime.h"

#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <utility>

namespace lazyplug {
namespace {

// Ids: 0 is the default stream, then the pool of normal priority, then that of high priority.
constexpr c10::StreamId kDefaultStreamId = 0;
constexpr c10::StreamId kFirstNormalId = 1;
constexpr c10::StreamId kFirstHighId = kFirstNormalId + kStreamsPerPriority;
constexpr c10::StreamId kEndId = kFirstHighId + kStreamsPerPriority;

// How many streams of each pool have been handed out, by device.
using PoolCursors = std::array<std::atomic<uint32_t>, kMaxDevices>;
PoolCursors normal_cursors{};
PoolCursors high_cursors{};

thread_local std::array<c10::StreamId, kMaxDevices> current_ids{};

c10::Stream make_stream(c10::DeviceIndex device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, lazy_device(device), id);
}

} // namespace

c10::Stream default_stream(c10::DeviceIndex device) {
  return make_stream(resolve_device_index(device), kDefaultStreamId);
}

c10::Stream current_stream(c10::DeviceIndex device) {
  const c10::DeviceIndex index = resolve_device_index(device);
  return make_stream(index, current_ids[index]);
}

c10::StreamId current_stream_id(c10::DeviceIndex device) {
  return current_ids[device];
}

c10::Stream exchange_stream(c10::Stream stream) {
  check_stream(stream);
  const c10::DeviceIndex index = stream.device_index();
  return make_stream(index, std::exchange(current_ids[index], stream.id()));
}

c10::Stream new_stream(c10::DeviceIndex device, int priority) {
  ensure_initialized();
  const c10::DeviceIndex index = resolve_device_index(device);
  const bool high = priority < 0;
  const uint32_t turn = (high ? high_cursors : normal_cursors)[index].fetch_add(1);
  return make_stream(index, (high ? kFirstHighId : kFirstNormalId) + turn % kStreamsPerPriority);
}

void check_stream(c10::Stream stream) {
  TORCH_CHECK(stream.device_type() == kLazyDevice, "expected a stream of a lazy device, but got ", stream);
  check_device_index(stream.device_index());
  TORCH_CHECK(
      kDefaultStreamId <= stream.id() && stream.id() < kEndId,
      "there is no stream ",
      stream.id(),
      " on ",
      stream.device());
}

bool query_stream(c10::Stream stream) {
  ensure_initialized();
  check_stream(stream);
  Event now(/*timing=*/false);
  now.record(stream);
  return now.query();
}

void synchronize_stream(c10::Stream stream) {
  ensure_initialized();
  check_stream(stream);
  Event now(/*timing=*/false);
  now.record(stream);
  now.synchronize();
}

void synchronize_device(c10::DeviceIndex device) {
  ensure_initialized();
  device_callbacks().synchronize(resolve_device_index(device));
}

} // namespace lazyplug
