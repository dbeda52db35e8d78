#include "lowering/light_calls.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

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

// What takes more than a few operations for each element.
constexpr std::array kProducts =
    {"mm", "mv", "linear", "matmul", "attention", "fft", "cdist", "pdist", "bilinear", "histogram", "ctc"};

template <size_t kSize>
bool has_part(std::string_view name, const std::array<const char*, kSize>& parts) {
  return std::any_of(parts.begin(), parts.end(), [&](const char* part) {
    return name.find(part) != std::string_view::npos;
  });
}

// The three largest tensors of a product of matrices of M x K and K x N have MK, KN and MN elements: the square root of
// what these numbers multiply to is the number of its multiplications. A guess for everything else.
float product_work(std::array<double, 3> largest) {
  return static_cast<float>(std::sqrt(largest[0] * largest[1] * largest[2]));
}

// Keeps the three largest, in descending order.
void insert(std::array<double, 3>& largest, double size) {
  for (double& kept : largest) {
    if (size > kept) {
      std::swap(size, kept);
    }
  }
}

} // namespace

float light_work(const Signature& signature) {
  const std::string& name = signature.op->name();
  if (!signature.op->is_aten() || has_part(name, kDependent)) {
    return kHeavy;
  }
  std::array<double, 3> largest{1, 1, 1};
  double total = 0;
  for (const auto* layouts : {&signature.operands, &signature.outputs}) {
    for (const Geometry& layout : *layouts) {
      insert(largest, static_cast<double>(layout.numel()));
      total += static_cast<double>(layout.numel());
    }
  }
  const double at_once = signature.op->is_foreach() ? total : largest[0]; // what one loop goes through
  if (at_once >= static_cast<double>(at::internal::GRAIN_SIZE)) {
    return kHeavy;
  }
  return has_part(name, kProducts) ? product_work(largest) : 0;
}

float light_limit(int num_threads) {
  constexpr float kTwoThreads = 1 << 18; // measured: from twice as much on two threads are faster
  return kTwoThreads * 2 / static_cast<float>(std::max(2, num_threads));
}

} // namespace lazyplug
