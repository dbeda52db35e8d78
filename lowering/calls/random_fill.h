#pragma once

#include <ATen/core/interned_strings.h>
#include <ATen/core/stack.h>

#include <optional>

#include "lowering/ir/op_info.h"

// Ops that fill a tensor with random numbers of this package's own (kernels/random_fill.h): bernoulli_ with a
// probability, uniform_, normal_, and random_ between two integers. Other random ops, dtypes, and tensors with gaps
// take those of PyTorch's CPU generators, in a state that the seed says.
namespace lazyplug {

// What stands for the op in lowered graphs, with an int, the seed, for the generator:
//   lazyplug::bernoulli_(Tensor(a!) self, float p, int seed) -> Tensor(a!)
//   lazyplug::uniform_(Tensor(a!) self, float from, float to, int seed) -> Tensor(a!)
//   lazyplug::normal_(Tensor(a!) self, float mean, float std, int seed) -> Tensor(a!)
//   lazyplug::random_(Tensor(a!) self, int from, int? to, int seed) -> Tensor(a!)
// Nothing, if it is no such op.
std::optional<c10::Symbol> random_fill_symbol(const OpInfo& op);

// What a call that runs is given for its generator: a CPU generator, or, since to make one takes longer than to fill a
// small tensor, the seed, for an op that fill_randomly() may know.
c10::IValue seeded(const OpInfo& op, int64_t seed);
// Fills the CPU tensor among the arguments, and leaves it. Otherwise, as for numbers that PyTorch's kernel refuses,
// leaves what that takes, and returns false.
bool fill_randomly(const OpInfo& op, c10::Stack& stack);
// The same for what stands for an op, or else PyTorch's kernel.
void fill_randomly(c10::Symbol symbol, c10::Stack& stack);

} // namespace lazyplug
