#include "lowering/calls/small_extreme.h"

#include <ATen/EmptyTensor.h>
#include <ATen/TensorIterator.h>

#include <algorithm>

namespace lazyplug {

const SmallExtreme::Op* SmallExtreme::find(const OpInfo& op) {
  static constexpr Op kOps[] = {
      {"aten::argmax", Returns::kPlaces, false},
      {"aten::argmin", Returns::kPlaces, true},
      {"aten::max", Returns::kValues, false},
      {"aten::min", Returns::kValues, true},
      {"aten::amax", Returns::kValues, false},
      {"aten::amin", Returns::kValues, true},
      {"aten::max.dim", Returns::kValuesAndPlaces, false},
      {"aten::min.dim", Returns::kValuesAndPlaces, true},
      {"aten::all", Returns::kTruth, true},
      {"aten::all.dim", Returns::kTruth, true},
      {"aten::_is_all_true", Returns::kTruth, true},
      {"aten::any", Returns::kTruth, false},
      {"aten::any.dim", Returns::kTruth, false},
      {"aten::_is_any_true", Returns::kTruth, false},
  };
  const auto* found =
      std::find_if(std::begin(kOps), std::end(kOps), [&](const Op& each) { return op.name() == each.name; });
  return found == std::end(kOps) ? nullptr : found;
}

namespace {

// A list of one dimension is that dimension, an empty one is none. Anything else stays as it is.
c10::IValue one_dim(const c10::IValue& dim) {
  if (!dim.isIntList()) {
    return dim;
  }
  const auto dims = dim.toIntVector();
  return dims.empty() ? c10::IValue() : dims.size() == 1 ? c10::IValue(dims.front()) : dim;
}

} // namespace

std::optional<SmallExtreme> SmallExtreme::plan(const Op& op, const Geometry& input, const c10::IValue& named_dim) {
  constexpr size_t kMostDims = 64; // PyTorch's kernels refuse more
  const c10::IValue dim = one_dim(named_dim);
  // Larger ones are shared by several threads.
  if (input.sizes.size() > kMostDims || input.numel() == 0 || input.numel() >= at::internal::GRAIN_SIZE ||
      input.has_bits() || !input.is_contiguous() || !(dim.isNone() || dim.isInt())) {
    return std::nullopt;
  }
  SmallExtreme result(op.returns, {1, input.numel(), 1, op.is_least}, input.dtype);
  const auto num_dims = static_cast<int64_t>(input.sizes.size());
  if (dim.isInt()) {
    const int64_t searched = dim.toInt() < 0 ? dim.toInt() + std::max<int64_t>(num_dims, 1) : dim.toInt();
    if (searched < 0 || searched >= std::max<int64_t>(num_dims, 1)) {
      return std::nullopt;
    }
    if (num_dims != 0) {
      result.dim_ = searched;
      result.search_.searched = input.sizes[searched];
    }
    for (int64_t i = 0; i < num_dims; ++i) {
      if (i != searched) {
        (i < searched ? result.search_.outer : result.search_.inner) *= input.sizes[i];
      }
    }
  }
  const bool is_rows = result.search_.inner == 1;
  const bool is_possible = op.returns == Returns::kTruth    ? input.dtype == at::kBool && is_rows
                           : op.returns == Returns::kValues ? kernels::can_search(input.dtype) && is_rows
                                                            : kernels::can_search(input.dtype);
  return is_possible ? std::optional(result) : std::nullopt;
}

c10::DimVector SmallExtreme::result_sizes(c10::IntArrayRef sizes, bool keeps_dims) const {
  c10::DimVector result;
  for (int64_t dim = 0; dim < static_cast<int64_t>(sizes.size()); ++dim) {
    const bool is_searched = !dim_ || dim == *dim_;
    if (!is_searched || keeps_dims) {
      result.push_back(is_searched ? 1 : sizes[dim]);
    }
  }
  return result;
}

std::array<at::Tensor, 2> SmallExtreme::run(c10::IntArrayRef result_sizes, const void* from) const {
  const auto make = [&](c10::ScalarType dtype) { return at::detail::empty_cpu(result_sizes, dtype); };
  const auto places = [](const at::Tensor& tensor) { return tensor.mutable_data_ptr<int64_t>(); };
  switch (returns_) {
    case Returns::kTruth: {
      at::Tensor truths = make(at::kBool);
      bool* to = truths.mutable_data_ptr<bool>();
      kernels::test(search_.outer, search_.searched, search_.is_least, static_cast<const bool*>(from), to);
      return {truths};
    }
    case Returns::kValues: {
      at::Tensor values = make(dtype_);
      return {kernels::find_extremes(search_, dtype_, from, values.mutable_data_ptr()) ? values : at::Tensor()};
    }
    case Returns::kPlaces: {
      at::Tensor found = make(at::kLong);
      kernels::search(search_, dtype_, from, nullptr, places(found));
      return {found};
    }
    case Returns::kValuesAndPlaces: {
      at::Tensor values = make(dtype_);
      at::Tensor found = make(at::kLong);
      kernels::search(search_, dtype_, from, values.mutable_data_ptr(), places(found));
      return {values, found};
    }
  }
  TORCH_INTERNAL_ASSERT(false);
}

} // namespace lazyplug
