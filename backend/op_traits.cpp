#include "backend/op_traits.h"

#include <string>
#include <unordered_map>
#include <unordered_set>

namespace lazyplug {
namespace {

struct TraitsRow {
  const char* op; // without overload: all of them
  OpTraits traits;
  const char* reason;
};

const std::vector<TraitsRow>& traits_table() {
  static const auto* table = new std::vector<TraitsRow>{
      {"aten::arange", {.scalars_are_constants = true}, "the length follows from the scalars"},
      {"aten::range", {.scalars_are_constants = true}, "the length follows from the scalars"},
      {"aten::native_batch_norm",
       {.infer_on_cpu = true, .hidden_writes = {"running_mean", "running_var"}, .hidden_writes_if = "training"},
       "updates the running statistics; in evaluation the CPU returns empty statistics"},
      {"aten::batch_norm_update_stats",
       {.hidden_writes = {"running_mean", "running_var"}},
       "updates the running statistics"},
      {"aten::index",
       {.shape_may_be_static = true, .cpu_indices = "indices"},
       "dynamic only with a mask; eager devices accept CPU indices"},
      {"aten::index_put", {.cpu_indices = "indices"}, "eager devices accept CPU indices"},
      {"aten::index_put_", {.cpu_indices = "indices"}, "eager devices accept CPU indices"},
      {"aten::_index_put_impl_", {.cpu_indices = "indices"}, "eager devices accept CPU indices"},
      {"aten::_unsafe_index",
       {.shape_may_be_static = true, .cpu_indices = "indices"},
       "dynamic only with a mask; eager devices accept CPU indices"},
  };
  return *table;
}

struct LeftAloneRow {
  const char* op;
  const char* reason;
};

constexpr LeftAloneRow kLeftAlone[] = {
    // They make memory without contents; a node would add nothing.
    {"aten::empty", "native"},
    {"aten::empty_strided", "native"},
    {"aten::empty_like", "composes empty"},
    {"aten::empty_permuted", "composes empty"},
    {"aten::new_empty", "composes empty"},
    {"aten::new_empty_strided", "composes empty_strided"},
    // They cross devices.
    {"aten::copy_", "native"},
    {"aten::_to_copy", "composes empty_strided and copy_"},
    {"aten::_copy_from", "copy_ is native"},
    {"aten::_copy_from_and_resize", "native"},
    {"aten::_local_scalar_dense", "native"},
    // They change metadata, not data.
    {"aten::resize_", "native"},
    {"aten::resize_as_", "composes resize_"},
    {"aten::set_", "native"},
    {"aten::as_strided_", "changes metadata only"},
    {"aten::_unsafe_view", "returns a view, though its schema does not say so"},
    {"aten::_resize_output_", "composes resize_"},
    {"aten::_conj_physical", "composes conj_physical, which must see the conjugate bit"},
    // CPU kernels draw from the global generator, not from an argument.
    {"aten::native_dropout", "composed, so that it draws from the device's generator"},
};

} // namespace

const OpTraits& traits_of(const c10::OperatorName& name) {
  static const OpTraits none;
  for (const TraitsRow& row : traits_table()) {
    if (name.name == row.op) {
      return row.traits;
    }
  }
  return none;
}

bool is_left_alone(const c10::OperatorName& name) {
  static const auto* ops = [] {
    auto* set = new std::unordered_set<std::string>();
    for (const LeftAloneRow& row : kLeftAlone) {
      set->insert(row.op);
    }
    return set;
  }();
  return ops->count(name.name) != 0;
}

} // namespace lazyplug
