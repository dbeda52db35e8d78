#include "backend/api/cached_run.h"

#include <fstream>
#include <sstream>

#include "test/cpp/backend/backend_test.h"
#include "test/cpp/backend/test_ops.h"

namespace lazyplug {
namespace {

class CachedRunTest : public BackendTest {
 protected:
  const at::Tensor x = to_lazy(iota({2, 3}));
};

TEST_F(CachedRunTest, InputsAreLeavesThenScalars) {
  const GraphInputs inputs = graph_inputs({x.add(x, 0.5)});
  EXPECT_EQ(
      inputs.tensor_ids,
      std::vector<int64_t>({static_cast<int64_t>(storage_of(x).id()), GraphInputs::kConstant}));
  EXPECT_TRUE(at::equal(inputs.values[0].toTensor(), iota({2, 3})));
  EXPECT_EQ(inputs.values[1].toDouble(), 0.5);
}

TEST_F(CachedRunTest, InputsLieAsTheTensorThatWasGiven) {
  const at::Tensor y = x.t() + x.t(); // the leaf lies as the view that is read first
  EXPECT_EQ(graph_inputs({y}).values[0].toTensor().sizes(), x.t().sizes());
  EXPECT_EQ(graph_inputs({x, y}).values[0].toTensor().sizes(), x.sizes());
}

TEST_F(CachedRunTest, GraphsRunOnOtherInputsWithoutWritingThem) {
  const at::Tensor y = x.clone();
  y.mul_(x);
  const CachedComputationPtr graph = graph_of({x, y});
  const at::Tensor given = at::full({2, 3}, 3.0);
  const auto results = run_graph(*graph, {given});
  EXPECT_TRUE(results[0].is_same(given));
  EXPECT_TRUE(at::equal(results[1], at::full({2, 3}, 9.0)));
  EXPECT_TRUE(at::equal(given, at::full({2, 3}, 3.0)));
  EXPECT_EQ(state_of(y), State::kPending);
  expect_equal(y, iota({2, 3}) * iota({2, 3}));
}

TEST_F(CachedRunTest, WrongInputsAreNamed) {
  const CachedComputationPtr graph = graph_of({x.add(x, 0.5)});
  EXPECT_TRUE(contains(error_of([&] { run_graph(*graph, {}); }), "takes 2 inputs, got 0"));
  EXPECT_TRUE(contains(error_of([&] { run_graph(*graph, {at::ones({2}), 1}); }), "must be Float[2, 3]"));
  EXPECT_THROW(run_graph(*graph, {1, 1}), c10::TypeError);
  EXPECT_THROW(run_graph(*graph, {iota({2, 3}), at::ones({2})}), c10::TypeError);
}

TEST_F(CachedRunTest, ErrorsOfOpsAreRaised) {
  const CachedComputationPtr graph = graph_of({test_ops::fail(x)});
  EXPECT_THROW(run_graph(*graph, {iota({2, 3})}), c10::IndexError);
}

TEST_F(CachedRunTest, KernelsFindGradientsOnAsInJobs) {
  const CachedComputationPtr graph = graph_of({test_ops::grad_mode(x)});
  const c10::AutoGradMode no_gradients(false);
  EXPECT_TRUE(at::equal(run_graph(*graph, {iota({2, 3})})[0], at::ones({2, 3})));
}

TEST_F(CachedRunTest, GraphsAreFoundByHashUntilTheyAreForgotten) {
  const Hash128 hash = graph_of({x + x})->hash;
  EXPECT_EQ(hash_from_bytes(to_bytes(hash)), hash);
  EXPECT_EQ(find_graph(hash)->hash, hash);
  EXPECT_TRUE(contains(latest_graph_text(), "aten::add"));
  clear_graphs();
  EXPECT_TRUE(contains(error_of([&] { find_graph(hash); }), "it has been evicted"));
  EXPECT_THROW(latest_graph_text(), c10::Error);
  EXPECT_THROW(hash_from_bytes("short"), c10::ValueError);
}

TEST_F(CachedRunTest, GraphsAreDumped) {
  clear_graphs();
  graph_of({x + x});
  const std::string path = testing::TempDir() + "graphs.dot";
  dump_graphs(path);
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_TRUE(contains(text.str(), "digraph G {")) << text.str();
  EXPECT_THROW(dump_graphs(testing::TempDir() + "no/such/folder"), c10::Error);
}

TEST_F(CachedRunTest, OtherTensorsAndTwoDevicesAreRefused) {
  EXPECT_TRUE(contains(error_of([] { graph_of({at::ones({2})}); }), "expected a lazy tensor, got one on cpu"));
  EXPECT_TRUE(contains(error_of([] { graph_inputs({at::Tensor()}); }), "an undefined one"));
  EXPECT_TRUE(contains(error_of([&] { graph_of({x, to_lazy(iota({2}), 1)}); }), "expected tensors of one device"));
}

} // namespace
} // namespace lazyplug
