#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/interned_strings.h>

#include "lowering/ir/geometry.h"

// What lowered graphs call besides ATen. Each function is also registered as a
// TorchScript op in the namespace `lazyplug`, so that a graph prints, and runs
// on TorchScript's own interpreter, like any other.
namespace lazyplug {

// Their names.
struct RuntimeOps {
  const c10::Symbol own = c10::Symbol::fromQualString("lazyplug::own");
  const c10::Symbol strided_view = c10::Symbol::fromQualString("lazyplug::strided_view");
  const c10::Symbol empty = c10::Symbol::fromQualString("lazyplug::empty");
  const c10::Symbol generator = c10::Symbol::fromQualString("lazyplug::generator");
  const c10::Symbol tile_program = c10::Symbol::fromQualString("lazyplug::tile_program");
  const c10::Symbol pointwise = c10::Symbol::fromQualString("lazyplug::pointwise");
  const c10::Symbol norm_gradient = c10::Symbol::fromQualString("lazyplug::norm_gradient");
  const c10::Symbol bernoulli_ = c10::Symbol::fromQualString("lazyplug::bernoulli_");
  const c10::Symbol uniform_ = c10::Symbol::fromQualString("lazyplug::uniform_");
  const c10::Symbol normal_ = c10::Symbol::fromQualString("lazyplug::normal_");
  const c10::Symbol random_ = c10::Symbol::fromQualString("lazyplug::random_");
};
const RuntimeOps& runtime_ops();
inline constexpr const char* kTileUpdate = "lazyplug::tile_update_"; // see lowering/nodes/tile_kernel.h

// The run-time layout check: kernels do not always return the strides that
// their Meta kernels promised. Returns `tensor` itself if it lies as `layout`
// says; else a tensor that does, on the same memory if only strides of
// dimensions of size 1 differ, otherwise on a copy, counted as "ResultArranged".
// The shape and dtype must be as promised.
at::Tensor ensure_layout(const at::Tensor& tensor, const Geometry& layout);

// A tensor over the memory of `base`, which is first made to lie as `layout`.
at::Tensor strided_view(const at::Tensor& base, const Geometry& layout, const Geometry& view);
// A view that begins at offset 0 at another one, which must not take it out of its memory. `extent` is what it covers,
// in bytes.
at::Tensor moved(at::Tensor view, int64_t offset, size_t extent);

// A tensor over `storage`, which belongs to the device with this dispatch key.
at::Tensor make_tensor(c10::Storage storage, const Geometry& geometry, c10::DispatchKey key);
at::Tensor make_cpu_tensor(c10::Storage storage, const Geometry& geometry);

// Memory that a mutation may write: `base` itself if nobody else can see it
// (it is donated), else a copy that lies as `layout`.
at::Tensor own(at::Tensor base, const Geometry& layout);

at::Tensor empty(const Geometry& layout);

// A CPU generator in a state that depends on `seed` alone.
at::Generator seeded_generator(int64_t seed);

} // namespace lazyplug
