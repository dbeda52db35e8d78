#include "lowering/execution/call_errors.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include "lowering/execution/reproducer.h"

namespace lazyplug {

std::string describe_call(const char* name, const std::vector<std::string>& operands) {
  return std::string("while running ") + name + "(" + c10::Join(", ", operands) + ")";
}

void add_context(const std::exception_ptr& error, std::string context) {
  try {
    std::rethrow_exception(error);
  } catch (c10::Error& raised) {
    raised.add_context(std::move(context));
  } catch (...) {
    // Errors of other kinds have no room for it.
  }
}

void add_reproducer(const std::exception_ptr& error, const OpInfo& op, const c10::Stack& operands) {
  try {
    std::rethrow_exception(error);
  } catch (c10::Error& raised) {
    if (const auto program = write_reproducer(op, operands, raised.msg())) {
      raised.add_context("tried, and raises the same on the CPU: python " + *program);
    }
  } catch (...) {
    // Likewise.
  }
}

c10::Stack copy_operands(const c10::Stack& operands) {
  c10::Stack copies;
  for (const c10::IValue& operand : operands) {
    copies.push_back(operand.isList() ? c10::IValue(operand.toList().copy()) : operand);
  }
  return copies;
}

} // namespace lazyplug
