#include "lowering/ir/parse.h"

#include "lowering/execution/torchscript_computation.h"
#include "lowering/lowering_context.h"
#include "test/cpp/lowering/graph_text.h"

namespace lazyplug {
namespace {

void expect_kept(const std::string& text) {
  const Graph graph = parse(text);
  verify(graph);
  EXPECT_EQ(to_text(graph), text);
}

TEST(Parse, ReadsWhatIsPrinted) {
  expect_kept(
      "%0 = device_data(0)  # Float[2, 3] strides=[3, 1]\n"
      "%1 = device_data(2)  # ComplexFloat[4] strides=[1]\n"
      "%2 = empty()  # Bool[0] strides=[1]\n"
      "%3 = aten::add_.Tensor(%0[Float[3] strides=[1] offset=3 conj neg], %1, 0.25)  # Float[2, 3] strides=[3, 1]\n"
      "%4 = aten::cat([%3, None, %3[Float[2] strides=[3] number]], -1)  # Float[4] strides=[1]\n"
      "%5 = aten::gelu(%4, \"no\\\"ne\\\\\")  # Float[4] strides=[1]\n"
      "%6 = aten::sum.dim_IntList(%4, [0, -1], True, None)  # Float[1] strides=[1]\n"
      "%7 = aten::bernoulli_.float(%2, 0.5, seed=-7)  # Bool[0] strides=[1]\n"
      "%8 = aten::sort(%5, 0, False)  # Float[4] strides=[1]; Long[4] strides=[1]\n"
      "%9 = aten::split_with_sizes_copy(%8.1, [1, 3], 0)  # Long[1] strides=[1]; Long[3] strides=[1]\n"
      "%10 = aten::pow.Tensor_Scalar(%6, const 2)  # Float[1] strides=[1]\n"
      "%11 = aten::zeros_like(%9.1, None, None, cpu, None, None)  # Long[3] strides=[1]\n"
      "return %3, %10, %7, %11\n");
}

TEST(Parse, MovingViewsOfOnePlaceMoveTogether) {
  const std::string text =
      "%0 = device_data(0)  # Float[4] strides=[1]\n"
      "%1 = aten::mul.Tensor(%0[Float[2] strides=[1] at=2], %0[Float[2] strides=[1] at=0])  # Float[2] strides=[1]\n"
      "%2 = aten::neg(%0[Float[1] strides=[1] at=2 neg])  # Float[1] strides=[1]\n"
      "return %1, %2\n";
  expect_kept(text);
  const Graph graph = parse(text);
  ASSERT_EQ(graph.scalars().size(), 2);
  const auto& product = *std::next(graph.nodes().begin());
  EXPECT_EQ(product.operand(0).view()->offset_scalar, graph.nodes().back().operand(0).view()->offset_scalar);
  EXPECT_NE(product.operand(0).view()->offset_scalar, product.operand(1).view()->offset_scalar);
}

TEST(Parse, MovingViewsAreReadWhereTheInputsSay) {
  const at::Tensor x = at::tensor({-1.5F, 2.0F, -3.5F, 4.0F});
  for (const char* op : {"abs", "digamma"}) { // in a group, and by a kernel of PyTorch's
    Graph graph = parse(
        "%0 = device_data(0)  # Float[4] strides=[1]\n%1 = aten::" + std::string(op) +
        "(%0[Float[2] strides=[1] at=1])  # Float[2] strides=[1]\n"
        "%2 = aten::neg(%1)  # Float[2] strides=[1]\nreturn %2\n");
    const TorchScriptComputation computation(LoweringContext(graph).lower());
    const auto run = [&](int64_t offset) { return computation.run({{x}, {offset}}).outputs[0]; };
    for (const int64_t offset : {0, 2}) {
      const at::Tensor part = x.slice(0, offset, offset + 2);
      EXPECT_TRUE(at::equal(run(offset).tensor, -(std::string(op) == "abs" ? part.abs() : part.digamma()))) << op;
    }
    for (const int64_t offset : {-1, 3}) {
      EXPECT_THROW(std::rethrow_exception(run(offset).error), c10::IndexError) << op << offset;
    }
  }
}

TEST(Parse, HiddenWritesAreThoseThatHaveResults) {
  const OpTraits traits{.hidden_writes = {"running_mean", "running_var"}, .hidden_writes_if = "training"};
  const OpInfo& norm = make_op("aten::native_batch_norm", "", traits);
  const auto find = [&](const std::string&) -> const OpInfo& { return norm; };
  const std::string inputs =
      "%0 = device_data(0)  # Float[2, 3] strides=[3, 1]\n"
      "%1 = device_data(1)  # Float[3] strides=[1]\n"
      "%2 = device_data(2)  # Float[3] strides=[1]\n";
  const std::string results = "Float[2, 3] strides=[3, 1]; Float[3] strides=[1]; Float[3] strides=[1]";
  const std::string training = inputs + "%3 = aten::native_batch_norm(%0, None, None, %1, %2, True, 0.25, 0.5)  # " +
                               results + "; Float[3] strides=[1]; Float[3] strides=[1]\nreturn %3.0, %3.4\n";
  const std::string evaluation = inputs + "%3 = aten::native_batch_norm(%0, None, None, %1, %2, False, 0.25, 0.5)  # " +
                                 results + "\nreturn %3.0\n";
  for (const std::string& text : {training, evaluation}) {
    const Graph graph = parse_graph(text, find);
    EXPECT_EQ(to_text(graph), text);
    EXPECT_EQ(graph.nodes().back().written_values().size(), text == training ? 2 : 0);
  }
}

TEST(Parse, GraphsThatWereReadRun) {
  Graph graph = parse(
      "%0 = device_data(0)  # Float[2, 3] strides=[3, 1]\n"
      "%1 = aten::add_.Tensor(%0, %0, 2)  # Float[2, 3] strides=[3, 1]\n"
      "%2 = aten::sum.dim_IntList(%1, [1], False, None)  # Float[2] strides=[1]\n"
      "return %1, %2\n");
  const TorchScriptComputation computation(LoweringContext(graph).lower());
  const at::Tensor x = at::arange(6, at::kFloat).view({2, 3});
  const auto results = computation.run({{x.clone()}, {2}}).outputs;
  EXPECT_TRUE(at::equal(results[0].tensor, 3 * x));
  EXPECT_TRUE(at::equal(results[1].tensor, 3 * x.sum(1)));
}

TEST(Parse, MistakesAreErrors) {
  for (const char* text :
       {"nonsense\n",
        "%0 = device_data(0)\n",
        "%0 = device_data(0)  # Floot[2] strides=[1]\n",
        "%0 = aten::relu(%7)  # Float[2] strides=[1]\n",
        "%0 = device_data(0)  # Float[2] strides=[1]\n%1 = aten::relu(%0, 3)  # Float[2] strides=[1]\n",
        "%0 = device_data(0)  # Float[2] strides=[1]\n%1 = aten::relu()  # Float[2] strides=[1]\n",
        "%0 = device_data(0)  # Float[2] strides=[1]\n%1 = aten::relu(same(0))  # Float[2] strides=[1]\n",
        "%0 = device_data(0)  # Float[2] strides=[1]\n%1 = aten::sort(%0, x, False)  # Float[2] strides=[1]\n",
        "%0 = device_data(0)  # Float[2] strides=[1]\n%1 = aten::sort(%0, 0, False)  # Float[2] strides=[1]\n",
        "%0 = device_data(0)  # Float[2] strides=[1]\nreturn %0.1\n",
        "%0 = device_data(1)  # Float[2] strides=[1]\n%1 = device_data(0)  # Float[2] strides=[1]\n"}) {
    EXPECT_THROW(parse(text), c10::ValueError) << text;
  }
}

} // namespace
} // namespace lazyplug
