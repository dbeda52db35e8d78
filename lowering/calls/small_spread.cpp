#include "lowering/calls/small_spread.h"

#include <c10/util/accumulate.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <type_traits>
#include <vector>

#include "kernels/tile_loops.h"

namespace lazyplug {
namespace {

constexpr size_t kMaxDims = 5; // that a DimVector holds in itself

// False if they do not fit.
bool broadcast(c10::IntArrayRef other, c10::DimVector& sizes) {
  if (other.size() > sizes.size()) {
    sizes.insert(sizes.begin(), other.size() - sizes.size(), 1);
  }
  const size_t first = sizes.size() - other.size();
  for (size_t dim = 0; dim < other.size(); ++dim) {
    int64_t& size = sizes[first + dim];
    if (size != other[dim] && size != 1 && other[dim] != 1) {
      return false;
    }
    size = size == 1 ? other[dim] : size;
  }
  return true;
}

// As PyTorch's iterators see it: a result beside tensors that are all in order is contiguous.
bool is_in_order(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  int64_t outer_stride = 0;
  int64_t outer_size = 0;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (strides[dim] == 0) {
      continue;
    }
    if (outer_stride != 0 &&
        (strides[dim] > outer_stride || (strides[dim] == outer_stride && sizes[dim] > outer_size))) {
      return false;
    }
    outer_stride = strides[dim];
    outer_size = sizes[dim];
  }
  return true;
}

// Elements in the order of the sizes: runs that are evenly apart, and where each of them begins.
class Runs {
 public:
  Runs(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
    for (size_t dim = sizes.size(); dim-- > 0;) {
      if (sizes[dim] == 1) {
        continue;
      }
      if (sizes_.empty() || strides[dim] != strides_.back() * sizes_.back()) {
        sizes_.push_back(sizes[dim]);
        strides_.push_back(strides[dim]);
      } else {
        sizes_.back() *= sizes[dim];
      }
    }
    if (sizes_.empty()) {
      sizes_.push_back(1);
      strides_.push_back(1);
    }
  }

  bool is_linear() const {
    return sizes_.size() == 1 && strides_[0] == 1;
  }

  // Calls `visit` with the place of each run, how long it is, and how far apart its elements are.
  template <typename Visit>
  void visit(const Visit& visit) const {
    std::array<int64_t, kMaxDims> indices{};
    for (int64_t place = 0;;) {
      visit(place, sizes_[0], strides_[0]);
      size_t dim = 1;
      for (; dim < sizes_.size(); ++dim) {
        place += strides_[dim];
        if (++indices[dim] < sizes_[dim]) {
          break;
        }
        place -= strides_[dim] * sizes_[dim];
        indices[dim] = 0;
      }
      if (dim == sizes_.size()) {
        return;
      }
    }
  }

 private:
  // From the innermost dimension.
  c10::DimVector sizes_;
  c10::DimVector strides_;
};

// Elements of that dtype, as T.
template <typename T>
void gather(c10::ScalarType dtype, const Runs& runs, const void* from, T* to) {
  const auto load = kernels::loops<T>().loads[kernels::memory_dtype(dtype)];
  const auto size = static_cast<int64_t>(c10::elementSize(dtype));
  runs.visit([&](int64_t place, int64_t n, int64_t stride) {
    const auto* first = static_cast<const char*>(from) + place * size;
    if (stride == 0) {
      load(1, to, first, 1);
      std::fill_n(to + 1, n - 1, *to);
    } else {
      load(n, to, first, stride);
    }
    to += n;
  });
}

template <typename To, typename T>
void scatter(const Runs& runs, const T* from, void* to) {
  auto* elements = static_cast<To*>(to);
  runs.visit([&](int64_t place, int64_t n, int64_t stride) {
    if (std::is_same_v<To, bool> && stride == 1) {
      kernels::loops<T>().stores[kernels::memory_dtype(at::kBool)](n, elements + place, from);
    } else {
      for (int64_t i = 0; i < n; ++i) {
        elements[place + i * stride] = static_cast<To>(from[i]);
      }
    }
    from += n;
  });
}

} // namespace

bool SmallSpread::add(const c10::TensorImpl& tensor) {
  const auto sizes = tensor.sizes();
  if (sizes.size() > sizes_.size()) {
    return false;
  }
  const size_t first = sizes_.size() - sizes.size();
  auto& strides = strides_.emplace_back(sizes_.size(), 0);
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (sizes[dim] != sizes_[first + dim] && sizes[dim] != 1) {
      return false;
    }
    strides[first + dim] = sizes[dim] == sizes_[first + dim] ? tensor.strides()[dim] : 0;
  }
  return true;
}

// As what is written lies. False if elements of it may overlap.
bool SmallSpread::sort_dims() {
  const c10::DimVector written = strides_.back();
  c10::DimVector dims(sizes_.size());
  std::iota(dims.begin(), dims.end(), 0);
  std::sort(dims.begin(), dims.end(), [&](int64_t a, int64_t b) { return written[a] > written[b]; });
  const auto sort = [&](c10::DimVector& values) {
    const c10::DimVector old = values;
    for (size_t dim = 0; dim < dims.size(); ++dim) {
      values[dim] = old[dims[dim]];
    }
  };
  sort(sizes_);
  for (auto& strides : strides_) {
    sort(strides);
  }
  int64_t extent = 1;
  for (size_t dim = sizes_.size(); dim-- > 0;) {
    if (sizes_[dim] != 1 && strides_.back()[dim] < extent) {
      return false;
    }
    extent += (sizes_[dim] - 1) * strides_.back()[dim];
  }
  return true;
}

std::optional<SmallSpread>
SmallSpread::plan(c10::ArrayRef<const c10::TensorImpl*> inputs, const c10::TensorImpl* written, int64_t max_elements) {
  SmallSpread spread;
  if (written) {
    spread.sizes_ = written->sizes();
  }
  for (const auto* input : inputs) {
    if (!written && !broadcast(input->sizes(), spread.sizes_)) {
      return std::nullopt;
    }
  }
  spread.num_elements_ = c10::multiply_integers(spread.sizes_);
  if (spread.sizes_.size() > kMaxDims || spread.num_elements_ == 0 || spread.num_elements_ > max_elements) {
    return std::nullopt;
  }
  for (const auto* input : inputs) {
    if (!spread.add(*input) || (!written && !is_in_order(spread.sizes_, spread.strides_.back()))) {
      return std::nullopt;
    }
  }
  const bool goes = !written || (spread.add(*written) && spread.sort_dims());
  return goes ? std::optional(std::move(spread)) : std::nullopt;
}

bool SmallSpread::can_read(c10::ScalarType dtype) {
  return dtype == at::kBool || dtype == at::kByte || dtype == at::kInt || dtype == at::kLong || dtype == at::kFloat ||
         dtype == at::kDouble;
}

bool SmallSpread::is_broadcast(size_t input) const {
  for (size_t dim = 0; dim < sizes_.size(); ++dim) {
    if (sizes_[dim] != 1 && strides_[input][dim] == 0) {
      return true;
    }
  }
  return false;
}

template <typename T>
void SmallSpread::run_in(const kernels::Program& program, c10::ArrayRef<kernels::Memory> memory, const double* numbers)
    const {
  thread_local std::vector<T> scratch;
  const size_t num_inputs = memory.size() - 1;
  if (scratch.size() < memory.size() * num_elements_) {
    scratch.resize(memory.size() * num_elements_);
  }
  T* own = scratch.data();
  c10::SmallVector<void*, 4> places;
  for (size_t i = 0; i < num_inputs; ++i, own += num_elements_) {
    const Runs runs(sizes_, strides_[i]);
    const bool is_there = memory[i].dtype == program.dtype && runs.is_linear();
    if (!is_there) {
      gather(memory[i].dtype, runs, memory[i].data, own);
    }
    places.push_back(is_there ? memory[i].data : own);
  }
  const auto& result = memory.back();
  const Runs runs(sizes_, strides_.size() > num_inputs ? strides_.back() : c10::contiguous_strides(sizes_));
  const bool is_there = result.dtype != at::kBool && runs.is_linear();
  places.push_back(is_there ? result.data : own);
  kernels::run(program, kernels::Row{num_elements_, places.data(), numbers});
  if (result.dtype == at::kBool) {
    scatter<bool>(runs, own, result.data);
  } else if (!is_there) {
    scatter<T>(runs, own, result.data);
  }
}

void SmallSpread::run(const kernels::Program& program, c10::ArrayRef<kernels::Memory> memory, const double* numbers)
    const {
  switch (program.dtype) {
    case at::kFloat:
      return run_in<float>(program, memory, numbers);
    case at::kDouble:
      return run_in<double>(program, memory, numbers);
    default:
      TORCH_INTERNAL_ASSERT(program.dtype == at::kLong);
      return run_in<int64_t>(program, memory, numbers);
  }
}

} // namespace lazyplug
