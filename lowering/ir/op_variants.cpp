#include "lowering/ir/op_variants.h"

#include <algorithm>

namespace lazyplug {

bool takes_arguments_of(const c10::FunctionSchema& schema, const c10::FunctionSchema& other, size_t num_more) {
  const auto& args = schema.arguments();
  const auto& others = other.arguments();
  const auto same = [](const c10::Argument& a, const c10::Argument& b) {
    return a.name() == b.name() && *a.type() == *b.type() && a.kwarg_only() == b.kwarg_only();
  };
  return others.size() == args.size() + num_more && std::equal(args.begin(), args.end(), others.begin(), same);
}

} // namespace lazyplug
