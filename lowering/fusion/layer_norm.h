#pragma once

#include <array>
#include <initializer_list>
#include <optional>

#include "kernels/opcode.h"

namespace lazyplug {

// The instructions of a layer norm of rows, and what they make: the result, the mean, and 1 / the standard deviation.
// `add(opcode, sources)` appends one and returns what it makes. Without a weight there is no bias.
template <typename Source, typename Add>
std::array<Source, 3>
add_layer_norm(Source x, std::optional<Source> weight, std::optional<Source> bias, const Add& add) {
  using kernels::Opcode;
  using Sources = std::initializer_list<Source>;
  const Source mean = add(Opcode::kRowCenter, Sources{x});
  const Source rstd = add(Opcode::kRowRstd, Sources{x, mean});
  const Source normal = add(Opcode::kNormalize, Sources{x, mean, rstd});
  const Source result = bias     ? add(Opcode::kMulAdd, Sources{normal, *weight, *bias})
                        : weight ? add(Opcode::kMul, Sources{normal, *weight})
                                 : normal;
  return {result, mean, rstd};
}

} // namespace lazyplug
