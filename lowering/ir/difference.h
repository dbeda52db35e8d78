#pragma once

#include <string>

#include "lowering/ir/trace.h"

namespace lazyplug {

// Where two programs cease to be the same, and in what.
struct Difference {
  enum class Kind : uint8_t {
    kOp,       // another op, or one program has ended
    kShape,    // sizes, strides or dtype of a leaf, an operand or a result
    kConstant, // an argument that is part of the graph
    kOperand,  // the same call of other values
    kResults,  // the same ops, other results are wanted
  };
  Kind kind = Kind::kResults;
  NodeId node = 0;  // the first that differs; for kResults: how many there are
  std::string what; // "operand 1 is Float[4] strides=[1], was Float[3] strides=[1]"
};

// "op", "shape", ...
const char* to_string(Difference::Kind kind);

// The first difference between a program and an older one. They must not be the
// same.
Difference
first_difference(const Trace& trace, c10::ArrayRef<Value> roots, const Trace& older, c10::ArrayRef<Value> older_roots);

// How much two programs have in common: larger is more.
size_t similarity(const Trace& trace, const Trace& other);

} // namespace lazyplug
