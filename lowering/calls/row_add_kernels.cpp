#include "lowering/calls/row_add_kernels.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_embedding_bag_dense_backward.h>
#include <ATen/ops/sort.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "kernels/row_adds.h"
#include "kernels/trial_numbers.h"
#include "lowering/calls/call_results.h"
#include "lowering/calls/dense_tensors.h"

namespace lazyplug {
namespace {

using Arguments = c10::ArrayRef<c10::IValue>;

constexpr int64_t kNowhere = -1;

const at::Tensor* dense_rows(const c10::IValue& argument) {
  const auto* tensor = dense_floats(argument);
  return tensor && tensor->dim() != 0 ? tensor : nullptr;
}

at::Tensor empty_table(const at::Tensor& rows, int64_t num_rows, int64_t row_length) {
  return at::detail::empty_cpu({num_rows, row_length}, rows.scalar_type());
}

// Those of `places` that are not `padding`.
class Targets {
 public:
  Targets(Places places, int64_t padding) : places_(places) {
    if (padding >= 0 && std::find(places.begin(), places.end(), padding) != places.end()) {
      without_padding_.resize(places.size());
      std::replace_copy(places.begin(), places.end(), without_padding_.begin(), padding, kNowhere);
      places_ = without_padding_;
    }
  }
  Targets(const Targets&) = delete;
  Targets& operator=(const Targets&) = delete;

  const int64_t* data() const {
    return places_.data();
  }

 private:
  Places places_;
  std::vector<int64_t> without_padding_;
};

// ---- bags ----

constexpr int64_t kSum = 0;
constexpr int64_t kMean = 1;

// Which bag each of so many rows is in. Nothing if they do not begin with the first, or one begins before another.
std::optional<std::vector<int64_t>> bags_of(Places offsets, int64_t count) {
  if (offsets.empty() || offsets[0] != 0 || offsets.back() > count || !std::is_sorted(offsets.begin(), offsets.end())) {
    return std::nullopt;
  }
  std::vector<int64_t> bags(count);
  for (size_t bag = 0; bag < offsets.size(); ++bag) {
    std::fill(bags.begin() + offsets[bag], bags.begin() + (bag + 1 < offsets.size() ? offsets[bag + 1] : count), bag);
  }
  return bags;
}

at::Tensor tensor_of(Places places) {
  at::Tensor result = at::detail::empty_cpu({static_cast<int64_t>(places.size())}, at::kLong);
  std::copy(places.begin(), places.end(), result.mutable_data_ptr<int64_t>());
  return result;
}

// Of rows of a table, without weights of their own.
struct Bags {
  const at::Tensor& weight;
  Places indices;
  Places offsets; // without the end, if that is said
  bool has_end;
  int64_t mode;
  int64_t padding;

  int64_t count() const {
    return static_cast<int64_t>(indices.size());
  }
};

bool is_sum_or_mean(const c10::IValue& mode) {
  return mode.toInt() == kSum || mode.toInt() == kMean;
}

bool is_list(const c10::IValue& places) {
  return places.toTensor().dim() == 1;
}

// (weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding_idx)
std::optional<Bags> find_bags(Arguments arguments) {
  const auto* weight = dense_rows(arguments[0]);
  const auto indices = dense_places(arguments[1]);
  const auto offsets = dense_places(arguments[2]);
  const bool has_end = arguments[7].toBool();
  if (!weight || weight->dim() != 2 || !indices || !offsets || !is_list(arguments[1]) || !is_list(arguments[2]) ||
      !is_sum_or_mean(arguments[4]) || is_there(arguments[6]) ||
      (has_end && offsets->back() != static_cast<int64_t>(indices->size()))) {
    return std::nullopt;
  }
  // Of more elements, PyTorch's kernels take less time for each.
  const bool is_small = static_cast<int64_t>(indices->size()) * weight->size(1) < at::internal::GRAIN_SIZE;
  if (!is_small || !are_below(*indices, weight->size(0))) {
    return std::nullopt;
  }
  const Places begins = has_end ? offsets->slice(0, offsets->size() - 1) : *offsets;
  return Bags{*weight, *indices, begins, has_end, arguments[4].toInt(), arguments[8].toInt()};
}

// `bags`: that of each row. The sums are divided by these sizes, if means are asked for.
at::Tensor add_up(const Bags& call, const std::vector<int64_t>& bags, const std::vector<int64_t>& sizes) {
  const auto num_bags = static_cast<int64_t>(call.offsets.size());
  const int64_t n = call.weight.size(1);
  at::Tensor result = empty_table(call.weight, num_bags, n);
  with_dtype(call.weight, [&]<typename T>(T) {
    T* table = result.mutable_data_ptr<T>();
    kernels::run(
        kernels::RowAdds<T>{
            .row_length = n,
            .num_rows = num_bags,
            .table = table,
            .is_from_zero = true,
            .count = call.count(),
            .rows = call.weight.const_data_ptr<T>(),
            .from = call.indices.data(),
            .to = bags.data()});
    for (int64_t bag = 0; call.mode == kMean && bag < num_bags; ++bag, table += n) {
      const T size = static_cast<T>(std::max<int64_t>(sizes[bag], 1));
      std::transform(table, table + n, table, [size](T sum) { return sum / size; });
    }
  });
  return result;
}

bool run_bag(const OpInfo& op, c10::Stack& stack, bool is_forward_only) {
  const auto call = find_bags(torch::jit::last(stack, op.num_args()));
  auto bags = call ? bags_of(call->offsets, call->count()) : std::nullopt;
  if (!bags) {
    return false;
  }
  // PyTorch's does not ask where rows go if it adds them up by bags, and sizes of sums are zeros, perhaps one more.
  const bool is_by_bags = call->mode == kSum && call->padding < 0 && call->weight.scalar_type() == at::kFloat;
  at::Tensor bag_of_row = tensor_of(is_by_bags ? Places() : Places(*bags));
  std::vector<int64_t> sizes(call->offsets.size() + (call->mode == kSum && is_forward_only && call->has_end ? 1 : 0));
  for (int64_t i = 0; i < call->count(); ++i) {
    int64_t& bag = (*bags)[i];
    if (call->indices[i] == call->padding) {
      bag = kNowhere;
    } else if (call->mode == kMean) {
      ++sizes[bag];
    }
  }
  at::Tensor result = add_up(*call, *bags, sizes);
  return_result(op, stack, std::move(result));
  stack.emplace_back(std::move(bag_of_row));
  stack.emplace_back(tensor_of(sizes));
  stack.emplace_back(tensor_of(sizes)); // where PyTorch's has places of maxima, if it looks for these
  return true;
}

// What a gradient is of.
struct BagGradient {
  const at::Tensor& gradient; // of bags
  const at::Tensor& indices;
  Places bags;  // of indices
  Places sizes; // of bags, if these are means; or else none
  int64_t num_rows;
  int64_t padding;
};

at::Tensor compute(const BagGradient& bag) {
  const auto count = static_cast<int64_t>(bag.bags.size());
  const auto [sorted, order] = at::sort(bag.indices);
  const int64_t* places = order.const_data_ptr<int64_t>();
  std::vector<int64_t> bags(count);
  std::transform(places, places + count, bags.begin(), [&](int64_t place) { return bag.bags[place]; });
  const Targets targets({sorted.const_data_ptr<int64_t>(), bag.bags.size()}, bag.padding);
  at::Tensor result = empty_table(bag.gradient, bag.num_rows, bag.gradient.size(1));
  with_dtype(bag.gradient, [&]<typename T>(T) {
    std::vector<T> factors(bag.sizes.size());
    std::transform(bag.sizes.begin(), bag.sizes.end(), factors.begin(), [](int64_t size) {
      return static_cast<T>(size == 0 ? 1.0 : 1.0 / static_cast<double>(size));
    });
    kernels::run(
        kernels::RowAdds<T>{
            .row_length = bag.gradient.size(1),
            .num_rows = bag.num_rows,
            .table = result.mutable_data_ptr<T>(),
            .is_from_zero = true,
            .count = count,
            .rows = bag.gradient.const_data_ptr<T>(),
            .from = bags.data(),
            .to = targets.data(),
            .factors = factors.empty() ? nullptr : factors.data(),
            .factor_of = bags.data()});
  });
  return result;
}

template <typename T>
bool try_axpy() {
  constexpr int64_t kRows = 3;
  constexpr int64_t kLength = 45;
  constexpr int64_t kBags = 7;
  at::Tensor gradient = empty_table(at::detail::empty_cpu({}, c10::CppTypeToScalarType<T>::value), kBags, kLength);
  std::vector<float> numbers(gradient.numel());
  uint32_t state = 1;
  kernels::draw_for_trial(numbers.data(), gradient.numel(), state);
  std::transform(numbers.begin(), numbers.end(), gradient.mutable_data_ptr<T>(), [](float x) { return T(x) / 3; });
  constexpr std::array<int64_t, 10> kIndices = {2, 0, 1, 1, 0, 0, 2, 0, 1, 0};
  constexpr std::array<int64_t, 10> kPlaces = {0, 1, 2, 3, 3, 4, 5, 6, 6, 6};
  constexpr std::array<int64_t, kBags> kSizes = {3, 5, 7, 9, 11, 13, 15};
  const at::Tensor indices = tensor_of(kIndices);
  const at::Tensor sizes = tensor_of(kSizes);
  const at::Tensor expected =
      at::_embedding_bag_dense_backward(gradient, indices, tensor_of(kPlaces), sizes, sizes, kRows, false, kMean, {});
  return has_same_bits(compute({gradient, indices, kPlaces, kSizes, kRows, kNowhere}), expected);
}

bool has_bits_of_axpy(const at::Tensor& rows) {
  return with_dtype(rows, []<typename T>(T) {
    static const bool has_bits = try_axpy<T>();
    return has_bits;
  });
}

// ---- indices ----

struct IndexAdd {
  const at::Tensor& self;
  const at::Tensor& source;
  Places places;
};

// One row for each index.
std::optional<IndexAdd> find_index_add(const c10::IValue& self, const c10::IValue& index, const c10::IValue& source) {
  const auto* to = dense_rows(self);
  const auto* from = dense_rows(source);
  const auto places = dense_places(index);
  if (!to || !from || !places || to->scalar_type() != from->scalar_type()) {
    return std::nullopt;
  }
  const at::Tensor& indices = index.toTensor();
  c10::DimVector sizes(indices.sizes());
  sizes.append(to->sizes().begin() + 1, to->sizes().end());
  // Where rows are shorter, PyTorch's loops take less time for each.
  constexpr int64_t kMinRow = 4;
  constexpr int64_t kMaxShortRows = 1'024;
  const bool is_quicker = from->numel() >= kMinRow * indices.numel() || indices.numel() <= kMaxShortRows;
  const bool is_apart = !to->is_alias_of(*from) && !to->is_alias_of(indices);
  return is_quicker && is_apart && from->sizes() == sizes && are_below(*places, to->size(0))
             ? std::optional(IndexAdd{*to, *from, *places})
             : std::nullopt;
}

// (self, dim, index, source, alpha)
std::optional<IndexAdd> find_index_add(Arguments arguments) {
  const int64_t dim = arguments[1].toInt();
  const bool is_plain = is_there(arguments[0]) && (dim == 0 || dim == -arguments[0].toTensor().dim()) &&
                        is_there(arguments[2]) && is_list(arguments[2]) && arguments[4].toScalar().equal(1);
  return is_plain ? find_index_add(arguments[0], arguments[2], arguments[3]) : std::nullopt;
}

// (self, indices, values, accumulate, unsafe)
std::optional<IndexAdd> find_index_put_sum(Arguments arguments) {
  const auto indices = arguments[1].toListRef();
  const bool is_first =
      !indices.empty() && is_there(indices[0]) && std::none_of(indices.begin() + 1, indices.end(), is_there);
  return is_first && arguments[3].toBool() ? find_index_add(arguments[0], indices[0], arguments[2]) : std::nullopt;
}

void run(const IndexAdd& add, const at::Tensor& table) {
  with_dtype(add.self, [&]<typename T>(T) {
    kernels::run(
        kernels::RowAdds<T>{
            .row_length = add.self.numel() / add.self.size(0),
            .num_rows = add.self.size(0),
            .table = table.mutable_data_ptr<T>(),
            .is_from_zero = false,
            .count = static_cast<int64_t>(add.places.size()),
            .rows = add.source.const_data_ptr<T>(),
            .to = add.places.data()});
  });
}

bool run_in_place(const OpInfo& op, c10::Stack& stack, const std::optional<IndexAdd>& add) {
  if (!add) {
    return false;
  }
  run(*add, add->self);
  return_first_argument(op, stack);
  return true;
}

} // namespace

// (grad_output, indices, num_weights, padding_idx, scale_grad_by_freq)
bool run_embedding_gradient(const OpInfo& op, c10::Stack& stack, bool /*reads_last*/) {
  const Arguments arguments = torch::jit::last(stack, op.num_args());
  const auto* gradient = dense_rows(arguments[0]);
  const auto indices = dense_places(arguments[1]);
  const int64_t num_rows = arguments[2].toInt();
  if (!gradient || !indices || arguments[4].toBool() || !are_below(*indices, num_rows)) {
    return false;
  }
  const auto count = static_cast<int64_t>(indices->size());
  const int64_t n = gradient->size(-1);
  if (gradient->numel() != count * n) {
    return false;
  }
  const Targets targets(*indices, arguments[3].toInt());
  at::Tensor result = empty_table(*gradient, num_rows, n);
  with_dtype(*gradient, [&]<typename T>(T) {
    kernels::run(
        kernels::RowAdds<T>{
            .row_length = n,
            .num_rows = num_rows,
            .table = result.mutable_data_ptr<T>(),
            .is_from_zero = true,
            .count = count,
            .rows = gradient->const_data_ptr<T>(),
            .to = targets.data()});
  });
  return_result(op, stack, std::move(result));
  return true;
}

bool run_embedding_bag(const OpInfo& op, c10::Stack& stack, bool /*reads_last*/) {
  return run_bag(op, stack, /*is_forward_only=*/false);
}

bool run_embedding_bag_only(const OpInfo& op, c10::Stack& stack, bool /*reads_last*/) {
  return run_bag(op, stack, /*is_forward_only=*/true);
}

// (grad, indices, offsets, offset2bag, bag_size, maximum_indices, num_weights, scale_grad_by_freq, mode, sparse,
// per_sample_weights, padding_idx)
bool run_embedding_bag_gradient(const OpInfo& op, c10::Stack& stack, bool /*reads_last*/) {
  const Arguments arguments = torch::jit::last(stack, op.num_args());
  const auto* gradient = dense_rows(arguments[0]);
  const auto indices = dense_places(arguments[1]);
  const auto offsets = dense_places(arguments[2]);
  const auto sizes = dense_places(arguments[4]);
  const int64_t num_rows = arguments[6].toInt();
  const int64_t mode = arguments[8].toInt();
  if (!gradient || gradient->dim() != 2 || !indices || !offsets || !sizes || !is_list(arguments[1]) ||
      !is_sum_or_mean(arguments[8]) || arguments[7].toBool() || arguments[9].toBool() || is_there(arguments[10]) ||
      (mode == kMean && static_cast<int64_t>(sizes->size()) < gradient->size(0)) || !are_below(*indices, num_rows) ||
      !has_bits_of_axpy(*gradient)) {
    return false;
  }
  // Where nothing was said of them, they are found anew.
  std::optional<std::vector<int64_t>> found;
  auto bags = dense_places(arguments[3]);
  if (!bags && is_there(arguments[3]) && arguments[3].toTensor().numel() == 0) {
    found = bags_of(*offsets, static_cast<int64_t>(indices->size()));
    bags = found ? std::optional(Places(*found)) : std::nullopt;
  }
  if (!bags || bags->size() != indices->size() || !are_below(*bags, gradient->size(0))) {
    return false;
  }
  at::Tensor result = compute(
      {*gradient,
       arguments[1].toTensor(),
       *bags,
       mode == kMean ? *sizes : Places(),
       num_rows,
       /*padding=*/arguments[11].toInt()});
  return_result(op, stack, std::move(result));
  return true;
}

bool run_index_add(const OpInfo& op, c10::Stack& stack, bool /*reads_last*/) {
  const auto add = find_index_add(torch::jit::last(stack, op.num_args()));
  if (!add) {
    return false;
  }
  at::Tensor result = add->self.clone();
  run(*add, result);
  return_result(op, stack, std::move(result));
  return true;
}

bool run_index_add_in_place(const OpInfo& op, c10::Stack& stack, bool /*reads_last*/) {
  return run_in_place(op, stack, find_index_add(torch::jit::last(stack, op.num_args())));
}

bool run_index_put_sum(const OpInfo& op, c10::Stack& stack, bool /*reads_last*/) {
  return run_in_place(op, stack, find_index_put_sum(torch::jit::last(stack, op.num_args())));
}

} // namespace lazyplug
