#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <vector>

#include "kernels/tile_program.h"

namespace lazyplug::kernels {

// What computes an element from elements in the same place: all but what is about rows. In programs of floats.
inline std::vector<OpcodeTraits> elementwise_opcodes(at::ScalarType dtype) {
  std::vector<OpcodeTraits> result;
  std::copy_if(kOpcodes.begin(), kOpcodes.end(), std::back_inserter(result), [&](const OpcodeTraits& row) {
    return !is_about_rows(row.opcode) && is_for_floats(row.opcode) &&
           (dtype == at::kFloat || !is_narrowing(row.opcode));
  });
  return result;
}

// A row on contiguous tensors.
struct Tensors {
  std::vector<void*> memory;
  std::vector<double> numbers;
  int64_t num_elements;

  Tensors(const std::vector<at::Tensor>& tensors, std::vector<double> given)
      : numbers(std::move(given)), num_elements(tensors[0].numel()) {
    for (const at::Tensor& tensor : tensors) {
      memory.push_back(tensor.data_ptr());
    }
  }
  Row row() const {
    return {num_elements, memory.data(), numbers.data()};
  }
};

inline at::Tensor run_one(Opcode opcode, const std::vector<at::Tensor>& inputs, const std::vector<double>& numbers) {
  const auto num_slots = static_cast<uint8_t>(inputs.size() + 1);
  const auto num_numbers = static_cast<uint8_t>(numbers.size());
  Program program{inputs[0].scalar_type(), num_slots, num_slots, num_numbers, {{opcode, 0, {1, 2, 3}, 0, 1}}};
  const at::Tensor out = at::empty_like(inputs[0]);
  std::vector<at::Tensor> memory{out};
  memory.insert(memory.end(), inputs.begin(), inputs.end());
  run(program, Tensors(memory, numbers).row());
  return out;
}

inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const auto integers = a.scalar_type() == at::kFloat ? at::kInt : at::kLong;
  const at::Tensor is_nan = a.isnan().logical_and(b.isnan());
  return a.view(integers).eq(b.view(integers)).logical_or(is_nan).all().item<bool>();
}

// Ordinary numbers, and every pair and triple of unusual ones.
inline std::vector<at::Tensor> arguments(int64_t n, at::ScalarType dtype) {
  const double inf = std::numeric_limits<double>::infinity();
  const at::Tensor unusual = at::tensor({0.0, -0.0, inf, -inf, NAN, 1e-42, -1e-310, 1.0, 3e38, -0.5}, at::kDouble);
  std::vector<at::Tensor> result;
  for (int64_t i = 0; i < 3; ++i) {
    at::Tensor values = at::randn({n}, at::kDouble) * at::randn({n}, at::kDouble).mul(6).exp();
    const at::Tensor places = at::arange(n).div(static_cast<int64_t>(std::pow(10, i)), "floor").remainder(10);
    values = at::where(at::arange(n).lt(n / 2), values, unusual.index_select(0, places));
    result.push_back(values.to(dtype));
  }
  return result;
}

} // namespace lazyplug::kernels
