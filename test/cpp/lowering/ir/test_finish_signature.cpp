#include "lowering/ir/finish_signature.h"

#include "test/cpp/lowering/programs.h"

#include <gtest/gtest.h>

namespace lazyplug {
namespace {

TEST(FinishSignature, HashAndBytesFollowTheOutputs) {
  Signature signature(*make_signature(make_op("aten::relu"), {an_operand()}, {floats({2, 3})}));
  const Hash128 before = signature.hash;
  EXPECT_EQ(signature.output_bytes, std::vector<size_t>{24});
  signature.outputs[0].strides = {4, 1};
  finish_signature(signature);
  EXPECT_NE(signature.hash, before);
  EXPECT_EQ(signature.output_bytes, std::vector<size_t>{28});
  signature.outputs[0].strides = {3, 1};
  finish_signature(signature);
  EXPECT_EQ(signature.hash, before);
}

TEST(FinishSignature, HashFollowsTheIdentity) {
  Signature signature(*make_signature(make_op("aten::relu"), {an_operand()}, {floats({2, 3})}));
  const Hash128 before = signature.hash;
  signature.identity = hash_bytes("another");
  finish_signature(signature);
  EXPECT_NE(signature.hash, before);
}

} // namespace
} // namespace lazyplug
