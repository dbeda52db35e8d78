#include "lowering/fusion/group_steps.h"

#include <gtest/gtest.h>

namespace lazyplug {
namespace {

using kernels::Opcode;

GroupStep step(Opcode opcode, std::initializer_list<GroupStep::Source> sources) {
  return {opcode, sources, {}};
}
GroupStep::Source input(uint32_t index) {
  return {true, index};
}
GroupStep::Source made_by(uint32_t index) {
  return {false, index};
}

std::string program_of(
    const std::vector<GroupStep>& steps,
    size_t num_inputs,
    const std::vector<uint32_t>& outputs,
    size_t num_numbers = 0) {
  return kernels::to_string(make_program(
      steps,
      {.dtype = c10::ScalarType::Float, .num_inputs = num_inputs, .num_numbers = num_numbers, .num_literals = 0},
      outputs));
}

TEST(GroupSteps, SlotsAreInputsThenOutputsThenTheRest) {
  const std::vector<GroupStep> steps = {step(Opcode::kMul, {input(0), input(1)}), step(Opcode::kNeg, {made_by(0)})};
  EXPECT_EQ(program_of(steps, 2, {1}), "f32 memory 3 slots 4 numbers 0 3 = mul 0 1 ; 2 = neg 3 ;");
  EXPECT_EQ(program_of(steps, 2, {1, 0}), "f32 memory 4 slots 4 numbers 0 3 = mul 0 1 ; 2 = neg 3 ;");
}

TEST(GroupSteps, PlacesAreTakenAgain) {
  std::vector<GroupStep> steps = {step(Opcode::kNeg, {input(0)})};
  for (uint32_t i = 0; i < 5; ++i) {
    steps.push_back(step(Opcode::kMul, {made_by(i), made_by(i)}));
  }
  EXPECT_EQ(
      program_of(steps, 1, {5}),
      "f32 memory 2 slots 3 numbers 0 2 = neg 0 ; 2 = mul 2 2 ; 2 = mul 2 2 ; 2 = mul 2 2 ; 2 = mul 2 2 ; 1 = mul 2 2 "
      ";");
}

TEST(GroupSteps, WhatIsReadLaterKeepsItsPlace) {
  const std::vector<GroupStep> steps = {
      step(Opcode::kNeg, {input(0)}),
      step(Opcode::kAbs, {made_by(0)}),
      step(Opcode::kMul, {made_by(0), made_by(1)}),
  };
  EXPECT_EQ(program_of(steps, 1, {2}), "f32 memory 2 slots 4 numbers 0 2 = neg 0 ; 3 = abs 2 ; 1 = mul 2 3 ;");
}

TEST(GroupSteps, AStepThatOnlyPreparesAnotherHasItsPlace) {
  std::vector<GroupStep> steps = {step(Opcode::kNeg, {input(0)}), step(Opcode::kToBFloat16, {made_by(0)})};
  steps[0].place_of = 1;
  steps.push_back(step(Opcode::kAbs, {made_by(1)}));
  EXPECT_EQ(program_of(steps, 1, {1, 2}), "f32 memory 3 slots 3 numbers 0 1 = neg 0 ; 1 = to_bfloat16 1 ; 2 = abs 1 ;");
}

TEST(GroupSteps, StoresRoundWhatNobodyElseReads) {
  std::vector<GroupStep> steps = {step(Opcode::kNeg, {input(0)}), step(Opcode::kToBFloat16, {made_by(0)})};
  steps[0].place_of = 1;
  EXPECT_EQ(program_of(steps, 1, {1}), "f32 memory 2 slots 2 numbers 0 1 = neg 0 ;");
  steps[0].place_of = GroupStep::kNone;
  EXPECT_EQ(program_of(steps, 1, {1}), "f32 memory 2 slots 3 numbers 0 2 = neg 0 ; 1 = to_bfloat16 2 ;");
  EXPECT_EQ(program_of({step(Opcode::kToHalf, {input(0)})}, 1, {0}), "f32 memory 2 slots 2 numbers 0 1 = to_half 0 ;");
}

TEST(GroupSteps, DependOnInputsAndOnThoseOfWhatTheyRead) {
  std::vector<GroupStep> steps = {
      step(Opcode::kNeg, {input(0)}),
      step(Opcode::kZero, {}),
      step(Opcode::kMul, {made_by(0), made_by(1)}),
  };
  steps[1].unread.push_back(input(2));
  const auto inputs = inputs_of_steps(steps, 3);
  EXPECT_EQ(inputs[0], (std::vector<bool>{true, false, false}));
  EXPECT_EQ(inputs[1], (std::vector<bool>{false, false, true})) << "though what it holds does not matter";
  EXPECT_EQ(inputs[2], (std::vector<bool>{true, false, true}));
}

} // namespace
} // namespace lazyplug
