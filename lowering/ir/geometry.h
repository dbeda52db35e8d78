#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/core/ScalarType.h>
#include <c10/util/DimVector.h>
#include <c10/util/intrusive_ptr.h>

#include <optional>
#include <string>
#include <utility>

#include "common/hash.h"

namespace lazyplug {

// How a tensor lies in its storage. Sizes and strides count elements of
// `dtype`; `offset` is the storage offset. `conj` and `neg` are the lazy
// conjugate and negative bits of a view; `wrapped_number` marks a tensor that
// promotes types as the Python number it was made from.
//
// A geometry is called a *layout* when it describes a whole storage: offset 0,
// no bits set. Values of the IR have layouts; reads of them have geometries.
struct Geometry {
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  bool conj = false;
  bool neg = false;
  bool wrapped_number = false;
  int64_t offset = 0;
  c10::DimVector sizes;
  c10::DimVector strides;

  static Geometry of(const c10::TensorImpl& tensor);
  static const Geometry& of(const Geometry& tensor) {
    return tensor;
  }
  // A contiguous layout.
  static Geometry contiguous(c10::ScalarType dtype, c10::IntArrayRef sizes);
  // The layout by which the whole of a storage of `nbytes` is read through a
  // tensor on it: the tensor's own if it covers the storage, else a flat one.
  static Geometry of_storage(const c10::TensorImpl& tensor, size_t nbytes);
  static Geometry of_storage(const Geometry& tensor, size_t nbytes);

  int64_t numel() const;
  size_t itemsize() const {
    return c10::elementSize(dtype);
  }
  // Bytes from the start of the storage to the end of the last element.
  size_t extent_bytes() const;
  // No gaps and no overlaps: every element of [0, numel) is hit once.
  bool is_dense() const;
  // Exactly the strides of contiguous(), whatever the offset.
  bool is_contiguous() const;
  // True if memory with these strides can be read as if it had `other`'s:
  // strides of dimensions of size 1, and of empty tensors, do not matter.
  bool same_memory(c10::IntArrayRef other_sizes, c10::IntArrayRef other_strides) const;

  bool has_bits() const {
    return conj || neg || wrapped_number;
  }
  // True if `tensor` has exactly this geometry.
  bool matches(const c10::TensorImpl& tensor) const;
  bool matches(const Geometry& tensor) const {
    return *this == tensor;
  }
  // The strides of an expanded view of these sizes, where dimensions that are missing, or of one element, have 0.
  // Nothing if they do not fit.
  std::optional<c10::DimVector> strides_for(c10::IntArrayRef other_sizes) const;
  // The same, wherever in its storage it begins.
  bool matches_apart_from_offset(const c10::TensorImpl& tensor) const;
  bool operator==(const Geometry& other) const;

 private:
  static Geometry of_storage(const Geometry& tensor, bool is_dense, size_t nbytes);
};

// How PyTorch's kernels have what they compute element by element of a tensor without gaps, and others like it, lie: as
// the tensor itself does, but for dimensions of one element, whose strides say nothing.
c10::DimVector strides_of_result(c10::IntArrayRef sizes, c10::IntArrayRef strides);

Hash128 hash_combine(Hash128 seed, const Geometry& geometry);

// How an operand reads part of a value. The offset of a *moving* view is one of the program's scalars, hence an input
// of the graph, and `offset` is what it was when the view was recorded: who goes through data in slices runs one graph.
struct View : Geometry {
  static constexpr uint32_t kFixed = static_cast<uint32_t>(-1);
  uint32_t offset_scalar = kFixed;

  explicit View(Geometry geometry, uint32_t offset_scalar = kFixed)
      : Geometry(std::move(geometry)), offset_scalar(offset_scalar) {}
  bool moves() const {
    return offset_scalar != kFixed;
  }
  // In one program, or in two that are the same: whether both see the same elements, whatever the inputs are.
  bool operator==(const View& other) const;
};

// Of a moving view: which scalar, not its value.
Hash128 hash_combine(Hash128 seed, const View& view);

// A layout that several traces refer to, and its hash. Immutable.
struct SharedLayout : c10::intrusive_ptr_target {
  explicit SharedLayout(Geometry layout) : geometry(std::move(layout)), hash(hash_combine({}, geometry)) {}
  const Geometry geometry;
  const Hash128 hash;
};
using LayoutPtr = c10::intrusive_ptr<const SharedLayout>;

// "Float[2, 3] strides=[3, 1]", and the offset and bits where they are set.
std::string to_string(const Geometry& geometry);
// With " at=" in place of " offset=" if the view moves.
std::string to_string(const View& view);

} // namespace lazyplug
