#include "lowering/calls/light_calls.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include "lowering/calls/runtime_ops.h"

namespace lazyplug {
namespace {

constexpr float kHeavy = std::numeric_limits<float>::infinity();

// Loops of more than a few operations for each element: how many times as long as the multiplications of a product of
// such tensors.
struct Laborious {
  const char* part;
  double times;
};
constexpr std::array<Laborious, 6> kLaborious = {
    {{"cdist", 4}, {"pdist", 4}, {"bilinear", 4}, {"histogram", 4}, {"histc", 4}, {"ctc", 4}}};

bool has_part(std::string_view name, const char* part) {
  return name.find(part) != std::string_view::npos;
}

// PyTorch's loops do not divide fewer.
constexpr double kGrain = at::internal::GRAIN_SIZE;
// In all lists of a call; a loop goes through one tensor, or one list.
constexpr double kGrainOfLists = 8 * kGrain;

double num_elements(c10::IntArrayRef sizes) {
  return static_cast<double>(c10::multiply_integers(sizes));
}

// Of a product over the last dimension of the first.
float product_work(c10::IntArrayRef first, c10::IntArrayRef second) {
  const double terms = first.empty() ? 1 : static_cast<double>(std::max<int64_t>(1, first.back()));
  const double batches = second.size() > 2 ? static_cast<double>(std::max<int64_t>(1, second.front())) : 1;
  const double multiplications = num_elements(first) * num_elements(second) / (terms * batches);
  const double largest = std::max({num_elements(first), num_elements(second), multiplications / terms});
  return largest <= kGrain ? static_cast<float>(multiplications) : kHeavy;
}

// Of images, or of the gradient of a result, and filters, as if the stride were 1. Measured: two threads pay for twice
// as many multiplications as a product has.
float convolution_work(c10::IntArrayRef images, c10::IntArrayRef filters, bool is_backward) {
  if (images.size() < 2 || filters.empty() || images[1] <= 0 || filters[0] <= 0) {
    return kHeavy;
  }
  const auto channels = static_cast<double>(is_backward ? filters[0] : images[1]);
  return static_cast<float>(num_elements(images) * num_elements(filters) / channels / 2);
}

// Of square ones. Measured: two threads do not pay for 64 x 64.
float matrices_work(double num_elements) {
  return static_cast<float>(4 * std::pow(num_elements, 1.5));
}

// Of several products of queries, keys and values.
float attention_work(const ThreeLargest& tensors) {
  return tensors.largest() <= kGrain ? static_cast<float>(4 * tensors.multiplications()) : kHeavy;
}

// Measured: two threads pay for 4,096 elements.
float transform_work(double num_elements) {
  return num_elements <= kGrain ? static_cast<float>(384 * num_elements) : kHeavy;
}

// How many of the first arguments are tensors that are read: not where results go, of which a graph knows the sizes.
size_t num_first_tensors(const OpInfo& op) {
  const auto& args = op.args();
  return std::find_if(
             args.begin(),
             args.end(),
             [](const ArgInfo& arg) { return arg.kind != ArgKind::kTensor || arg.out; }) -
         args.begin();
}

// Of a call that does not divide loops only: sizes_of(i) are those of its ith argument, which is a tensor among the
// first ones. There are so many of these in the call.
template <typename SizesOf>
float dependent_work(const OpInfo& op, size_t num_in_call, const SizesOf& sizes_of) {
  const size_t num_tensors = std::min(num_in_call, num_first_tensors(op));
  const auto first_tensors = [&] {
    ThreeLargest largest;
    for (size_t i = 0; i < num_tensors; ++i) {
      largest.insert(num_elements(sizes_of(i)));
    }
    return largest;
  };
  switch (op.thread_use()) {
    case ThreadUse::kProduct:
      return product_work(sizes_of(op.first_factor()), sizes_of(op.first_factor() + 1));
    case ThreadUse::kConvolution: {
      const bool is_backward = op.base_name() == "aten::convolution_backward";
      return convolution_work(sizes_of(0), sizes_of(is_backward ? 2 : 1), is_backward);
    }
    case ThreadUse::kMatrices:
      return matrices_work(first_tensors().largest());
    case ThreadUse::kAttention:
      return attention_work(first_tensors());
    case ThreadUse::kTransform:
      return num_tensors != 0 ? transform_work(num_elements(sizes_of(0))) : kHeavy;
    case ThreadUse::kNorm:
      return num_tensors != 0 && num_elements(sizes_of(0)) <= kGrain ? 0 : kHeavy;
    default:
      return kHeavy;
  }
}

} // namespace

void ThreeLargest::insert(double num_elements) {
  for (double& kept : sizes_) {
    if (num_elements > kept) {
      std::swap(num_elements, kept);
    }
  }
}

double ThreeLargest::multiplications() const {
  return std::sqrt(sizes_[0] * sizes_[1] * sizes_[2]);
}

float light_work(const Signature& signature) {
  const OpInfo& op = *signature.op;
  if (!op.is_aten() && !op.base_name().starts_with("lazyplug::")) {
    return kHeavy;
  }
  if (op.thread_use() != ThreadUse::kLoops) {
    return dependent_work(op, signature.operands.size(), [&](size_t i) -> c10::IntArrayRef {
      return signature.operands[i].sizes;
    });
  }
  ThreeLargest largest;
  double total = 0;
  for (const auto* layouts : {&signature.operands, &signature.outputs}) {
    for (const Geometry& layout : *layouts) {
      largest.insert(static_cast<double>(layout.numel()));
      total += static_cast<double>(layout.numel());
    }
  }
  const bool has_lists = op.is_foreach() || op.name() == kTileUpdate;
  if (largest.largest() > kGrain || (has_lists && total > kGrainOfLists)) {
    return kHeavy;
  }
  const auto* row = std::find_if(kLaborious.begin(), kLaborious.end(), [&](const Laborious& each) {
    return has_part(op.name(), each.part);
  });
  return row == kLaborious.end() ? 0 : static_cast<float>(row->times * largest.multiplications());
}

std::optional<float> work_at_once(const OpInfo& op, c10::ArrayRef<c10::IValue> arguments) {
  if (!op.is_aten() || op.thread_use() == ThreadUse::kLoops) {
    return std::nullopt;
  }
  const auto is_tensor = [](const c10::IValue& argument) { return argument.isTensor(); };
  const auto end = std::find_if_not(arguments.begin(), arguments.end(), is_tensor);
  return dependent_work(op, end - arguments.begin(), [&](size_t i) -> c10::IntArrayRef {
    const at::Tensor& tensor = arguments[i].toTensor();
    return tensor.defined() ? tensor.sizes() : c10::IntArrayRef();
  });
}

float light_limit(int num_threads) {
  constexpr float kTwoThreads = 1 << 20; // measured
  return kTwoThreads * 2 / static_cast<float>(std::max(2, num_threads));
}

ThreadsOfCall::ThreadsOfCall(const OpInfo& op, c10::ArrayRef<c10::IValue> arguments) {
  const auto work = work_at_once(op, arguments);
  if (work && *work <= light_limit(at::get_num_threads())) {
    threads_.emplace().use(1);
  }
}

} // namespace lazyplug
