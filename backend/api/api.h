#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "backend/execution/lazy_storage.h"

// The step interface, as the Python bindings see it. Device names are "lazy" or
// "lazy:<index>"; an empty name is the current device.
namespace lazyplug {

// Runs what is pending on `device`, or on each of `devices`. With `wait`, raises
// the first error that nobody has seen.
void mark_step(const std::string& device, const std::vector<std::string>& devices, bool wait);

// Waits for the devices (all, if none is named), and raises the first error that
// nobody has seen.
void wait_device_ops(const std::vector<std::string>& devices);

// Makes the tensors available, and ends the step on the named devices; `wait`:
// these are idle then. Raises RuntimeError for a tensor that is not lazy, and
// the error of one that failed.
void sync_multi(const std::vector<at::Tensor>& tensors, const std::vector<std::string>& devices, bool wait);

// The storage of a lazy tensor; raises RuntimeError for any other.
LazyStorageImpl& lazy_storage_of(const at::Tensor& tensor);

// A number that identifies the contents' owner: tensors that share a storage
// share it.
int64_t tensor_id(const at::Tensor& tensor);

// The user's line that made, or last wrote, a tensor's contents; null if it is
// not known, or if the tensor is not lazy (fake ones only say they are).
const char* origin_of(const at::Tensor& tensor);

// The pending program that computes the tensors: as text, for Graphviz, and as
// the TorchScript graph that it is lowered to. Run nothing.
std::string tensors_text(const std::vector<at::Tensor>& tensors);
std::string tensors_dot(const std::vector<at::Tensor>& tensors);
std::string tensors_backend(const std::vector<at::Tensor>& tensors);

// Whether the contents of a lazy tensor's storage wait for the pending trace.
bool is_pending(const at::Tensor& tensor);

// Whether a lazy tensor can be read without running or waiting for anything.
bool is_ready(const at::Tensor& tensor);

// IR nodes that are pending, on all devices.
int64_t live_nodes();

// Ends the workers of all devices. From then on work runs on the threads that
// wait for it.
void stop_workers();

// Makes a lazy tensor or storage available. Does nothing for any other.
void materialize(const at::Tensor& tensor);
// `for_write`: the caller writes the memory in place.
void materialize(const c10::Storage& storage, bool for_write = false);

// Gives a lazy storage an error for its contents, which a process has met that
// was to send them: of the type that Python calls `type`, as far as the device
// raises such. Raises RuntimeError for any other storage.
void fail(const c10::Storage& storage, const std::string& type, const std::string& message);

// A tensor over the memory that the lazy tensor has now, on the CPU or on the lazy device, which keeps that memory
// alive and sees what is written to it directly. The first op that writes the lazy tensor gives it other memory.
at::Tensor memory_alias(const at::Tensor& tensor, bool on_cpu);

} // namespace lazyplug
