// Streams: a default one and a fixed pool for each device. A stream is an ordered queue with a worker of its own; this
// file knows their names.
#pragma once

#include <c10/core/Stream.h>

namespace lazyplug {

// The pool of a device, for each of the two priorities. Streams are never freed (torch.Stream has no destructor that
// reaches us), so asking for more than that hands out the same ones again, in turn.
constexpr int kStreamsPerPriority = 32;
// Ids are below.
constexpr c10::StreamId kStreamsPerDevice = 2 * kStreamsPerPriority + 1;

// For each function, -1 means the current device; unknown devices and streams raise RuntimeError.

c10::Stream default_stream(c10::DeviceIndex device);

// As with the current device, each thread has its own current stream per device; it starts with the default stream.
c10::Stream current_stream(c10::DeviceIndex device);

// The id of it, of a device that exists.
c10::StreamId current_stream_id(c10::DeviceIndex device);

// Makes the stream current on its own device, and returns the one it replaces. The current device stays.
c10::Stream exchange_stream(c10::Stream stream);

// A stream of the pool. As in CUDA, a negative priority is a high one.
c10::Stream new_stream(c10::DeviceIndex device, int priority);

void check_stream(c10::Stream stream);

// Whether everything recorded on the stream has run. If it has not, starts it, so that polling makes
// progress.
bool query_stream(c10::Stream stream);

// Waits until everything recorded on the stream, or on all streams of the device, has run; raises the first error that
// nobody has seen.
void synchronize_stream(c10::Stream stream);
void synchronize_device(c10::DeviceIndex device);

} // namespace lazyplug
