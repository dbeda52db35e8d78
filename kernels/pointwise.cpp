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
    index_ = space_.index_of(begin);
    for (int64_t first = begin; first < end;) {
      const int64_t n = std::min(tile_size(), end - first);
      run_tile(first, n);
      first += n;
      advance(index_, n);
    }
  }

 private:
  // Long rows are not torn, so that inputs which are the same for each row are read where they are.
  int64_t tile_size() const {
    if (space_.sizes().size() < 2 || space_.sizes()[0] < kLongRow) {
      return tile_.size;
    }
    return std::min(tile_.size, space_.sizes()[0] - index_[0]);
  }

  void run_tile(int64_t first, int64_t n) {
    for (size_t i = 0; i < space_.num_inputs(); ++i) {
      read(i, first, n);
    }
    for (size_t i = space_.num_inputs(); i < program_.num_memory; ++i) {
      tile_.slots[i] = is_computed_in_place(i) ? static_cast<T*>(memory_[i].data) + first : tile_.own(i);
    }
    kernels::run_tile(program_, numbers_, n, tile_);
    for (size_t i = space_.num_inputs(); i < program_.num_memory; ++i) {
      if (memory_[i].data && !is_computed_in_place(i)) {
        kernels::loops<T>().store_bool(n, static_cast<bool*>(memory_[i].data) + first, tile_.own(i));
      }
    }
  }

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
    if (input.kind == Kind::kLinear) {
      read_run(slot, input.offset + first, n, 1);
    } else if (input.kind == Kind::kStrided) {
      const int64_t place = space_.place_of(input, index_);
      if (index_[0] + n <= space_.sizes()[0]) {
        read_run(slot, place, n, input.strides[0]);
      } else {
        gather(slot, place, n);
      }
    }
  }

  // Where they are, if they lie as the program wants them.
  void read_run(size_t slot, int64_t place, int64_t n, int64_t stride) {
    if (stride == 1 && is_computed_in_place(slot)) {
      tile_.slots[slot] = static_cast<T*>(memory_[slot].data) + place;
    } else {
      tile_.slots[slot] = tile_.own(slot);
      load(slot, n, place, stride, tile_.own(slot));
    }
  }

  // From the tile's first element on, a run along the innermost dimension at a time.
  void gather(size_t slot, int64_t place, int64_t n) {
    const auto& input = space_.input(slot);
    c10::DimVector index = index_;
    tile_.slots[slot] = tile_.own(slot);
    for (T* out = tile_.own(slot); n > 0;) {
      const int64_t count = std::min(n, space_.sizes()[0] - index[0]);
      load(slot, count, place, input.strides[0], out);
      n -= count;
      out += count;
      advance(index, count);
      place = space_.place_of(input, index);
    }
  }

  void advance(c10::DimVector& index, int64_t count) const {
    const c10::IntArrayRef sizes = space_.sizes();
    for (size_t dim = 0; dim < index.size() && count > 0; ++dim) {
      index[dim] += count;
      if (index[dim] < sizes[dim] || dim + 1 == index.size()) {
        return;
      }
      count = index[dim] / sizes[dim];
      index[dim] -= count * sizes[dim];
    }
  }

  static constexpr int64_t kLongRow = 128;

  const Program& program_;
  const PointwiseSpace& space_;
  const c10::ArrayRef<Memory> memory_;
  const double* const numbers_;
  Tile<T> tile_;
  c10::DimVector index_; // of the tile's first element
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

c10::DimVector PointwiseSpace::index_of(int64_t element) const {
  c10::DimVector index;
  for (const int64_t size : sizes_) {
    index.push_back(element % size);
    element /= size;
  }
  return index;
}

int64_t PointwiseSpace::place_of(const Map& input, c10::IntArrayRef index) {
  int64_t place = input.offset;
  for (size_t dim = 0; dim < index.size(); ++dim) {
    place += index[dim] * input.strides[dim];
  }
  return place;
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
