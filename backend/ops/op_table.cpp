#include "backend/ops/op_table.h"

#include <string>
#include <utility>

namespace lazyplug {
namespace {

const OpTable* installed = nullptr; // written before there are threads that ask

} // namespace

c10::OperatorName parse_op_name(const std::string& name) {
  const size_t dot = name.find('.');
  return {name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)};
}

OpTable::OpTable(std::vector<OpRow> rows) : rows_(std::move(rows)) {
  for (const OpRow& row : rows_) {
    const bool is_new = by_name_.emplace(parse_op_name(row.op), &row).second;
    TORCH_INTERNAL_ASSERT(is_new, "two rows for ", row.op);
  }
}

void OpTable::install(std::vector<OpRow> rows) {
  TORCH_INTERNAL_ASSERT(!installed, "there is one table of ops");
  installed = new OpTable(std::move(rows));
}

const OpTable& OpTable::get() {
  TORCH_INTERNAL_ASSERT(installed, "an op was asked for before the table of ops was installed");
  return *installed;
}

const OpRow* OpTable::find(const c10::OperatorName& op) const {
  const auto found = by_name_.find(op);
  return found == by_name_.end() ? nullptr : found->second;
}

// The row of the overload, or else that of all, if it states the fact.
template <typename States>
const OpRow* OpTable::find_for_all(const c10::OperatorName& op, const States& states) const {
  for (const OpRow* row : {find(op), find({op.name, ""})}) {
    if (row && states(*row)) {
      return row;
    }
  }
  return nullptr;
}

const OpTraits& OpTable::traits(const c10::OperatorName& op) const {
  static const auto* none = new OpTraits();
  const OpRow* row = find_for_all(op, [](const OpRow& candidate) { return candidate.traits != *none; });
  return row ? row->traits : *none;
}

bool OpTable::is_left_alone(const c10::OperatorName& op) const {
  return find_for_all(op, [](const OpRow& row) { return row.left_alone; }) != nullptr;
}

const std::vector<LayoutRule>* OpTable::layouts(const c10::OperatorName& op) const {
  const OpRow* row = find_for_all(op, [](const OpRow& candidate) { return !candidate.layouts.empty(); });
  return row ? &row->layouts : nullptr;
}

const ShapeRule* OpTable::shape(const c10::OperatorName& op) const {
  const OpRow* row = find(op);
  return row && row->shape ? &row->shape : nullptr;
}

const FastPath* OpTable::fast(const c10::OperatorName& op) const {
  const OpRow* row = find(op);
  return row && row->fast.kernel ? &row->fast : nullptr;
}

} // namespace lazyplug
