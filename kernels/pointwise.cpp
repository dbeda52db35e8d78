#include "kernels/pointwise.h"

#include <ATen/Dispatch.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "kernels/parallel.h"
#include "kernels/tile.h"

namespace lazyplug::kernels {
namespace {

using Kind = PointwiseSpace::Kind;

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

Kind kind_of(c10::IntArrayRef strides) {
  if (strides.empty() || (strides.size() == 1 && strides[0] == 0)) {
    return Kind::kConstant;
  }
  return strides.size() == 1 && strides[0] == 1 ? Kind::kLinear : Kind::kStrided;
}

// Of an element, counted in the order of the outputs.
int64_t place_of(const PointwiseSpace::Map& input, int64_t element) {
  int64_t place = input.offset;
  for (size_t dim = 0; dim < input.sizes.size(); ++dim) {
    place += element % input.sizes[dim] * input.strides[dim];
    element /= input.sizes[dim];
  }
  return place;
}

// Whether it is read or written where it is.
bool is_computed_in_place(const Program& program, const Memory& memory) {
  return memory.data && memory.dtype == program.dtype && memory.total == Total::kNone;
}

bool is_all_in_place(const Program& program, const PointwiseSpace& space, c10::ArrayRef<Memory> memory) {
  for (size_t slot = 0; slot < program.num_memory; ++slot) {
    const bool is_input = slot < space.num_inputs();
    if (!is_computed_in_place(program, memory[slot]) || (is_input && space.input(slot).kind != Kind::kLinear)) {
      return false;
    }
  }
  return true;
}

// One thread's work.
template <typename T>
class Part {
 public:
  Part(
      const Program& program,
      const PointwiseSpace& space,
      c10::ArrayRef<Memory> memory,
      const double* numbers,
      const Assembly* assembly)
      : program_(program),
        space_(space),
        memory_(memory),
        numbers_(numbers),
        assembly_(std::is_same_v<T, float> ? assembly : nullptr),
        row_length_(program.has_rows() ? space.row_length() : 0),
        tile_(program, needs(), row_length_) {
    for (const Instruction& instruction : program.instructions) {
      makes_one_[instruction.out] = instruction.makes_one();
    }
    is_direct_ = program.instructions.size() == 1 && is_all_in_place(program, space, memory);
  }

  void run(int64_t begin, int64_t end) {
    begin_totals();
    for (size_t i = 0; i < space_.num_inputs(); ++i) {
      if (space_.input(i).kind == Kind::kWindow) {
        std::fill_n(tile_.own(i), tile_.size, T(0)); // what is computed of the other columns is thrown away
      } else if (space_.input(i).kind == Kind::kConstant) {
        load(i, std::min(tile_.size, end - begin), space_.input(i).offset, 0, tile_.own(i));
      } else if (is_same_for_tiles(i)) {
        gather(i, begin, std::min(tile_size(begin), end - begin));
      }
    }
    for (int64_t first = begin; first < end;) {
      const int64_t n = std::min(tile_size(first), end - first);
      run_tile(first, n);
      first += n;
    }
    finish_totals();
  }

 private:
  SlotNeeds needs() const {
    SlotNeeds needs{};
    for (size_t i = 0; i < space_.num_inputs(); ++i) {
      const bool is_elsewhere = is_computed_in_place(i) && space_.input(i).kind == Kind::kLinear;
      needs[i] = is_elsewhere ? SlotNeed::kNothing : SlotNeed::kAll;
    }
    for (const Instruction& instruction : program_.instructions) {
      const bool has_memory =
          instruction.out < program_.num_memory || !assembly_ || assembly_->uses_memory(instruction.out, row_length_);
      if (has_memory && (instruction.out >= program_.num_memory || !is_computed_in_place(instruction.out))) {
        needs[instruction.out] =
            std::max(needs[instruction.out], instruction.makes_one() ? SlotNeed::kOnePerRow : SlotNeed::kAll);
      }
    }
    return needs;
  }

  // Long rows are not torn, so that inputs which are the same for each row are read where they are.
  int64_t tile_size(int64_t first) const {
    if (is_direct_) {
      const int64_t unit = std::max<int64_t>(row_length_, 1);
      return kMostAtOnce / unit * unit;
    }
    if (row_length_ != 0) {
      return tile_.size;
    }
    const int64_t row = space_.shortest_run();
    return row < kLongRow ? tile_.size : std::min(tile_.size, row - first % row);
  }

  void run_tile(int64_t first, int64_t n) {
    for (size_t i = 0; i < space_.num_inputs(); ++i) {
      read(i, first, n);
    }
    for (size_t i = space_.num_inputs(); i < program_.num_memory; ++i) {
      tile_.slots[i] = is_computed_in_place(i) ? static_cast<T*>(memory_[i].data) + place(i, first) : tile_.own(i);
    }
    kernels::run_tile(program_, assembly_, numbers_, n, tile_);
    for (size_t i = space_.num_inputs(); i < program_.num_memory; ++i) {
      if (memory_[i].data && memory_[i].total == Total::kNone && !is_computed_in_place(i)) {
        store(i, makes_one_[i] ? n / row_length_ : n, place(i, first));
      }
    }
    for (auto& [slot, sum] : totals_) {
      kernels::loops<T>().add_to_sum(sum, n, tile_.own(slot));
    }
  }

  // In the memory of an output.
  int64_t place(size_t slot, int64_t first) const {
    return makes_one_[slot] ? first / row_length_ : first;
  }

  bool is_computed_in_place(size_t slot) const {
    return kernels::is_computed_in_place(program_, memory_[slot]);
  }

  void begin_totals() {
    for (size_t slot = space_.num_inputs(); slot < program_.num_memory; ++slot) {
      if (memory_[slot].data && memory_[slot].total != Total::kNone) {
        totals_.emplace_back(slot, RunningSum<T>());
      }
    }
  }
  void finish_totals() {
    for (const auto& [slot, sum] : totals_) {
      const T total = kernels::loops<T>().finish_sum(sum);
      const bool is_mean = memory_[slot].total == Total::kMean;
      *static_cast<T*>(memory_[slot].data) = is_mean ? total / static_cast<T>(space_.num_elements()) : total;
    }
  }

  void load(size_t slot, int64_t n, int64_t place, int64_t stride, T* out) {
    if (stride == 1 && memory_[slot].dtype == program_.dtype) {
      std::copy_n(static_cast<const T*>(memory_[slot].data) + place, n, out);
    } else {
      kernels::loops<T>().loads[memory_dtype(memory_[slot].dtype)](n, out, element(slot, place), stride);
    }
  }
  void store(size_t slot, int64_t n, int64_t place) {
    kernels::loops<T>().stores[memory_dtype(memory_[slot].dtype)](n, element(slot, place), tile_.own(slot));
  }
  void* element(size_t slot, int64_t place) const {
    const auto size = static_cast<int64_t>(c10::elementSize(memory_[slot].dtype));
    return static_cast<char*>(memory_[slot].data) + place * size;
  }

  // What is the same for each row is gathered once if a tile has several.
  bool is_same_for_tiles(size_t slot) const {
    const auto& input = space_.input(slot);
    return row_length_ != 0 && tile_.size >= 2 * row_length_ && input.kind == Kind::kStrided &&
           input.sizes.size() == 2 && input.sizes[0] == row_length_ && input.strides[1] == 0;
  }

  void read(size_t slot, int64_t first, int64_t n) {
    const auto& input = space_.input(slot);
    if (is_same_for_tiles(slot)) {
      return;
    }
    if (input.kind == Kind::kLinear) {
      read_run(slot, input.offset + first, n, 1);
    } else if (input.kind == Kind::kStrided) {
      const int64_t in_run = first % input.sizes[0];
      if (in_run + n <= input.sizes[0]) {
        read_run(slot, place_of(input, first), n, input.strides[0]);
      } else {
        gather(slot, first, n);
      }
    } else if (input.kind == Kind::kWindow) {
      read_window(slot, first, n);
    }
  }

  // Row by row, most often as far apart from each other.
  void read_window(size_t slot, int64_t first, int64_t n) {
    const auto& input = space_.input(slot);
    const int64_t size = input.window.size();
    const int64_t first_row = first / row_length_;
    const bool is_even = input.sizes.size() == 2 && input.sizes[0] == size;
    T* const out = tile_.own(slot) + input.window.begin;
    for (int64_t row = 0; row < n / row_length_; ++row) {
      if (is_even) {
        const int64_t place = input.offset + (first_row + row) * input.strides[1];
        load(slot, size, place, input.strides[0], out + row * row_length_);
      } else {
        load_runs(slot, (first_row + row) * size, size, out + row * row_length_);
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

  void gather(size_t slot, int64_t first, int64_t n) {
    tile_.slots[slot] = tile_.own(slot);
    load_runs(slot, first, n, tile_.own(slot));
  }

  // Run by run.
  void load_runs(size_t slot, int64_t first, int64_t n, T* out) {
    const auto& input = space_.input(slot);
    const int64_t length = input.run_length();
    const int64_t stride = input.strides.empty() ? 0 : input.strides[0];
    while (n > 0) {
      const int64_t count = std::min(n, length - first % length);
      load(slot, count, place_of(input, first), stride, out);
      n -= count;
      out += count;
      first += count;
    }
  }

  static constexpr int64_t kLongRow = 128;
  // Functions of libraries count in 32 bits.
  static constexpr int64_t kMostAtOnce = 1 << 20;

  const Program& program_;
  const PointwiseSpace& space_;
  const c10::ArrayRef<Memory> memory_;
  const double* const numbers_;
  const Assembly* const assembly_;
  const int64_t row_length_;                // 0: there are no rows
  std::array<bool, kMaxSlots> makes_one_{}; // by slot: one element for each row
  bool is_direct_ = false;                  // one instruction, which has nothing to keep in the L1 cache
  Tile<T> tile_;
  std::vector<std::pair<size_t, RunningSum<T>>> totals_; // of these slots
};

// One instruction on few elements, which are read and written where they are: to set up a tile takes longer. False if
// it is something else.
template <typename T>
bool run_alone(
    const Program& program,
    const PointwiseSpace& space,
    c10::ArrayRef<Memory> memory,
    const double* numbers) {
  constexpr size_t kMostMemory = 4; // no instruction has more
  constexpr int64_t kMostElements = 4096;
  if (program.instructions.size() != 1 || memory.size() > kMostMemory || space.num_elements() > kMostElements ||
      program.has_rows() || program.instructions[0].out >= memory.size() || !is_all_in_place(program, space, memory)) {
    return false;
  }
  T* slots[kMostMemory] = {};
  for (size_t i = 0; i < memory.size(); ++i) {
    slots[i] = static_cast<T*>(memory[i].data) + (i < space.num_inputs() ? space.input(i).offset : 0);
  }
  run_loops<T>(program.instructions, numbers, 0, space.num_elements(), slots, /*row_length=*/0);
  return true;
}

template <typename T>
void run_parts(
    const Program& program,
    const PointwiseSpace& space,
    c10::ArrayRef<Memory> memory,
    const double* numbers,
    const Assembly* assembly) {
  if (run_alone<T>(program, space, memory, numbers)) {
    return;
  }
  if (std::any_of(memory.begin(), memory.end(), [](const Memory& each) { return each.total != Total::kNone; })) {
    Part<T>(program, space, memory, numbers, assembly).run(0, space.num_elements());
    return;
  }
  const int64_t unit = program.has_rows() ? space.row_length() : 1;
  const int64_t grain = (at::internal::GRAIN_SIZE + unit - 1) / unit;
  parallel_for(space.num_elements() / unit, grain, [&](int64_t begin, int64_t end) {
    Part<T>(program, space, memory, numbers, assembly).run(begin * unit, end * unit);
  });
}

} // namespace

bool can_total(c10::ScalarType dtype, int64_t num_elements) {
  constexpr int64_t kMin = std::max(RunningSum<float>::kMinElements, RunningSum<double>::kMinElements);
  constexpr int64_t kEnd = std::min(RunningSum<float>::kEndElements, RunningSum<double>::kEndElements);
  return (dtype == c10::ScalarType::Float || dtype == c10::ScalarType::Double) && num_elements >= kMin &&
         num_elements < kEnd;
}

bool can_read(c10::ScalarType dtype) {
  return memory_dtype(dtype) < std::size(kMemoryDtypes);
}

PointwiseSpace::Map
map_input(c10::IntArrayRef all_sizes, c10::IntArrayRef strides, const PointwiseSpace::Input& input) {
  PointwiseSpace::Map map{Kind::kConstant, input.offset, {}, {}, input.window};
  c10::DimVector sizes(all_sizes);
  if (!input.window.is_all()) {
    sizes.back() = input.window.size();
  }
  for (const int64_t dim : dims_by_stride(sizes, strides)) {
    // One with the dimension before, if the input steps evenly along both.
    if (!map.sizes.empty() && input.strides[dim] == map.strides.back() * map.sizes.back()) {
      map.sizes.back() *= sizes[dim];
    } else {
      map.sizes.push_back(sizes[dim]);
      map.strides.push_back(input.strides[dim]);
    }
  }
  map.kind = input.window.is_all() ? kind_of(map.strides) : Kind::kWindow;
  return map;
}

PointwiseSpace::PointwiseSpace(c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ArrayRef<Input> inputs)
    : row_length_(sizes.empty() ? 1 : sizes.back()) {
  for (const int64_t size : sizes) {
    num_elements_ *= size;
  }
  for (const Input& input : inputs) {
    const Map& map = inputs_.emplace_back(map_input(sizes, strides, input));
    if (map.kind == Kind::kStrided) {
      shortest_run_ = shortest_run_ == 0 ? map.run_length() : std::min(shortest_run_, map.run_length());
    }
  }
}

int64_t PointwiseSpace::extent(size_t input) const {
  const Map& map = inputs_[input];
  int64_t last = 0;
  for (size_t dim = 0; dim < map.sizes.size(); ++dim) {
    last += (map.sizes[dim] - 1) * map.strides[dim];
  }
  return last + 1;
}

void run(
    const Program& program,
    const PointwiseSpace& space,
    c10::ArrayRef<Memory> memory,
    const double* numbers,
    const Assembly* assembly) {
  TORCH_INTERNAL_ASSERT(memory.size() == program.num_memory && space.num_inputs() <= memory.size());
  AT_DISPATCH_ALL_TYPES(program.dtype, "tile program", [&] {
    run_parts<scalar_t>(program, space, memory, numbers, assembly);
  });
}

} // namespace lazyplug::kernels
