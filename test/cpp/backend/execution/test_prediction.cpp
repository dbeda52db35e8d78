#include "backend/execution/prediction.h"

#include "test/cpp/lowering/programs.h"

#include <gtest/gtest.h>

namespace lazyplug {
namespace {

// Made anew each time, as by a cache that has forgotten it.
SignaturePtr a_call(int64_t number) {
  static const OpInfo& op = make_op("aten::relu");
  return make_signature(op, {an_operand(), a_constant(number)}, {floats({2})});
}

// Records a program of such calls and cuts it. How many of them were predicted.
size_t run(Prediction& prediction, const std::vector<int64_t>& numbers) {
  Trace trace;
  const Value leaf = add_leaf(trace, at::ones({2}));
  size_t predicted = 0;
  for (const int64_t number : numbers) {
    const SignaturePtr call = a_call(number);
    predicted += prediction.next() && prediction.next()->hash == call->hash;
    prediction.note(call);
    trace.add_call(call, Operand{leaf}, {}, 0, nullptr);
  }
  prediction.cut(trace);
  return predicted;
}

TEST(Prediction, KnowsNothingAtFirst) {
  Prediction prediction;
  EXPECT_FALSE(prediction.next());
  prediction.note(a_call(1));
  EXPECT_FALSE(prediction.next());
}

TEST(Prediction, ARepeatedProgramIsPredicted) {
  Prediction prediction;
  EXPECT_EQ(run(prediction, {1, 2, 3}), 0);
  EXPECT_EQ(run(prediction, {1, 2, 3}), 0) << "the first to follow a known program";
  EXPECT_EQ(run(prediction, {1, 2, 3}), 3);
}

TEST(Prediction, ProgramsThatTakeTurnsPredictEachOther) {
  Prediction prediction;
  run(prediction, {1, 2, 3});
  run(prediction, {4, 5});
  run(prediction, {1, 2, 3});
  EXPECT_EQ(run(prediction, {4, 5}), 2);
  EXPECT_EQ(run(prediction, {1, 2, 3}), 3);
}

TEST(Prediction, EndsWithTheProgram) {
  Prediction prediction;
  run(prediction, {1, 2});
  run(prediction, {1, 2});
  prediction.note(a_call(1));
  EXPECT_TRUE(prediction.next());
  prediction.note(a_call(2));
  EXPECT_FALSE(prediction.next());
}

TEST(Prediction, ACallMoreOrLessCostsLittle) {
  Prediction prediction;
  run(prediction, {1, 2, 3, 4, 5});
  run(prediction, {1, 2, 3, 4, 5});
  EXPECT_EQ(run(prediction, {1, 3, 4, 5}), 3) << "all but the call after the gap";
  run(prediction, {1, 2, 3, 4, 5});
  run(prediction, {1, 2, 3, 4, 5});
  EXPECT_EQ(run(prediction, {1, 2, 99, 3, 4, 5}), 5) << "all but the new one";
}

TEST(Prediction, TheLastSuccessorIsExpected) {
  Prediction prediction;
  run(prediction, {1});
  run(prediction, {2});
  run(prediction, {1});
  run(prediction, {3});
  run(prediction, {1});
  EXPECT_EQ(run(prediction, {2}), 0);
  run(prediction, {1});
  EXPECT_EQ(run(prediction, {2}), 1);
}

TEST(Prediction, EqualPiecesOfAStepAreToldApartByWhatCameBefore) {
  Prediction prediction;
  const auto step = [&] {
    return run(prediction, {1}) + run(prediction, {2, 3}) + run(prediction, {4}) + run(prediction, {2, 3}) +
           run(prediction, {5, 6});
  };
  step();
  step();
  step();
  EXPECT_EQ(step(), 8);
  EXPECT_EQ(step(), 8);
}

TEST(Prediction, ThreeKnownCallsTellWhereAProgramGoesOn) {
  Prediction prediction;
  run(prediction, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(run(prediction, {7, 8, 3, 4, 5, 6}), 1) << "all after 3, 4, 5";
  EXPECT_EQ(run(prediction, {9, 3, 4, 5, 6}), 1) << "in another place, and after another program";
  EXPECT_EQ(run(prediction, {10, 11, 12, 13}), 0);
}

TEST(Prediction, OfEqualRunsInAProgramTheFirstIsExpected) {
  Prediction prediction;
  run(prediction, {1, 2, 3, 4, 1, 2, 3, 5});
  EXPECT_EQ(run(prediction, {6, 1, 2, 3, 4, 1, 2, 3, 5}), 5);
}

TEST(Prediction, AProgramThatWasFoundOnTheWayIsExpectedInThisPlaceFromNowOn) {
  Prediction prediction;
  run(prediction, {1, 2, 3, 4});
  run(prediction, {1, 2, 3, 4});
  run(prediction, {5, 6});
  EXPECT_EQ(run(prediction, {1, 2, 3, 4}), 1);
  run(prediction, {5, 6});
  EXPECT_EQ(run(prediction, {1, 2, 3, 4}), 4);
}

} // namespace
} // namespace lazyplug
