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
#include "kernels/pointwise.h"
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

// bfloat16's are kept, whatever their bits; others become one of them.
TEST_F(AssemblyTest, NansAreRoundedLikeInLoops) {
  const Program program = *parse("f32 memory 2 slots 2 numbers 0 1 = to_bfloat16 0 ; 1 = neg 1 ;");
  const auto assembly = assemble(program);
  ASSERT_TRUE(assembly);
  const at::Tensor upper = at::cat({at::arange(0x7F80, 0x8000, at::kInt), at::arange(-128, 0, at::kInt)}) * 0x10000;
  for (const int32_t lower : {0, 1, 0x7FFF, 0x8000, 0xFFFF}) {
    const at::Tensor numbers = (upper + lower).view(at::kFloat);
    const at::Tensor rounded =
        at::where(at::scalar_tensor(lower, at::kInt).eq(0).logical_or(numbers.isinf()), upper, 0x7FC00000);
    const at::Tensor expected = rounded.bitwise_xor(at::scalar_tensor(INT32_MIN, at::kInt));
    for (const Assembly* way : {static_cast<const Assembly*>(nullptr), assembly.get()}) {
      const auto memory = results(program, {numbers, at::zeros({numbers.numel()})}, {}, way);
      EXPECT_TRUE(memory[1].view(at::kInt).equal(expected)) << lower << (way ? " in machine code" : "");
    }
  }
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

// Programs whose tiles are whole rows.
class AssemblyOfRows : public AssemblyTest {
 protected:
  // What the program makes of two inputs like the output, one row, and a number: that output, and one of an element for
  // each row. `reuses`: the first input's memory becomes the output.
  struct Arguments {
    at::Tensor x;
    at::Tensor y;
    at::Tensor row;
    bool reuses = false;
  };
  static std::pair<at::Tensor, at::Tensor>
  results(const Program& program, const Arguments& given, const Assembly* assembly) {
    const at::Tensor x = given.x.clone();
    const at::Tensor out = given.reuses ? x : at::empty_like(x);
    const at::Tensor ones = at::empty({x.size(0)});
    const c10::DimVector strides(x.strides());
    const std::vector<PointwiseSpace::Input> places{{0, strides}, {0, strides}, {0, {0, 1}}};
    std::vector<Memory> memory;
    for (const at::Tensor& tensor : {x, given.y, given.row, out, ones}) {
      memory.push_back({tensor.data_ptr(), at::kFloat});
    }
    const double numbers[] = {0.25, -1.5, 3};
    run(program, PointwiseSpace(x.sizes(), x.strides(), places), memory, numbers, assembly);
    return {out, ones};
  }

  static void expect_same_as_loops(const Program& program, const Arguments& given) {
    const auto assembly = assemble(program);
    ASSERT_TRUE(assembly) << to_string(program);
    const auto expected = results(program, given, nullptr);
    const auto actual = results(program, given, assembly.get());
    ASSERT_TRUE(same_bits(actual.first, expected.first)) << given.x.sizes() << to_string(program);
    ASSERT_TRUE(same_bits(actual.second, expected.second)) << given.x.sizes() << to_string(program);
  }

  static std::vector<std::pair<size_t, size_t>> runs(const char* program, int64_t row_length) {
    std::vector<std::pair<size_t, size_t>> result;
    const auto assembly = assemble(*parse(program));
    for (const Assembly::Run& run : assembly->runs(row_length)) {
      result.emplace_back(run.begin, run.end);
    }
    return result;
  }

  // Of inputs x, y and a row.
  static constexpr const char* kRmsNorm =
      "f32 memory 5 slots 7 numbers 3 6 = square 0 ; 5 = row_mean 6 ; 5 = row:rsqrt 5 ; 4 = row:copy 5 ; 6 = spread 5 ;"
      " 6 = mul 0 6 ; 3 = mul 6 2 ;";
  static constexpr const char* kLayerNorm =
      "f32 memory 5 slots 7 numbers 3 5 = add 0 1 0 ; 6 = row_center 5 ; 4 = row_rstd 5 6 0 ; 5 = normalize 5 6 4 ;"
      " 3 = mul_add 5 2 1 ;";
};

TEST_F(AssemblyOfRows, NormsHaveTheBitsOfTheirLoops) {
  for (const char* text : {kRmsNorm, kLayerNorm}) {
    for (const int64_t n : {2, 31, 32, 33, 64, 96, 480, 512, 544, 1'024, 1'056, 2'048}) {
      for (const int64_t num_rows : {1, 2, 7, 40}) {
        for (const double offset : {0.0, 1e4}) {
          const auto make = [&] { return at::randn({num_rows, n}) + offset; };
          const bool reuses = text == kRmsNorm;
          expect_same_as_loops(*parse(text), {make(), make(), at::randn({n}), reuses});
        }
      }
    }
    for (const double odd : {double{NAN}, double{INFINITY}, -0.0, 1e-42, 3e38}) {
      at::Tensor x = at::full({3, 64}, odd);
      x.select(0, 1).slice(0, 1).fill_(-0.0);
      expect_same_as_loops(*parse(text), {x, at::zeros_like(x), at::ones({64})});
    }
  }
}

TEST_F(AssemblyOfRows, WhatIsMadeOfARowIsTheEndOfARun) {
  using Runs = std::vector<std::pair<size_t, size_t>>;
  EXPECT_EQ(runs(kRmsNorm, 512), (Runs{{0, 2}, {4, 7}}));
  EXPECT_EQ(runs(kLayerNorm, 512), (Runs{{0, 2}, {3, 5}}));
  // Rows that do not fill vectors, or are too long for two levels of sums.
  EXPECT_EQ(runs(kRmsNorm, 500), (Runs{{5, 7}}));
  EXPECT_EQ(runs(kRmsNorm, 8'192), (Runs{{5, 7}}));
  // Rows would overwrite what others still have to read: slot 5 is both.
  EXPECT_EQ(
      runs("f32 memory 5 slots 6 numbers 0 5 = row_sum 0 ; 5 = spread 5 ; 5 = mul 0 5 ; 3 = mul 5 2 ;", 512),
      (Runs{{2, 4}}));
}

// Slots may hold an element for each, and later one for each row.
TEST_F(AssemblyOfRows, AnyProgramHasTheResultsOfItsLoops) {
  std::mt19937 random(0);
  const auto draw = [&](size_t below) { return random() % below; };
  const std::vector<Opcode> cheap{
      Opcode::kAdd,
      Opcode::kMul,
      Opcode::kNeg,
      Opcode::kLerp,
      Opcode::kMulAdd,
      Opcode::kMaximum,
      Opcode::kAbs,
      Opcode::kClamp,
      Opcode::kLeakyReluBackward,
      Opcode::kWhere,
      Opcode::kToBFloat16};
  size_t num_of_rows = 0;
  constexpr Slot kWhole = 3;
  constexpr Slot kOne = 4;
  for (int repetition = 0; repetition < 400; ++repetition) {
    const size_t num_slots = 6 + draw(8);
    Program program{at::kFloat, 5, static_cast<uint8_t>(num_slots), 3, {}};
    std::vector<Slot> wholes{0, 1, 2};
    std::vector<Slot> ones;
    const auto pick = [&](const std::vector<Slot>& slots) { return slots[draw(slots.size())]; };
    const auto add = [&](Opcode opcode, Slot out, std::vector<Slot> inputs, bool is_for_row = false) {
      Instruction next{opcode, out, {}, static_cast<uint8_t>(draw(3)), 0, is_for_row};
      std::copy(inputs.begin(), inputs.end(), next.inputs);
      for (auto* list : {&wholes, &ones}) {
        std::erase(*list, out);
      }
      (next.makes_one() ? ones : wholes).push_back(out);
      program.instructions.push_back(next);
    };
    for (size_t length = 2 + draw(30); length > 0; --length) {
      const auto out = static_cast<Slot>(5 + draw(num_slots - 5));
      const size_t kind = draw(10);
      if (kind == 0 || ones.empty()) {
        const Opcode sums[] = {Opcode::kRowSum, Opcode::kRowMean, Opcode::kRowCenter};
        add(sums[draw(3)], out, {pick(wholes)});
      } else if (kind == 1) {
        add(Opcode::kRowRstd, out, {pick(wholes), pick(ones)});
      } else if (kind == 2) {
        add(Opcode::kSpread, out, {pick(ones)});
      } else if (kind == 3) {
        // The loops go through the rows in order.
        const Slot mean = pick(ones);
        const Slot rstd = pick(ones);
        if (out != mean && out != rstd) {
          add(Opcode::kNormalize, out, {pick(wholes), mean, rstd});
        }
      } else if (kind == 4) {
        add(cheap[draw(cheap.size())], out, {pick(ones), pick(ones), pick(ones)}, /*is_for_row=*/true);
      } else {
        add(kind == 5 ? Opcode::kTanh : cheap[draw(cheap.size())], out, {pick(wholes), pick(wholes), pick(wholes)});
      }
    }
    add(Opcode::kRowMean, kOne, {pick(wholes)});
    add(Opcode::kSpread, 5, {pick(ones)});
    add(Opcode::kMul, kWhole, {pick(wholes), pick(wholes)});
    const auto assembly = assemble(program);
    if (!assembly) {
      continue;
    }
    num_of_rows += assembly->runs(32).size() != assembly->runs(33).size() ? 1 : 0;
    for (const int64_t n : {32, 64, 96, 512, 544, 768, 100}) {
      const auto num_rows = static_cast<int64_t>(1 + draw(9));
      expect_same_as_loops(program, {at::randn({num_rows, n}), at::randn({num_rows, n}), at::randn({n})});
    }
  }
  EXPECT_GT(num_of_rows, 100);
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
    return assemble(*parse(text))->runs()[0].num_lanes;
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
