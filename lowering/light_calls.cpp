#include "lowering/light_calls.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include "lowering/tile_kernel.h"

namespace lazyplug {
namespace {

constexpr float kHeavy = std::numeric_limits<float>::infinity();

// Parts of names. What libraries compute with threads of their own choice, or what sums up in as many parts as there
// are threads: found by comparing the bits that one and two threads give for small tensors. And layer_norm, whose loop
// has no grain: two threads gain at any size.
constexpr std::array kDependent = {
    "conv",
    "batch_norm",
    "layer_norm",
    "linalg",
    "svd",
    "cholesky",
    "::lu_",
    "_lu_with_info",
    "::qr",
    "geqrf",
    "orgqr",
    "ormqr",
    "solve",
    "inverse",
    "lstm",
    "gru",
    "rnn",
    "mkldnn"};

// What takes more than a few operations for each element: how many times as long as the multiplications of a product of
// such tensors. Measured: two threads pay for a transform of 4,096 elements.
struct Laborious {
  const char* part;
  double times;
};
constexpr std::array<Laborious, 7> kLaborious = {
    {{"attention", 1}, {"fft", 96}, {"cdist", 1}, {"pdist", 1}, {"bilinear", 1}, {"histogram", 1}, {"ctc", 1}}};

bool has_part(std::string_view name, const char* part) {
  return name.find(part) != std::string_view::npos;
}

bool is_dependent(std::string_view name) {
  return std::any_of(kDependent.begin(), kDependent.end(), [&](const char* part) { return has_part(name, part); });
}

// Infinite if one of the tensors is no small one.
float multiplications(c10::IntArrayRef first, c10::IntArrayRef second) {
  const auto num_elements = [](c10::IntArrayRef sizes) { return static_cast<double>(c10::multiply_integers(sizes)); };
  const double terms = first.empty() ? 1 : static_cast<double>(std::max<int64_t>(1, first.back()));
  const double batches = second.size() > 2 ? static_cast<double>(std::max<int64_t>(1, second.front())) : 1;
  const double total = num_elements(first) * num_elements(second) / (terms * batches);
  const double largest = std::max({num_elements(first), num_elements(second), total / terms});
  return largest < static_cast<double>(at::internal::GRAIN_SIZE) ? static_cast<float>(total) : kHeavy;
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
  const bool is_update = op.name() == kTileUpdate;
  if ((!op.is_aten() && !is_update) || is_dependent(op.name())) {
    return kHeavy;
  }
  if (op.first_factor() >= 0) {
    return multiplications(
        signature.operands[op.first_factor()].sizes,
        signature.operands[op.first_factor() + 1].sizes);
  }
  ThreeLargest largest;
  double total = 0;
  for (const auto* layouts : {&signature.operands, &signature.outputs}) {
    for (const Geometry& layout : *layouts) {
      largest.insert(static_cast<double>(layout.numel()));
      total += static_cast<double>(layout.numel());
    }
  }
  const double at_once = op.is_foreach() || is_update ? total : largest.largest(); // what one loop goes through
  if (at_once >= static_cast<double>(at::internal::GRAIN_SIZE)) {
    return kHeavy;
  }
  const auto* row = std::find_if(kLaborious.begin(), kLaborious.end(), [&](const Laborious& each) {
    return has_part(op.name(), each.part);
  });
  return row == kLaborious.end() ? 0 : static_cast<float>(row->times * largest.multiplications());
}

std::optional<float> product_work(const OpInfo& op, c10::ArrayRef<c10::IValue> arguments) {
  if (op.first_factor() < 0) {
    return std::nullopt;
  }
  const at::Tensor& first = arguments[op.first_factor()].toTensor();
  const at::Tensor& second = arguments[op.first_factor() + 1].toTensor();
  return multiplications(first.sizes(), second.sizes());
}

float light_limit(int num_threads) {
  constexpr float kTwoThreads = 1 << 18; // measured: from twice as much on two threads are faster
  return kTwoThreads * 2 / static_cast<float>(std::max(2, num_threads));
}

ThreadsOfCall::ThreadsOfCall(const OpInfo& op, c10::ArrayRef<c10::IValue> arguments) {
  const auto work = product_work(op, arguments);
  if (work && *work <= light_limit(at::get_num_threads())) {
    threads_.emplace().use(1);
  }
}

} // namespace lazyplug
