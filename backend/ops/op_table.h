#pragma once

#include <ATen/core/operator_name.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "lowering/ir/op_info.h"

namespace lazyplug {

// "aten::add.Tensor", or "aten::relu".
c10::OperatorName parse_op_name(const std::string& name);

// What an op returns on the CPU, made of Meta tensors, from its arguments. Raises
// something if it cannot tell, or if the arguments are wrong.
using ShapeRule = std::function<c10::Stack(c10::ArrayRef<c10::IValue>)>;

// A call that a Meta kernel has answered.
struct Answered {
  const std::vector<at::Tensor>& tensors; // stand-ins for the call's
  c10::ArrayRef<c10::IValue> arguments;
  const at::Tensor& result; // one of the Meta kernel's
};

// The strides of the CPU's result.
using LayoutRule = std::function<c10::DimVector(const Answered&)>;

// Makes the unboxed kernels of an op: the device's, and one in front of autograd's.
struct FastPath {
  // Of whom the kernels are.
  const char* name = nullptr;
  const char* overload = nullptr;
  torch::CppFunction (*kernel)(const OpInfo& op) = nullptr;
  torch::CppFunction (*autograd_kernel)(const OpInfo& op) = nullptr;
};

// What is known of an op.
struct OpRow {
  // One overload, "aten::add.Tensor", or none, "aten::index". Some facts of the latter
  // hold for all overloads, unless their own rows state others; the rest holds for
  // the overload that has no name.
  const char* op;

  // All overloads: the tracer leaves the op to the kernels that it has, written
  // natively for this device, or composed of other ops.
  bool left_alone = false;
  // All overloads: what the schema does not say.
  OpTraits traits = {};
  // All overloads: how each of the results lies where Meta kernels, and the loops
  // of elementwise ops, are known to tell otherwise.
  std::vector<LayoutRule> layouts = {};

  // One overload: what it returns, if there is no shape function in C++.
  ShapeRule shape = {};
  // One overload: unboxed kernels, if it is called so often that boxing counts.
  FastPath fast = {};

  // Of traits, and for leaving it alone.
  const char* reason = "";
};

// Immutable, and so needs no lock.
class OpTable {
 public:
  explicit OpTable(std::vector<OpRow> rows);
  OpTable(const OpTable&) = delete;
  OpTable& operator=(const OpTable&) = delete;

  // The device's table is installed once, while the library is loaded and before any
  // op is described, and lives for ever.
  static void install(std::vector<OpRow> rows);
  static const OpTable& get();

  const std::vector<OpRow>& rows() const {
    return rows_;
  }

  // Empty for nearly all ops.
  const OpTraits& traits(const c10::OperatorName& op) const;
  bool is_left_alone(const c10::OperatorName& op) const;
  // Null if there are none.
  const std::vector<LayoutRule>* layouts(const c10::OperatorName& op) const;
  const ShapeRule* shape(const c10::OperatorName& op) const;
  const FastPath* fast(const c10::OperatorName& op) const;

 private:
  const OpRow* find(const c10::OperatorName& op) const;
  template <typename States>
  const OpRow* find_for_all(const c10::OperatorName& op, const States& states) const;

  const std::vector<OpRow> rows_;
  std::unordered_map<c10::OperatorName, const OpRow*> by_name_;
};

} // namespace lazyplug
