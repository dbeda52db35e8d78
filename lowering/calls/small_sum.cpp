#include "lowering/calls/small_sum.h"

#include <ATen/TensorIterator.h>

#include <algorithm>
#include <iterator>

#include "lowering/fusion/program_numbers.h"

namespace lazyplug {
namespace {

// Which dimensions are added up; nothing if some is not there, or is named twice.
std::optional<std::vector<bool>> reduced_dims(const c10::IValue& dims, int64_t num_dims) {
  const auto named = dims.isNone() ? std::vector<int64_t>() : dims.toIntVector();
  std::vector<bool> reduced(num_dims, named.empty());
  for (const int64_t dim : named) {
    const int64_t place = dim < 0 ? dim + num_dims : dim;
    if (place < 0 || place >= num_dims || reduced[place]) {
      return std::nullopt;
    }
    reduced[place] = true;
  }
  return reduced;
}

// Nothing if the dimensions that are added up are not neighbours, or stand between others.
std::optional<kernels::Reduction>
plan_reduction(kernels::Opcode makes, c10::IntArrayRef sizes, const std::vector<bool>& reduced) {
  const auto first = std::find(reduced.begin(), reduced.end(), true) - reduced.begin();
  const auto last = reduced.rend() - std::find(reduced.rbegin(), reduced.rend(), true);
  kernels::Reduction reduction{1, 1, 1, makes};
  for (std::ptrdiff_t dim = 0; dim < static_cast<std::ptrdiff_t>(sizes.size()); ++dim) {
    (dim < first ? reduction.outer : dim < last ? reduction.reduced : reduction.inner) *= sizes[dim];
    if (first < dim && dim < last && !reduced[dim] && sizes[dim] != 1) {
      return std::nullopt;
    }
  }
  const bool is_between = reduction.outer != 1 && reduction.inner != 1;
  return is_between || reduction.reduced <= 1 ? std::nullopt : std::optional(reduction);
}

} // namespace

const SmallSum::Op* SmallSum::find(const OpInfo& op) {
  using kernels::Opcode;
  static constexpr Op kOps[] = {
      {"aten::sum", Opcode::kRowSum, 0},
      {"aten::sum.dim_IntList", Opcode::kRowSum, 1},
      {"aten::mean", Opcode::kRowMean, 0},
      {"aten::mean.dim", Opcode::kRowMean, 1},
      {"aten::linalg_vector_norm", Opcode::kRowNorm, 2},
  };
  const auto* found =
      std::find_if(std::begin(kOps), std::end(kOps), [&](const Op& each) { return op.name() == each.name; });
  return found == std::end(kOps) ? nullptr : found;
}

bool SmallSum::makes_it(const Op& op, const c10::IValue& second_argument) {
  return op.makes != kernels::Opcode::kRowNorm || real_number(second_argument) == 2;
}

std::optional<SmallSum> SmallSum::plan(kernels::Opcode makes, const Geometry& input, const c10::IValue& dims) {
  // Larger ones are shared by several threads.
  if (input.numel() == 0 || input.numel() >= at::internal::GRAIN_SIZE || input.has_bits() ||
      (input.dtype != at::kFloat && input.dtype != at::kDouble) || !input.is_contiguous() ||
      !(dims.isNone() || dims.isIntList())) {
    return std::nullopt;
  }
  auto reduced = reduced_dims(dims, static_cast<int64_t>(input.sizes.size()));
  const auto reduction = reduced ? plan_reduction(makes, input.sizes, *reduced) : std::nullopt;
  if (!reduction) {
    return std::nullopt;
  }
  if (makes == kernels::Opcode::kRowNorm) {
    if (!kernels::has_norms_of_pytorch() || reduction->inner != 1 || input.dtype != at::kFloat) {
      return std::nullopt;
    }
  }
  SmallSum sum;
  sum.dtype_ = input.dtype;
  sum.reduced_ = std::move(*reduced);
  sum.reduction_ = *reduction;
  return sum;
}

c10::DimVector SmallSum::result_sizes(c10::IntArrayRef sizes, bool keeps_dims) const {
  c10::DimVector result;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (!reduced_[dim] || keeps_dims) {
      result.push_back(reduced_[dim] ? 1 : sizes[dim]);
    }
  }
  return result;
}

void SmallSum::run(const void* from, void* to) const {
  kernels::reduce(reduction_, dtype_, from, to);
}

} // namespace lazyplug
