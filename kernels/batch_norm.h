#pragma once

#include <cstdint>

namespace lazyplug::kernels {

// A batch norm in training of float32 images, or other things of several channels, without gaps, one channel after the
// other. PyTorch's CPU kernel adds up each channel element by element, in float64; so does this, for as many
// channels at a time as a vector has lanes, and so has its bits.
struct BatchNorm {
  int64_t num_images;
  int64_t num_channels;
  int64_t plane; // elements
  const float* images;
  const float* weight; // null: 1
  const float* bias;   // null: 0
  float momentum;
  double epsilon;
  float* running_mean; // null: there is none; updated
  float* running_var;  // likewise
  float* result = nullptr;
  float* mean = nullptr; // of each channel
  float* rstd = nullptr; // likewise
};

// Whether this target has a kernel for it.
bool has_batch_norm();

// In parallel if there is enough to do: the bits do not depend on it.
void run(const BatchNorm& norm);

} // namespace lazyplug::kernels
