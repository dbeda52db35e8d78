#include "common/parsed_flag.h"

#include <gtest/gtest.h>

namespace lazyplug {
namespace {

enum class Colour : uint8_t { kRed, kBlue };

int num_parsed = 0;

Colour parse(const std::string& text) {
  ++num_parsed;
  return text == "red" ? Colour::kRed : Colour::kBlue;
}

TEST(ParsedFlag, IsReadAgainOnlyAfterAChange) {
  Flag<std::string> flag({"colour", "Of a test.", {}}, "blue");
  ParsedFlag<Colour> colour(flag, parse);
  num_parsed = 0;
  EXPECT_EQ(colour.get(), Colour::kBlue);
  EXPECT_EQ(colour.get(), Colour::kBlue);
  EXPECT_EQ(num_parsed, 1);
  flag.set("red");
  EXPECT_EQ(colour.get(), Colour::kRed);
  EXPECT_EQ(colour.get(), Colour::kRed);
  EXPECT_EQ(num_parsed, 2);
}

} // namespace
} // namespace lazyplug
