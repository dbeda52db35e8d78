#include "backend/registration/op_table.h"

#include <gtest/gtest.h>

#include <set>

namespace lazyplug {
namespace {

const std::vector<c10::OperatorName>& all_ops() {
  static const auto names = c10::Dispatcher::singleton().getAllOpNames();
  return names;
}

const OpTraits& traits_of(const c10::OperatorName& name) {
  return OpTable::get().traits(name);
}

bool is_empty(const OpTraits& traits) {
  return !traits.scalars_are_constants && traits.hidden_writes.empty() && traits.hidden_writes_if.empty() &&
         !traits.shape_may_be_static && traits.cpu_indices.empty() && traits.int_inputs.empty();
}

bool is_left_alone(const c10::OperatorName& name) {
  return OpTable::get().is_left_alone(name);
}

// All rows, installed or not, for which `predicate` holds.
template <typename Predicate>
std::set<std::string> rows_where(Predicate predicate) {
  std::set<std::string> rows;
  for (const OpRow& row : op_rows()) {
    if (predicate(row)) {
      rows.insert(row.op);
    }
  }
  return rows;
}

// The base names of the ops for which `predicate` holds.
template <typename Predicate>
std::set<std::string> ops_where(Predicate predicate) {
  std::set<std::string> names;
  for (const auto& name : all_ops()) {
    if (predicate(name)) {
      names.insert(name.name);
    }
  }
  return names;
}

using Names = std::set<std::string>;

TEST(OpRows, AreInstalled) {
  EXPECT_EQ(OpTable::get().rows().size(), op_rows().size());
}

TEST(OpRows, ThereIsOneForEachOp) {
  EXPECT_EQ(rows_where([](const OpRow&) { return true; }).size(), op_rows().size());
}

// Of a row without overload that states what holds for all, any of them will do.
TEST(OpRows, NameOpsThatExist) {
  Names known;
  for (const auto& name : all_ops()) {
    known.insert(c10::toString(name));
    known.insert(name.name);
  }
  EXPECT_EQ(rows_where([&](const OpRow& row) { return known.count(row.op) == 0; }), Names());
}

TEST(OpRows, NameTheOverloadThatARuleOrAFastPathIsFor) {
  Names known;
  for (const auto& name : all_ops()) {
    known.insert(c10::toString(name));
  }
  const auto names_none = [&](const OpRow& row) { return (row.shape || row.fast.kernel) && known.count(row.op) == 0; };
  EXPECT_EQ(rows_where(names_none), Names());
}

TEST(OpRows, StateSomething) {
  const auto states_nothing = [](const OpRow& row) {
    return !row.left_alone && row.traits == OpTraits() && row.layouts.empty() && !row.shape && !row.fast.kernel;
  };
  EXPECT_EQ(rows_where(states_nothing), Names());
}

TEST(OpRows, HaveAReasonWhereOneIsNeededAndOnlyThere) {
  const auto is_wrong = [](const OpRow& row) {
    const bool needs_one = row.left_alone || row.traits != OpTraits();
    return needs_one == std::string(row.reason).empty();
  };
  EXPECT_EQ(rows_where(is_wrong), Names());
}

TEST(OpRows, HaveTheFastPathOfTheirOwnOp) {
  const auto is_anothers = [](const OpRow& row) {
    return row.fast.kernel && c10::toString(c10::OperatorName(row.fast.name, row.fast.overload)) != row.op;
  };
  EXPECT_EQ(rows_where(is_anothers), Names());
  EXPECT_GT(rows_where([](const OpRow& row) { return row.fast.kernel != nullptr; }).size(), 50);
}

TEST(OpRows, HaveNoMoreLayoutsThanTheOpHasResults) {
  for (const auto& name : all_ops()) {
    const auto* layouts = OpTable::get().layouts(name);
    const auto handle = c10::Dispatcher::singleton().findSchema(name);
    if (layouts && handle) {
      EXPECT_LE(layouts->size(), handle->schema().returns().size()) << c10::toString(name);
    }
  }
}

// OpInfo raises if a row names an argument that the op does not have.
TEST(OpTraits, EveryArgumentThatIsNamedExistsInEveryOverload) {
  size_t with_traits = 0;
  for (const auto& name : all_ops()) {
    const OpTraits& traits = traits_of(name);
    const auto handle = c10::Dispatcher::singleton().findSchema(name);
    if (handle && !is_empty(traits)) {
      EXPECT_NO_THROW(OpInfo(*handle, traits)) << c10::toString(name);
      ++with_traits;
    }
  }
  EXPECT_GT(with_traits, 10);
}

TEST(OpTraits, NearlyAllOpsHaveNone) {
  const auto names = ops_where([](const auto& name) { return !is_empty(traits_of(name)); });
  EXPECT_LT(names.size(), 30);
  EXPECT_TRUE(is_empty(traits_of({"aten::add", "Tensor"})));
}

TEST(OpTraits, OpsWhoseScalarsDecideTheShape) {
  EXPECT_TRUE(traits_of({"aten::arange", "start_step"}).scalars_are_constants);
  EXPECT_TRUE(traits_of({"aten::range", "step"}).scalars_are_constants);
  EXPECT_FALSE(traits_of({"aten::linspace", ""}).scalars_are_constants);
}

TEST(OpTraits, HiddenWritesAreConditionalOnBools) {
  for (const auto& name : all_ops()) {
    const OpTraits& traits = traits_of(name);
    if (!traits.hidden_writes_if.empty()) {
      const auto& schema =
          c10::Dispatcher::singleton().findSchemaOrThrow(name.name.c_str(), name.overload_name.c_str()).schema();
      const auto index = schema.argumentIndexWithName(traits.hidden_writes_if);
      ASSERT_TRUE(index) << schema;
      EXPECT_EQ(schema.arguments()[*index].type()->kind(), c10::TypeKind::BoolType) << schema;
    }
  }
}

TEST(OpTraits, CpuIndicesAreTensorsOrListsOfThem) {
  for (const auto& name : all_ops()) {
    const OpTraits& traits = traits_of(name);
    if (!traits.cpu_indices.empty()) {
      const auto handle = c10::Dispatcher::singleton().findSchemaOrThrow(name.name.c_str(), name.overload_name.c_str());
      const OpInfo op(handle, traits);
      const ArgKind kind = op.args()[op.cpu_indices()].kind;
      EXPECT_TRUE(kind == ArgKind::kTensor || kind == ArgKind::kTensorList) << op.name();
    }
  }
}

TEST(LeftAlone, MetadataCopiesAndFactoriesButNoOrdinaryOp) {
  const auto names = ops_where(is_left_alone);
  for (const char* name : {"aten::empty", "aten::copy_", "aten::_to_copy", "aten::resize_", "aten::set_"}) {
    EXPECT_TRUE(names.count(name)) << name;
  }
  for (const char* name : {"aten::add", "aten::clone", "aten::fill_", "aten::zero_"}) {
    EXPECT_FALSE(names.count(name)) << name;
  }
}

// Whoever leaves an op alone relies on another kernel for the device.
TEST(LeftAlone, OpsHaveAnotherKernel) {
  for (const auto& name : all_ops()) {
    const auto handle = c10::Dispatcher::singleton().findSchema(name);
    if (handle && is_left_alone(name)) {
      EXPECT_TRUE(
          handle->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1) ||
          handle->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
          handle->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional) ||
          handle->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd))
          << c10::toString(name);
    }
  }
}

} // namespace
} // namespace lazyplug
