#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <vector>

#include "common/hash.h"
#include "lowering/ir/geometry.h"
#include "lowering/ir/op_info.h"

namespace lazyplug {

// Where one argument of a call comes from.
struct ArgBinding {
  enum class Kind : uint8_t {
    kConstant,    // `constant`
    kOperand,     // the next operand of the node
    kOperandList, // the next `count` operands
    kScalar,      // the next scalar of the node; `constant` is one of its type
    kGenerator,   // a generator seeded with the next scalar of the node
  };
  Kind kind = Kind::kConstant;
  uint32_t count = 0;
  c10::IValue constant;
};

// What one return of a call is.
struct ReturnBinding {
  enum class Kind : uint8_t {
    kFresh,     // the next fresh output
    kFreshList, // a list of the next `index` fresh outputs
    kArgument,  // the argument number `index` itself
    kUndefined,
  };
  Kind kind = Kind::kFresh;
  uint32_t index = 0;
};

// An atomic flag that copies of its owner do not share, and do not have set.
struct OwnFlag {
  OwnFlag() = default;
  OwnFlag(const OwnFlag& /*other*/) {}
  std::atomic<bool> value{false};
};

// Everything about a call that its key decides: the op, its constants, and the
// layouts of what it returns. Shared by all calls with the same key; immutable.
struct Signature : c10::intrusive_ptr_target {
  const OpInfo* op = nullptr;
  Hash128 key; // by which it is found again
  // Identifies the op, and for each argument its geometry or constant.
  Hash128 identity;
  Hash128 hash; // of the identity and the outputs
  std::vector<ArgBinding> args;
  std::vector<ReturnBinding> returns;
  std::vector<Geometry> operands;   // as the call sees them; undefined: no dtype
  std::vector<bool> on_cpu;         // operands that are CPU tensors; empty if none is
  std::vector<Geometry> outputs;    // the layouts of the fresh outputs
  std::vector<size_t> output_bytes; // of their storages
  // Whether a call can be recognised by what stands here alone.
  bool predictable = false;
  c10::ScalarType default_dtype = c10::ScalarType::Undefined; // when it was made
  uint64_t number_ranges = 0;                                 // of the numbers that the call was made with
  uint32_t kernel_version = 0;                                // of the op, then
  // Not for further calls: there is a better one, or it was wrong.
  mutable OwnFlag superseded;
  // What is promised comes from the kernel that runs, or it has run since. Before, it may teach other strides.
  mutable OwnFlag proven;
  float work = 0;       // see light_work()
  uint32_t lessons = 0; // how often its kernel has taught other strides
  // Python numbers among the operands may come as float32, whatever stands above.
  bool takes_float_numbers = false;
  // True for operands that the call writes; empty if it writes none.
  std::vector<bool> written;
  bool shares_written = false; // some operand is, or overlaps, memory that another one is to write

  bool writes_operand(size_t i) const {
    return !written.empty() && written[i];
  }
};

using SignaturePtr = c10::intrusive_ptr<const Signature>;

} // namespace lazyplug
