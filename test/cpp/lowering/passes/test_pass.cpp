#include "lowering/passes/pass.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "common/config.h"
#include "common/metrics.h"
#include "test/cpp/lowering/graph_text.h"

namespace lazyplug {
namespace {

namespace fs = std::filesystem;

// One node for each pass to change.
const std::string kText =
    "%0 = device_data(0)  # Float[3] strides=[1]\n"
    "%1 = aten::exp(%0)  # Float[3] strides=[1]\n"
    "%2 = aten::exp(%0)  # Float[3] strides=[1]\n"
    "%3 = aten::clone(%1, None)  # Float[3] strides=[1]\n"
    "%4 = aten::relu(%2)  # Float[3] strides=[1]\n"
    "%5 = aten::relu(%4)  # Float[3] strides=[1]\n"
    "%6 = aten::tanh_(%3)  # Float[3] strides=[1]\n"
    "%7 = aten::tanh(%5)  # Float[3] strides=[1]\n"
    "return %1, %5, %6\n";

class Passes : public testing::Test {
 protected:
  void SetUp() override {
    reset_metrics();
  }
  void TearDown() override {
    config().disabled_passes.set("");
    config().dump_dir.set("");
    config().verify_ir.set(verified_before);
  }

  static std::string run(const std::string& text = kText) {
    Graph graph = parse(text);
    run_passes(graph);
    verify(graph);
    return to_text(graph);
  }

  const bool verified_before = config().verify_ir.get();
};

TEST_F(Passes, AllRun) {
  EXPECT_EQ(
      run(),
      "%0 = device_data(0)  # Float[3] strides=[1]\n"
      "%1 = aten::exp(%0)  # Float[3] strides=[1]\n"
      "%4 = aten::relu(%1)  # Float[3] strides=[1]\n"
      "%6 = aten::tanh(%1)  # Float[3] strides=[1]\n"
      "return %1, %4, %6\n");
  for (const Pass& pass : passes()) {
    EXPECT_EQ(counter("PassChanged/" + std::string(pass.name)).value(), 1) << pass.name;
  }
}

TEST_F(Passes, EachCanBeSwitchedOffAlone) {
  const std::string all = run();
  std::set<std::string> results;
  for (const Pass& pass : passes()) {
    reset_metrics();
    config().disabled_passes.set(pass.name);
    EXPECT_FALSE(is_pass_enabled(pass.name));
    results.insert(run());
    EXPECT_EQ(counter("PassChanged/" + std::string(pass.name)).value(), 0) << pass.name;
  }
  EXPECT_EQ(results.count(all), 0) << "each has something to do";
  config().disabled_passes.set("dead_code,no_op_copies,identities,common_subexpressions,pure_writes");
  EXPECT_EQ(run(), kText);
}

TEST_F(Passes, NamesThatNoneHasAreTold) {
  config().disabled_passes.set("identities,identitties,foreach_groups");
  testing::internal::CaptureStderr();
  run();
  run();
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_NE(told.find("no pass is called \"identitties\""), std::string::npos) << told;
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << told;
}

TEST_F(Passes, AreTimed) {
  run();
  EXPECT_EQ(timer("PassTime/identities").stats().count, 1);
}

TEST_F(Passes, WriteAFileForEachChange) {
  const fs::path directory = fs::path(testing::TempDir()) / "dumped" / "graphs";
  fs::remove_all(directory);
  config().dump_dir.set(directory.string());
  config().disabled_passes.set("identities");
  const std::string last = run();
  std::map<std::string, std::string> files; // without the process and the number of the graph
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    std::ifstream file(entry.path());
    files[name.substr(name.find('-', name.find('-') + 1) + 1)] = std::string(std::istreambuf_iterator<char>(file), {});
  }
  ASSERT_EQ(files.size(), 5);
  EXPECT_EQ(files["0-recorded.txt"], kText);
  EXPECT_TRUE(files.count("1-dead_code.txt"));
  EXPECT_TRUE(files.count("2-no_op_copies.txt"));
  EXPECT_TRUE(files.count("3-common_subexpressions.txt"));
  EXPECT_EQ(files["4-pure_writes.txt"], last);
}

TEST_F(Passes, AFolderThatCannotBeWrittenIsNoError) {
  config().dump_dir.set("/proc/nowhere");
  run();
}

TEST_F(Passes, LeaveAGraphWithoutAnythingToDoAlone) {
  const std::string text =
      "%0 = device_data(0)  # Float[3] strides=[1]\n"
      "return %0\n";
  EXPECT_EQ(run(text), text);
}

} // namespace
} // namespace lazyplug
