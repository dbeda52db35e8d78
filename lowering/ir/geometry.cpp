#include "lowering/ir/geometry.h"

#include <ATen/EmptyTensor.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <numeric>
#include <sstream>

namespace lazyplug {
namespace {

// For so few values, calling memcmp() costs more than comparing.
bool same_values(c10::IntArrayRef a, c10::IntArrayRef b) {
  if (a.size() != b.size()) {
    return false;
  }
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i]) {
      return false;
    }
  }
  return true;
}

Hash128 hash_combine(Hash128 seed, const Geometry& geometry, bool moves, uint64_t offset) {
  const uint64_t head = static_cast<uint64_t>(geometry.dtype) | static_cast<uint64_t>(geometry.conj) << 8 |
                        static_cast<uint64_t>(geometry.neg) << 9 |
                        static_cast<uint64_t>(geometry.wrapped_number) << 10 | static_cast<uint64_t>(moves) << 11 |
                        static_cast<uint64_t>(geometry.sizes.size()) << 16;
  seed = hash_combine(seed, head);
  seed = hash_combine(seed, offset);
  seed = hash_words(geometry.sizes.data(), geometry.sizes.size(), seed);
  return hash_words(geometry.strides.data(), geometry.strides.size(), seed);
}

std::string to_string(const Geometry& geometry, const std::string& offset) {
  std::ostringstream out;
  out << c10::toString(geometry.dtype) << c10::IntArrayRef(geometry.sizes)
      << " strides=" << c10::IntArrayRef(geometry.strides) << offset << (geometry.conj ? " conj" : "")
      << (geometry.neg ? " neg" : "") << (geometry.wrapped_number ? " number" : "");
  return out.str();
}

} // namespace

Geometry Geometry::of(const c10::TensorImpl& tensor) {
  Geometry geometry;
  geometry.dtype = c10::typeMetaToScalarType(tensor.dtype());
  geometry.conj = tensor.is_conj();
  geometry.neg = tensor.is_neg();
  geometry.wrapped_number = tensor.is_wrapped_number();
  geometry.offset = tensor.storage_offset();
  geometry.sizes = tensor.sizes();
  geometry.strides = tensor.strides();
  return geometry;
}

Geometry Geometry::contiguous(c10::ScalarType dtype, c10::IntArrayRef sizes) {
  Geometry geometry;
  geometry.dtype = dtype;
  geometry.sizes = sizes;
  geometry.strides.resize(sizes.size());
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    geometry.strides[i] = stride;
    stride *= std::max<int64_t>(sizes[i], 1);
  }
  return geometry;
}

Geometry Geometry::of_storage(const c10::TensorImpl& tensor, size_t nbytes) {
  return of_storage(of(tensor), tensor.is_non_overlapping_and_dense_or_false(), nbytes);
}

Geometry Geometry::of_storage(const Geometry& tensor, size_t nbytes) {
  return of_storage(tensor, tensor.is_dense(), nbytes);
}

Geometry Geometry::of_storage(const Geometry& tensor, bool is_dense, size_t nbytes) {
  const size_t itemsize = tensor.itemsize();
  if (tensor.offset == 0 && is_dense && static_cast<size_t>(tensor.numel()) * itemsize == nbytes) {
    Geometry layout = tensor;
    layout.conj = layout.neg = layout.wrapped_number = false;
    return layout;
  }
  const bool divisible = nbytes % itemsize == 0;
  return contiguous(
      divisible ? tensor.dtype : c10::ScalarType::Byte,
      {static_cast<int64_t>(divisible ? nbytes / itemsize : nbytes)});
}

int64_t Geometry::numel() const {
  return c10::multiply_integers(sizes);
}

size_t Geometry::extent_bytes() const {
  return at::detail::computeStorageNbytes(sizes, strides, itemsize(), offset);
}

bool Geometry::is_contiguous() const {
  int64_t expected = 1;
  for (size_t dim = sizes.size(); dim-- > 0;) {
    if (strides[dim] != expected) {
      return false;
    }
    expected *= std::max<int64_t>(sizes[dim], 1);
  }
  return true;
}

bool Geometry::is_dense() const {
  c10::SmallVector<size_t, 8> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return strides[a] != strides[b] ? strides[a] < strides[b] : sizes[a] < sizes[b];
  });
  int64_t expected = 1;
  for (size_t dim : order) {
    if (sizes[dim] == 0) {
      return true;
    }
    if (sizes[dim] == 1) {
      continue;
    }
    if (strides[dim] != expected) {
      return false;
    }
    expected *= sizes[dim];
  }
  return true;
}

bool Geometry::same_memory(c10::IntArrayRef other_sizes, c10::IntArrayRef other_strides) const {
  if (other_sizes != c10::IntArrayRef(sizes)) {
    return false;
  }
  if (other_strides == c10::IntArrayRef(strides) || numel() == 0) {
    return true;
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] != 1 && strides[i] != other_strides[i]) {
      return false;
    }
  }
  return true;
}

c10::DimVector strides_of_result(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  Geometry usual = Geometry::contiguous(c10::ScalarType::Float, sizes);
  if (!usual.same_memory(sizes, strides) && sizes.size() == 4) {
    usual.strides = c10::get_channels_last_strides_2d(sizes);
  }
  return usual.same_memory(sizes, strides) ? usual.strides : c10::DimVector(strides);
}

bool Geometry::matches(const c10::TensorImpl& tensor) const {
  return tensor.storage_offset() == offset && matches_apart_from_offset(tensor);
}

std::optional<c10::DimVector> Geometry::strides_for(c10::IntArrayRef other_sizes) const {
  if (sizes.size() > other_sizes.size()) {
    return std::nullopt;
  }
  c10::DimVector result(other_sizes.size(), 0);
  const size_t first = other_sizes.size() - sizes.size();
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (sizes[dim] == 1) {
      continue;
    }
    if (sizes[dim] != other_sizes[first + dim]) {
      return std::nullopt;
    }
    result[first + dim] = strides[dim];
  }
  return result;
}

bool Geometry::matches_apart_from_offset(const c10::TensorImpl& tensor) const {
  return same_values(tensor.sizes(), sizes) && same_values(tensor.strides(), strides) &&
         c10::typeMetaToScalarType(tensor.dtype()) == dtype && tensor.is_conj() == conj && tensor.is_neg() == neg &&
         tensor.is_wrapped_number() == wrapped_number;
}

bool Geometry::operator==(const Geometry& other) const {
  return dtype == other.dtype && conj == other.conj && neg == other.neg && wrapped_number == other.wrapped_number &&
         offset == other.offset && sizes == other.sizes && strides == other.strides;
}

bool View::operator==(const View& other) const {
  Geometry there = other;
  there.offset = moves() ? offset : other.offset;
  return offset_scalar == other.offset_scalar && Geometry::operator==(there);
}

Hash128 hash_combine(Hash128 seed, const Geometry& geometry) {
  return hash_combine(seed, geometry, /*moves=*/false, static_cast<uint64_t>(geometry.offset));
}

Hash128 hash_combine(Hash128 seed, const View& view) {
  return view.moves() ? hash_combine(seed, view, /*moves=*/true, uint64_t{view.offset_scalar})
                      : hash_combine(seed, static_cast<const Geometry&>(view));
}

std::string to_string(const Geometry& geometry) {
  return to_string(geometry, geometry.offset == 0 ? "" : " offset=" + std::to_string(geometry.offset));
}

std::string to_string(const View& view) {
  return view.moves() ? to_string(view, " at=" + std::to_string(view.offset))
                      : to_string(static_cast<const Geometry&>(view));
}

} // namespace lazyplug
