#include "backend/native/backward_pass.h"

#include <torch/csrc/autograd/engine.h>

#include <limits>
#include <memory>
#include <random>
#include <stdexcept>

#include "test/cpp/backend/native/native_test.h"

namespace lazyplug {
namespace {

using torch::autograd::edge_list;
using torch::autograd::Engine;
using torch::autograd::Node;
using torch::autograd::variable_list;

struct Log {
  std::vector<int> nodes;    // in the order in which they have run
  std::vector<float> inputs; // what they were given, summed
  std::vector<bool> needed;  // which of the gradients that they gave
  std::vector<int> released;
};

// Gives each of its edges a multiple of the sum of its inputs.
struct Logging : Node {
  Logging(int id, uint64_t sequence_nr, edge_list edges, Log& log)
      : Node(sequence_nr, std::move(edges)), id(id), log(log) {
    for (int i = 0; i < kInputs; ++i) {
      add_input_metadata(at::zeros({2}));
    }
  }
  variable_list apply(variable_list&& gradients) override {
    at::Tensor sum = at::zeros({2});
    for (const at::Tensor& gradient : gradients) {
      if (gradient.defined()) {
        sum = sum + gradient;
      }
    }
    log.nodes.push_back(id);
    log.inputs.push_back(sum[0].item<float>());
    EXPECT_EQ(current_autograd_node(), this);
    if (id == fails_at) {
      throw std::runtime_error("from a node");
    }
    variable_list results;
    for (uint32_t i = 0; i < num_outputs(); ++i) {
      log.needed.push_back(task_should_compute_output(i));
      results.push_back(i % 4 == 3 ? at::Tensor() : sum * (0.1 + i));
    }
    return results;
  }
  void release_variables() override {
    log.released.push_back(id);
  }

  static constexpr int kInputs = 3;
  const int id;
  Log& log;
  int fails_at = -1;
};

// A random graph, whose nodes have few different sequence numbers; some lead nowhere. Returns roots.
edge_list random_graph(uint64_t seed, Log& log, int fails_at = -1) {
  std::mt19937_64 random(seed);
  std::vector<c10::intrusive_ptr<Logging>> nodes;
  const int num_nodes = 2 + static_cast<int>(random() % 20);
  for (int id = 0; id < num_nodes; ++id) {
    edge_list edges;
    for (uint64_t i = nodes.empty() ? 0 : random() % 5; i > 0; --i) {
      if (random() % 6 == 0) {
        edges.emplace_back();
      } else {
        edges.emplace_back(nodes[random() % nodes.size()], random() % Logging::kInputs);
      }
    }
    const bool is_first = edges.empty() && random() % 2;
    const uint64_t sequence_nr = is_first ? std::numeric_limits<uint64_t>::max() : random() % 5;
    nodes.push_back(c10::make_intrusive<Logging>(id, sequence_nr, std::move(edges), log));
    nodes.back()->fails_at = fails_at;
  }
  edge_list roots{{nodes.back(), 0}};
  for (uint64_t i = random() % 3; i > 0; --i) {
    roots.emplace_back(nodes[random() % nodes.size()], random() % Logging::kInputs);
  }
  nodes.clear();
  log.released.clear(); // by nodes that lead nowhere, as they died
  return roots;
}

variable_list gradients_of(const edge_list& roots) {
  variable_list gradients;
  for (size_t i = 0; i < roots.size(); ++i) {
    gradients.push_back(at::full({2}, 1.0 + static_cast<double>(i)));
  }
  return gradients;
}

void run_by_engine(edge_list roots, bool keep_graph) {
  Engine::get_default_engine().execute(roots, gradients_of(roots), keep_graph, false, true);
}

void run_as_pass(edge_list roots, bool keep_graph) {
  auto gradients = gradients_of(roots);
  auto pass =
      BackwardPass::plan({.roots = std::move(roots), .gradients = std::move(gradients), .keep_graph = keep_graph});
  ASSERT_TRUE(pass);
  const uint32_t input = pass->add_input_metadata(at::zeros({}));
  Engine::get_default_engine().execute({{std::move(pass), input}}, {at::zeros({})}, keep_graph, false, true);
}

using BackwardPassTest = BackendTest;

TEST_F(BackwardPassTest, NodesRunInTheEnginesOrderAndAddUpAlike) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const bool keep_graph = seed % 2;
    Log expected;
    Log actual;
    const edge_list graph = random_graph(seed, expected); // nodes are released once more when they die
    const edge_list same = random_graph(seed, actual);
    run_by_engine(graph, keep_graph);
    run_as_pass(same, keep_graph);
    EXPECT_EQ(actual.nodes, expected.nodes) << seed;
    EXPECT_EQ(actual.inputs, expected.inputs) << seed;
    EXPECT_EQ(actual.needed, expected.needed) << seed;
    EXPECT_EQ(actual.released, expected.released) << seed;
    EXPECT_EQ(actual.released.empty(), keep_graph) << seed;
  }
}

// Some nodes, which may lead to each other, or be roots.
edge_list random_inputs(uint64_t seed, const edge_list& roots) {
  std::vector<torch::autograd::Edge> found(roots.begin(), roots.end());
  for (size_t i = 0; i < found.size() && i < 100; ++i) {
    for (const auto& next : found[i].function->next_edges()) {
      if (next.is_valid()) {
        found.push_back(next);
      }
    }
  }
  std::mt19937_64 random(seed);
  edge_list inputs;
  for (const auto& edge : found) {
    const bool is_leaf = edge.function->num_outputs() == 0;
    if (random() % 8 < (is_leaf ? 3 : 1)) {
      inputs.push_back(edge);
    }
  }
  return inputs;
}

TEST_F(BackwardPassTest, GradientsOfInputsAreTheEngines) {
  int num_passes = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Log expected;
    Log actual;
    const edge_list graph = random_graph(seed, expected);
    const edge_list same = random_graph(seed, actual);
    const edge_list inputs = random_inputs(seed, graph);
    auto pass = BackwardPass::plan(
        {.roots = same, .gradients = gradients_of(same), .keep_graph = true, .inputs = random_inputs(seed, same)});
    if (inputs.empty() || !pass) {
      continue;
    }
    ++num_passes;
    const auto results = Engine::get_default_engine()
                             .execute(graph, gradients_of(graph), true, false, /*accumulate_grad=*/false, inputs);
    const uint32_t input = pass->add_input_metadata(at::zeros({}));
    Engine::get_default_engine().execute({{pass, input}}, {at::zeros({})}, true, false, true);
    EXPECT_EQ(actual.nodes, expected.nodes) << seed;
    EXPECT_EQ(actual.inputs, expected.inputs) << seed;
    EXPECT_EQ(actual.needed, expected.needed) << seed;
    ASSERT_EQ(pass->results().size(), results.size());
    for (size_t i = 0; i < results.size(); ++i) {
      ASSERT_EQ(pass->results()[i].defined(), results[i].defined()) << seed;
      EXPECT_TRUE(!results[i].defined() || results[i].equal(pass->results()[i])) << seed;
    }
  }
  EXPECT_GT(num_passes, 500);
}

TEST_F(BackwardPassTest, WhatFailsEndsThePass) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Log whole;
    run_by_engine(random_graph(seed, whole), false);
    const int failing = whole.nodes[seed % whole.nodes.size()];
    Log expected;
    Log actual;
    const edge_list graph = random_graph(seed, expected, failing);
    const edge_list same = random_graph(seed, actual, failing);
    EXPECT_THROW(run_by_engine(graph, false), std::runtime_error) << seed;
    EXPECT_THROW(run_as_pass(same, false), std::runtime_error) << seed;
    EXPECT_EQ(actual.nodes, expected.nodes) << seed;
    EXPECT_EQ(actual.nodes.back(), failing) << seed;
    EXPECT_EQ(actual.released, expected.released) << seed;
  }
}

TEST_F(BackwardPassTest, HooksAreTheEngines) {
  struct Hook : torch::autograd::FunctionPreHook {
    variable_list operator()(const variable_list& gradients) override {
      return gradients;
    }
  };
  Log log;
  edge_list roots = random_graph(1, log);
  EXPECT_TRUE(BackwardPass::plan({.roots = roots, .gradients = gradients_of(roots)}));
  roots[0].function->add_pre_hook(std::make_unique<Hook>());
  EXPECT_FALSE(BackwardPass::plan({.roots = roots, .gradients = gradients_of(roots)}));
}

// Nothing of autograd's is running.
TEST_F(BackwardPassTest, NoNodeRunsOutsideOfAPass) {
  EXPECT_EQ(current_autograd_node(), nullptr);
}

} // namespace
} // namespace lazyplug
