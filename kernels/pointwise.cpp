#include "kernels/pointwise.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "kernels/tile.h"

namespace lazyplug::kernels {
namespace {

using Kind = PointwiseSpace::Kind;

// Its place among those.
size_t memory_dtype(c10::ScalarType dtype) {
  return std::find(std::begin(kMemoryDtypes), std::end(kMemoryDtypes), dtype) - std::begin(kMemoryDtypes);
}

// Dimensions that matter, by the strides of the outputs: from the innermost.
c10::DimVector dims_by_stride(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  c10::DimVector dims;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (sizes[dim] != 1) {
      dims.push_back(static_cast<int64_t>(dim));
    }
  }
  std::sort(dims.begin(), dims.end(), [&](int64_t a, int64_t b) { return strides[a] < strides[b]; });
  return dims;
}

Kind kind_of(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  if (std::all_of(strides.begin(), strides.end(), [](int64_t stride) { return stride == 0; })) {
    return Kind::kConstant;
  }
  int64_t expected = 1;
  bool is_linear = true;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    is_linear &= strides[dim] == expected;
    expected *= sizes[dim];
  }
  return is_linear ? Kind::kLinear : Kind::kStrided;
}

// One thread's work.
template <typename T>
class Part {
 public:
  Part(const Program& program, const PointwiseSpace& space, c10::ArrayRef<Memory> memory, const double* numbers)
      : program_(program), space_(space), memory_(memory), numbers_(numbers), tile_(program) {}

  void run(int64_t begin, int64_t end) {
    for (size_t i = 0; i < space_.num_inputs(); ++i) {
      if (space_.input(i).kind == Kind::kConstant) {
        load(i, std::min(tile_.size, end - begin), space_.input(i).offset, 0, tile_.own(i));
      }
    }
    for (int64_t first = begin; first < end; first += tile_.size) {
      const int64_t n = std::min(tile_.size, end - first);
      for (size_t i = 0; i < space_.num_inputs(); ++i) {
        read(i, first, n);
      }
      for (size_t i = space_.num_inputs(); i < program_.num_memory; ++i) {
        tile_.slots[i] = is_computed_in_place(i) ? static_cast<T*>(memory_[i].data) + first : tile_.own(i);
      }
      run_tile(program_, numbers_, n, tile_);
      for (size_t i = space_.num_inputs(); i < program_.num_memory; ++i) {
        if (memory_[i].data && !is_computed_in_place(i)) {
          kernels::loops<T>().store_bool(n, static_cast<bool*>(memory_[i].data) + first, tile_.own(i));
        }
      }
    }
  }

 private:
  bool is_computed_in_place(size_t slot) const {
    return memory_[slot].data && memory_[slot].dtype == program_.dtype;
  }

  void load(size_t slot, int64_t n, int64_t place, int64_t stride, T* out) {
    const Memory& memory = memory_[slot];
    const auto* from =
        static_cast<const char*>(memory.data) + place * static_cast<int64_t>(c10::elementSize(memory.dtype));
    kernels::loops<T>().loads[memory_dtype(memory.dtype)](n, out, from, stride);
  }

  void read(size_t slot, int64_t first, int64_t n) {
    const auto& input = space_.input(slot);
    if (input.kind == Kind::kStrided) {
      gather(slot, first, n);
    } else if (input.kind == Kind::kLinear && is_computed_in_place(slot)) {
      tile_.slots[slot] = static_cast<T*>(memory_[slot].data) + input.offset + first;
    } else if (input.kind == Kind::kLinear) {
      load(slot, n, input.offset + first, 1, tile_.own(slot));
    }
  }

  // The elements number `first` and so on of a strided input, a run along the innermost dimension at a time.
  void gather(size_t slot, int64_t first, int64_t n) {
    const auto& input = space_.input(slot);
    const c10::IntArrayRef sizes = space_.sizes();
    c10::DimVector index(sizes.size());
    int64_t place = input.offset;
    for (size_t dim = 0; dim < sizes.size(); ++dim) {
      index[dim] = first % sizes[dim];
      first /= sizes[dim];
      place += index[dim] * input.strides[dim];
    }
    for (T* out = tile_.own(slot); n > 0;) {
      const int64_t count = std::min(n, sizes[0] - index[0]);
      load(slot, count, place, input.strides[0], out);
      n -= count;
      out += count;
      place += advance(index, count, input.strides);
    }
  }

  // Returns how far that is.
  int64_t advance(c10::DimVector& index, int64_t count, c10::IntArrayRef strides) {
    int64_t distance = count * strides[0];
    index[0] += count;
    for (size_t dim = 0; dim + 1 < index.size() && index[dim] == space_.sizes()[dim]; ++dim) {
      distance += strides[dim + 1] - index[dim] * strides[dim];
      index[dim] = 0;
      ++index[dim + 1];
    }
    return distance;
  }

  const Program& program_;
  const PointwiseSpace& space_;
  const c10::ArrayRef<Memory> memory_;
  const double* const numbers_;
  Tile<T> tile_;
};

template <typename T>
void run_parts(
    const Program& program,
    const PointwiseSpace& space,
    c10::ArrayRef<Memory> memory,
    const double* numbers) {
  at::parallel_for(0, space.num_elements(), at::internal::GRAIN_SIZE, [&](int64_t begin, int64_t end) {
    Part<T>(program, space, memory, numbers).run(begin, end);
  });
}

} // namespace

bool can_read(c10::ScalarType dtype) {
  return memory_dtype(dtype) < std::size(kMemoryDtypes);
}

PointwiseSpace::PointwiseSpace(c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ArrayRef<Input> inputs) {
  const c10::DimVector dims = dims_by_stride(sizes, strides);
  for (const int64_t dim : dims) {
    sizes_.push_back(sizes[dim]);
    num_elements_ *= sizes[dim];
  }
  for (const Input& input : inputs) {
    Map& map = inputs_.emplace_back(Map{Kind::kConstant, input.offset, {}});
    for (const int64_t dim : dims) {
      map.strides.push_back(input.strides[dim]);
    }
  }
  simplify();
  for (Map& map : inputs_) {
    map.kind = kind_of(sizes_, map.strides);
  }
}

// Makes one of two neighbouring dimensions along which all inputs step evenly.
void PointwiseSpace::simplify() {
  size_t last = 0; // dimension that stays
  for (size_t dim = 1; dim < sizes_.size(); ++dim) {
    const bool is_even = std::all_of(inputs_.begin(), inputs_.end(), [&](const Map& map) {
      return map.strides[dim] == map.strides[last] * sizes_[last];
    });
    if (is_even) {
      sizes_[last] *= sizes_[dim];
      continue;
    }
    ++last;
    sizes_[last] = sizes_[dim];
    for (Map& map : inputs_) {
      map.strides[last] = map.strides[dim];
    }
  }
  const size_t num_dims = std::min(last + 1, sizes_.size());
  sizes_.resize(num_dims);
  for (Map& map : inputs_) {
    map.strides.resize(num_dims);
  }
}

void run(const Program& program, const PointwiseSpace& space, c10::ArrayRef<Memory> memory, const double* numbers) {
  TORCH_INTERNAL_ASSERT(memory.size() == program.num_memory && space.num_inputs() <= memory.size());
  program.dtype == c10::ScalarType::Float ? run_parts<float>(program, space, memory, numbers)
                                          : run_parts<double>(program, space, memory, numbers);
}

} // namespace lazyplug::kernels
