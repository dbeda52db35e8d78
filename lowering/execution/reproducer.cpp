#include "lowering/execution/reproducer.h"

#include <torch/csrc/jit/serialization/pickle.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "common/config.h"

namespace lazyplug {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxBytes = size_t{64} << 20;
constexpr int kMaxTries = 20;

size_t memory_of(const c10::IValue& value) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    return tensor.defined() && tensor.has_storage() ? tensor.storage().nbytes() : 0;
  }
  size_t bytes = 0;
  if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      bytes += memory_of(element);
    }
  }
  return bytes;
}

size_t memory_of(const c10::Stack& arguments) {
  size_t bytes = 0;
  for (const c10::IValue& argument : arguments) {
    bytes += memory_of(argument);
  }
  return bytes;
}

fs::path folder() {
  const std::string chosen = config().dump_dir.get();
  fs::path folder =
      chosen.empty() ? fs::temp_directory_path() / ("torch_lazyplug-" + std::to_string(getpid())) : fs::path(chosen);
  fs::create_directories(folder);
  return folder;
}

// "aten.add.Tensor"
std::string python_name(const OpInfo& op) {
  std::string name = op.base_name() + "." + (op.overload().empty() ? "default" : op.overload());
  return name.replace(name.find("::"), 2, ".");
}

std::string program_text(const OpInfo& op, const std::string& message) {
  return "# " + op.name() + " raises: " + message.substr(0, message.find('\n')) + R"(
import pathlib

import torch

arguments = torch.load(pathlib.Path(__file__).with_suffix(".pt"), weights_only=False)
torch.ops.)" +
         python_name(op) + "(*arguments)\n";
}

void write(const fs::path& path, const char* data, size_t size) {
  std::ofstream file(path, std::ios::binary);
  file.write(data, static_cast<std::streamsize>(size));
  file.close();
  TORCH_CHECK(file, "cannot write ", path.string());
}

c10::Stack read_arguments(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return torch::jit::pickle_load(bytes).toTuple()->elements().vec();
}

bool raises(const OpInfo& op, c10::Stack arguments, const std::string& message) {
  try {
    op.call(arguments);
  } catch (const c10::Error& error) {
    return error.msg() == message;
  } catch (const std::exception& error) {
    return error.what() == message;
  }
  return false;
}

bool write_and_try(const OpInfo& op, c10::Stack arguments, const std::string& message, const fs::path& program) {
  const std::string text = program_text(op, message);
  const std::vector<char> data = torch::jit::pickle_save(c10::ivalue::Tuple::create(std::move(arguments)));
  const fs::path data_file = fs::path(program).replace_extension(".pt");
  write(program, text.data(), text.size());
  write(data_file, data.data(), data.size());
  return raises(op, read_arguments(data_file), message);
}

void remove_files(const fs::path& program) {
  std::error_code ignored;
  fs::remove(program, ignored);
  fs::remove(fs::path(program).replace_extension(".pt"), ignored);
}

} // namespace

bool is_reproducible(const OpInfo& op) {
  const auto is_generator = [](const ArgInfo& arg) { return arg.kind == ArgKind::kGenerator; };
  return op.is_aten() && std::none_of(op.args().begin(), op.args().end(), is_generator);
}

std::optional<std::string> write_reproducer(const OpInfo& op, c10::Stack arguments, const std::string& message) {
  static std::atomic<int> tries = 0;
  const int number = tries++;
  fs::path program;
  try {
    if (memory_of(arguments) > kMaxBytes || number >= kMaxTries) {
      return std::nullopt;
    }
    std::string name = python_name(op);
    std::replace(name.begin(), name.end(), '.', '_');
    program = folder() / (name + "_" + std::to_string(number) + ".py");
    if (write_and_try(op, std::move(arguments), message, program)) {
      return program.string();
    }
  } catch (...) {
    // No program is better than another error in place of the user's.
  }
  remove_files(program);
  return std::nullopt;
}

} // namespace lazyplug
