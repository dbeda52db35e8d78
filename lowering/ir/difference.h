#pragma once

#include <string>

#include "lowering/ir/trace.h"

namespace lazyplug {

// Where two programs cease to be the same, and in what.
struct Difference {
  enum class Kind : uint8_t {
    kOp,       // another op
    kShape,    // sizes or strides of a leaf, an operand or a result
    kDtype,    // of these
    kConstant, // an argument that is part of the graph
    kOperand,  // the same call of other values
    kEnd,      // one goes on where the other ends
    kResults,  // the same ops, other results are wanted
  };
  Kind kind = Kind::kResults;
  NodeId node = 0;  // the first that differs; for kEnd: that only one has; for kResults: a node with such a result
  std::string what; // "operand 1 is Float[4] strides=[1], was Float[3] strides=[1]"
};

// "op", "shape", ...
const char* to_string(Difference::Kind kind);

// The first difference between a program and an older one. They must not be the
// same.
Difference
first_difference(const Trace& trace, c10::ArrayRef<Value> roots, const Trace& older, c10::ArrayRef<Value> older_roots);

// How much two programs have in common: larger is more; 0: most ops are others.
size_t similarity(const Trace& trace, const Trace& other);

} // namespace lazyplug
