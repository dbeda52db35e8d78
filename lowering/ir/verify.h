#pragma once

#include "lowering/ir/graph.h"

namespace lazyplug {

// The IR's specification, executable: throws, naming the node, if the trace or
// its roots break a rule that lowering relies on.
//  1. An operand refers to an output of an earlier node.
//  2. A call has as many operands and scalars as its signature binds.
//  3. A view stays inside the storage of the value that it reads.
//  4. A value that a call has written is not read again: its successor is.
//  5. Roots exist, are distinct, and have not been written over.
void verify(const Trace& trace, c10::ArrayRef<Value> roots);

// The same for what is left of a trace, or has been made of it: rules 1 to 3. The operands of a call that are one
// tensor read one value by one view, and each use is in the list of its value.
void verify(const Graph& graph);

// Throws, naming the op, if the tensors that its kernel is about to be called
// with do not lie as the signature promises.
void verify_arguments(const Signature& signature, c10::ArrayRef<c10::IValue> arguments);

} // namespace lazyplug
