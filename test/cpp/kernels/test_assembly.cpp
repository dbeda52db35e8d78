#include "kernels/assembly.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <random>
#include <sstream>

#include "common/config.h"
#include "test/cpp/kernels/tensors.h"

namespace lazyplug::kernels {
namespace {

class AssemblyTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!assemble(*parse("f32 memory 1 slots 1 numbers 0 0 = neg 0 ; 0 = abs 0 ;"))) {
      GTEST_SKIP() << "this build, or processor, has no machine code for single programs";
    }
  }

  // What the program leaves in memory that holds copies of these.
  static std::vector<at::Tensor> results(
      const Program& program,
      const std::vector<at::Tensor>& before,
      const std::vector<double>& numbers,
      const Assembly* assembly) {
    std::vector<at::Tensor> memory;
    for (const at::Tensor& tensor : before) {
      memory.push_back(tensor.clone());
    }
    const Tensors row(memory, numbers);
    run(program, std::vector<Row>{row.row()}, assembly);
    return memory;
  }

  static void expect_same_as_loops(
      const Program& program,
      const std::vector<at::Tensor>& memory,
      const std::vector<double>& numbers) {
    const auto assembly = assemble(program);
    ASSERT_TRUE(assembly) << to_string(program);
    const auto expected = results(program, memory, numbers, nullptr);
    const auto actual = results(program, memory, numbers, assembly.get());
    for (size_t slot = 0; slot < memory.size(); ++slot) {
      ASSERT_TRUE(same_bits(actual[slot], expected[slot])) << "slot " << slot << " of " << to_string(program);
    }
  }

  static bool is_cheap(Opcode opcode) {
    const Program program{at::kFloat, 2, 2, 2, {{opcode, 1, {0, 0, 0}, 0, 1}, {Opcode::kNeg, 1, {1}}}};
    return assemble(program) != nullptr;
  }
};

TEST_F(AssemblyTest, EachInstructionHasTheBitsOfItsLoop) {
  size_t num_cheap = 0;
  for (const OpcodeTraits& row : elementwise_opcodes(at::kFloat)) {
    if (!is_cheap(row.opcode)) {
      continue;
    }
    ++num_cheap;
    // d = op(a, b, c); e = -d
    const Program program{at::kFloat, 5, 5, 2, {{row.opcode, 3, {0, 1, 2}, 0, 1}, {Opcode::kNeg, 4, {3}}}};
    for (const int64_t n : {1, 7, 8, 9, 31, 63, 64, 65, 129, 512, 5'001}) {
      for (const double number : {1.0, 0.3137, -2.5, 0.0, -0.0, 0.5, 0.9, double{NAN}, 1e300}) {
        auto memory = arguments(n, at::kFloat);
        memory.push_back(at::zeros({n}));
        memory.push_back(at::zeros({n}));
        expect_same_as_loops(program, memory, {number, 2});
      }
    }
  }
  EXPECT_EQ(num_cheap, elementwise_opcodes(at::kFloat).size() - 18)
      << "functions, and the library's square root, have none";
}

// More slots than there are registers, for pointers and for vectors; functions between the runs.
TEST_F(AssemblyTest, AnyProgramHasTheResultsOfItsLoops) {
  std::mt19937 random(0);
  const auto draw = [&](size_t below) { return random() % below; };
  std::vector<Opcode> opcodes;
  for (const OpcodeTraits& row : elementwise_opcodes(at::kFloat)) {
    opcodes.push_back(row.opcode);
  }
  for (int repetition = 0; repetition < 300; ++repetition) {
    const size_t num_memory = 1 + draw(14);
    const size_t num_slots = num_memory + draw(24);
    Program program{at::kFloat, static_cast<uint8_t>(num_memory), static_cast<uint8_t>(num_slots), 4, {}};
    std::vector<bool> is_made(num_slots);
    std::fill_n(is_made.begin(), num_memory, true);
    const auto draw_made = [&] {
      size_t slot = draw(num_slots);
      while (!is_made[slot]) {
        slot = draw(num_slots);
      }
      return static_cast<Slot>(slot);
    };
    for (size_t length = 2 + draw(60); length > 0; --length) {
      Opcode opcode = opcodes[draw(opcodes.size())];
      if (!is_cheap(opcode) && draw(4) != 0) { // mostly runs
        opcode = Opcode::kLerp;
      }
      const auto number = static_cast<uint8_t>(draw(3));
      const auto out = static_cast<Slot>(draw(num_slots));
      program.instructions.push_back(
          {opcode, out, {draw_made(), draw_made(), draw_made()}, number, static_cast<uint8_t>(number + 1)});
      is_made[out] = true;
    }
    program.instructions.push_back({Opcode::kAbs, 0, {0}}); // at least one run
    program.instructions.push_back({Opcode::kNeg, 0, {0}});
    std::vector<at::Tensor> memory;
    for (size_t slot = 0; slot < num_memory; ++slot) {
      memory.push_back(at::randn({531}));
    }
    expect_same_as_loops(program, memory, {0.25, -1.5, 3, 0.75});
  }
}

// As many vectors at a time as there are registers for what has been made of them.
TEST_F(AssemblyTest, ComputesSeveralVectorsAtATime) {
  const auto num_lanes = [](int num_alive) {
    std::string text = "f32 memory 2 slots 40 numbers 0";
    for (int i = 0; i < num_alive; ++i) {
      text += " " + std::to_string(i + 2) + " = neg 0 ;";
    }
    for (int i = 0; i < num_alive; ++i) {
      text += " 1 = mul 1 " + std::to_string(i + 2) + " ;";
    }
    return assemble(*parse(text))->num_lanes();
  };
  const int64_t one = num_lanes(30);
  EXPECT_TRUE(one == 8 || one == 16) << one;
  EXPECT_EQ(num_lanes(1), 4 * one);
  EXPECT_EQ(num_lanes(one == 8 ? 3 : 8), 2 * one);
}

TEST_F(AssemblyTest, EqualProgramsShareIt) {
  const auto make = [](const char* text) { return assemble(*parse(text)); };
  const char* text = "f32 memory 2 slots 2 numbers 0 1 = neg 0 ; 1 = mul 1 0 ;";
  auto first = make(text);
  EXPECT_EQ(make(text), first);
  EXPECT_NE(make("f32 memory 2 slots 2 numbers 0 1 = neg 0 ; 1 = div 1 0 ;"), first);
  const std::weak_ptr<const Assembly> weak = first;
  first = nullptr;
  EXPECT_TRUE(weak.expired()) << "lives as long as somebody holds it";
}

TEST_F(AssemblyTest, OnlyRunsOfCheapInstructionsOfFloatsHaveSome) {
  EXPECT_FALSE(assemble(*parse("f32 memory 1 slots 1 numbers 0 0 = neg 0 ;")));
  EXPECT_FALSE(assemble(*parse("f32 memory 1 slots 1 numbers 0 0 = neg 0 ; 0 = exp 0 ; 0 = neg 0 ;")));
  EXPECT_FALSE(assemble(*parse("f64 memory 1 slots 1 numbers 0 0 = neg 0 ; 0 = abs 0 ;")));
  const auto both =
      assemble(*parse("f32 memory 1 slots 1 numbers 0 0 = neg 0 ; 0 = abs 0 ; 0 = exp 0 ; 0 = abs 0 ; 0 = neg 0 ;"));
  ASSERT_EQ(both->runs().size(), 2);
  EXPECT_EQ(both->runs()[1].begin, 3);
  EXPECT_EQ(both->runs()[1].end, 5);
}

TEST_F(AssemblyTest, MemoryIsNotWritableWhereItIsExecutable) {
  const auto assembly = assemble(*parse("f32 memory 1 slots 1 numbers 0 0 = neg 0 ; 0 = abs 0 ;"));
  const auto address = reinterpret_cast<uintptr_t>(assembly->runs()[0].code);
  std::ifstream maps("/proc/self/maps");
  std::string permissions;
  for (std::string line; std::getline(maps, line) && permissions.empty();) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    char dash = 0;
    std::string found;
    std::istringstream(line) >> std::hex >> begin >> dash >> end >> found;
    permissions = begin <= address && address < end ? found : "";
  }
  EXPECT_EQ(permissions, "r-xp");
}

TEST_F(AssemblyTest, PerfIsToldWhereItIs) {
  config().perf_map.set(true);
  const auto assembly = assemble(*parse("f32 memory 1 slots 1 numbers 0 0 = relu 0 ; 0 = abs 0 ;"));
  config().perf_map.set(false);
  const std::string path = "/tmp/perf-" + std::to_string(getpid()) + ".map";
  std::stringstream map;
  map << std::ifstream(path).rdbuf();
  unlink(path.c_str());
  std::ostringstream address;
  address << std::hex << reinterpret_cast<uintptr_t>(assembly->runs()[0].code);
  EXPECT_NE(map.str().find(address.str()), std::string::npos) << map.str();
  EXPECT_NE(map.str().find("relu 0"), std::string::npos) << map.str();
}

TEST_F(AssemblyTest, IsMadeWhenAProgramHasRunAFewTimes) {
  const Program program = *parse("f32 memory 1 slots 1 numbers 0 0 = neg 0 ; 0 = abs 0 ;");
  const AssembledLater assembled;
  for (int64_t i = 0; i < config().assemble_after.get(); ++i) {
    EXPECT_FALSE(assembled.next(program));
  }
  const Assembly* const assembly = assembled.next(program);
  EXPECT_TRUE(assembly);
  EXPECT_EQ(assembled.next(program), assembly);
  const int64_t before = config().assemble_after.get();
  config().assemble_after.set(-1);
  EXPECT_FALSE(assembled.next(program));
  EXPECT_FALSE(AssembledLater().next(program));
  config().assemble_after.set(0);
  EXPECT_EQ(assembled.next(program), assembly);
  EXPECT_EQ(AssembledLater().next(program), assembly);
  config().assemble_after.set(before);
}

TEST_F(AssemblyTest, OfAnEqualProgramServesFromTheFirstRunOn) {
  const Program program = *parse("f32 memory 1 slots 1 numbers 0 0 = abs 0 ; 0 = neg 0 ; 0 = abs 0 ;");
  const AssembledLater later;
  EXPECT_FALSE(find_assembled(program));
  EXPECT_FALSE(later.next(program));
  {
    const auto assembly = assemble(program);
    EXPECT_EQ(find_assembled(program), assembly);
    EXPECT_EQ(AssembledLater().next(program), assembly.get());
    EXPECT_FALSE(later.next(program)); // it looks once
  }
  EXPECT_FALSE(find_assembled(program));
}

} // namespace
} // namespace lazyplug::kernels
