#pragma once

#include <c10/util/DimVector.h>

#include <vector>

#include "kernels/tile_program.h"

namespace lazyplug::kernels {

// Whether a program, which computes in its own dtype, may read memory that holds this one.
bool can_read(c10::ScalarType dtype);

// Columns of rows; all of them if `end` is 0.
struct Window {
  int64_t begin = 0;
  int64_t end = 0;

  bool is_all() const {
    return end == 0;
  }
  int64_t size() const {
    return end - begin;
  }
  bool operator==(const Window& other) const = default;
};

// How the elements of a pointwise program's slots with memory lie: its inputs anyhow, its outputs, the last of these
// slots, all alike and without gaps. Independent of the program, and of dtypes.
class PointwiseSpace {
 public:
  struct Input {
    int64_t offset;         // elements from the start of its memory
    c10::DimVector strides; // elements; 0: what stands there is the same for all
    // For programs with rows: it only has these columns, of which `offset` is the first's. What stands in the others is
    // any number.
    Window window = {};
  };

  // Sizes and strides of the outputs; the inputs have as many dimensions.
  PointwiseSpace(c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ArrayRef<Input> inputs);

  int64_t num_elements() const {
    return num_elements_;
  }
  // For programs with rows, whose outputs have no gaps: of the last dimension.
  int64_t row_length() const {
    return row_length_;
  }
  size_t num_inputs() const {
    return inputs_.size();
  }
  // Whether the input has an element where each output has one, in the same places.
  bool is_like_outputs(size_t input) const {
    return inputs_[input].kind == Kind::kLinear;
  }

  // Where the elements of an input lie, in the order of the outputs' memory.
  enum class Kind : uint8_t {
    kLinear,   // one after the other
    kConstant, // all are one
    kStrided,
    kWindow, // as kStrided, but of some columns
  };
  struct Map {
    Kind kind;
    int64_t offset;
    // The fewest dimensions that describe it, from the innermost.
    c10::DimVector sizes;
    c10::DimVector strides;
    Window window = {};

    int64_t run_length() const {
      return sizes.empty() ? 1 : sizes[0];
    }
  };
  const Map& input(size_t index) const {
    return inputs_[index];
  }
  // From the first to the last element of an input, both included.
  int64_t extent(size_t input) const;
  // The shortest run of a strided input; 0 if there is none.
  int64_t shortest_run() const {
    return shortest_run_;
  }

 private:
  int64_t num_elements_ = 1;
  int64_t row_length_ = 1;
  int64_t shortest_run_ = 0;
  std::vector<Map> inputs_;
};

// How an input lies, as PointwiseSpace describes it.
PointwiseSpace::Map map_input(c10::IntArrayRef sizes, c10::IntArrayRef strides, const PointwiseSpace::Input& input);

// What becomes of all elements of an output.
enum class Total : uint8_t { kNone, kSum, kMean };

// Whether it may be a sum of float32 or float64, as Memory::total says.
bool can_total(c10::ScalarType dtype, int64_t num_elements);

// Memory of a slot. What the program writes has its dtype, or is Bool, or of 16-bit floats if it computes in float32,
// where it is rounded on its way; null: nobody wants it. Outputs that are one element for each row hold as many. If
// there is a total of an output, it is the one element there: as the CPU's kernels add up in one thread.
struct Memory {
  void* data;
  c10::ScalarType dtype;
  Total total = Total::kNone;
};

// Runs the program for each element, in parallel if there is enough to do and no total; by its machine code as far as
// there is some. An output may be an input that lies like it, if the program does not read that after it has written. A
// row of a program that has some must fit into a tile: kTileBytes for all slots.
void run(
    const Program& program,
    const PointwiseSpace& space,
    c10::ArrayRef<Memory> memory,
    const double* numbers,
    const Assembly* assembly = nullptr);

} // namespace lazyplug::kernels
