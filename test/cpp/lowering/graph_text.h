// Graphs as text, for tests of what changes them.
#pragma once

#include "lowering/ir/dump.h"
#include "lowering/ir/parse.h"
#include "lowering/ir/verify.h"
#include "test/cpp/lowering/programs.h"

#include <gtest/gtest.h>

#include <map>

namespace lazyplug {

// By full name, as in "aten::add.Tensor".
inline const OpInfo& find_op(const std::string& name) {
  static auto* known = new std::map<std::string, const OpInfo*>();
  const OpInfo*& op = (*known)[name];
  if (!op) {
    const size_t dot = name.find('.');
    const std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
    op = &make_op(name.substr(0, dot).c_str(), overload.c_str());
  }
  return *op;
}

inline Graph parse(std::string_view text) {
  return parse_graph(text, find_op);
}

// What a pass makes of a graph; `text` if nothing.
inline std::string after(bool (*pass)(Graph&), const std::string& text) {
  Graph graph = parse(text);
  EXPECT_EQ(to_text(graph), text) << "not as it is printed";
  const bool changed = pass(graph);
  verify(graph);
  const std::string result = to_text(graph);
  EXPECT_EQ(changed, result != text) << text;
  return result;
}

} // namespace lazyplug
