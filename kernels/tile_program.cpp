#include "kernels/tile_program.h"

#include <ATen/Dispatch.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>

#include "kernels/parallel.h"
#include "kernels/tile.h"

namespace lazyplug::kernels {
namespace {

// What becomes of a program's slots with memory, if they are computed elsewhere.
struct Copies {
  Copies() = default;
  explicit Copies(const Program& program) {
    for (const Instruction& instruction : program.instructions) {
      for (size_t i = 0; i < num_inputs(instruction.opcode); ++i) {
        is_read[instruction.inputs[i]] |= !is_written[instruction.inputs[i]];
      }
      is_written[instruction.out] = true;
    }
  }
  std::array<bool, kMaxSlots> is_read{}; // what has been there before
  std::array<bool, kMaxSlots> is_written{};
};

// One thread's work.
template <typename T>
class RowsPart {
 public:
  RowsPart(const Program& program, c10::ScalarType memory, const Assembly* assembly)
      : program_(program),
        assembly_(assembly),
        memory_(memory_dtype(memory)),
        element_size_(static_cast<int64_t>(c10::elementSize(memory))),
        is_narrow_(memory != program.dtype),
        copies_(is_narrow_ ? Copies(program) : Copies()),
        tile_(program, needs()) {}

  // The elements from `begin` to `end` of all rows, counted through.
  void run(c10::ArrayRef<Row> rows, int64_t begin, int64_t end) {
    int64_t first = 0; // element of the row
    for (const Row& row : rows) {
      const int64_t row_end = std::min(row.num_elements, end - first);
      for (int64_t i = std::max(int64_t{0}, begin - first); i < row_end; i += tile_.size) {
        run_tile(row, i, std::min(tile_.size, row_end - i));
      }
      first += row.num_elements;
      if (first >= end) {
        return;
      }
    }
  }

 private:
  SlotNeeds needs() const {
    SlotNeeds needs{};
    const size_t num_elsewhere = is_narrow_ ? 0 : program_.num_memory;
    std::fill(needs.begin() + num_elsewhere, needs.begin() + program_.num_slots, SlotNeed::kAll);
    return needs;
  }

  void run_tile(const Row& row, int64_t first, int64_t n) {
    const auto place = [&](size_t slot) { return static_cast<char*>(row.memory[slot]) + first * element_size_; };
    for (size_t slot = 0; slot < program_.num_memory; ++slot) {
      if (!is_narrow_) {
        tile_.slots[slot] = reinterpret_cast<T*>(place(slot));
      } else if (copies_.is_read[slot]) {
        loops<T>().loads[memory_](n, tile_.own(slot), place(slot), 1);
      }
    }
    kernels::run_tile(program_, assembly_, row.numbers, n, tile_);
    for (size_t slot = 0; is_narrow_ && slot < program_.num_memory; ++slot) {
      if (copies_.is_written[slot]) {
        loops<T>().stores[memory_](n, place(slot), tile_.own(slot));
      }
    }
  }

  const Program& program_;
  const Assembly* const assembly_;
  const size_t memory_; // of kMemoryDtypes
  const int64_t element_size_;
  const bool is_narrow_;
  const Copies copies_;
  Tile<T> tile_;
};

template <typename T>
void run_rows(const Program& program, c10::ArrayRef<Row> rows, c10::ScalarType memory, const Assembly* assembly) {
  int64_t num_elements = 0;
  for (const Row& row : rows) {
    num_elements += row.num_elements;
  }
  parallel_for(num_elements, at::internal::GRAIN_SIZE, [&](int64_t begin, int64_t end) {
    RowsPart<T>(program, memory, assembly).run(rows, begin, end);
  });
}

constexpr std::string_view kForRow = "row:";

// In the text of a program.
struct DtypeName {
  c10::ScalarType dtype;
  std::string_view name;
};
constexpr DtypeName kDtypes[] = {
    {c10::ScalarType::Float, "f32"},
    {c10::ScalarType::Double, "f64"},
    {c10::ScalarType::Byte, "u8"},
    {c10::ScalarType::Char, "i8"},
    {c10::ScalarType::Short, "i16"},
    {c10::ScalarType::Int, "i32"},
    {c10::ScalarType::Long, "i64"},
};

class Parser {
 public:
  explicit Parser(std::string_view text) : rest_(text) {}

  std::optional<Program> parse() {
    Program program;
    const std::string_view name = word();
    const auto* dtype =
        std::find_if(std::begin(kDtypes), std::end(kDtypes), [&](const DtypeName& row) { return row.name == name; });
    const bool has_head = dtype != std::end(kDtypes) && word() == "memory" && number(program.num_memory) &&
                          word() == "slots" && number(program.num_slots) && word() == "numbers" &&
                          number(program.num_numbers);
    if (!has_head || program.num_slots > kMaxSlots) {
      return std::nullopt;
    }
    program.dtype = dtype->dtype;
    while (!rest_.empty()) {
      const auto instruction = parse_instruction(program);
      if (word() != ";" || !instruction) {
        return std::nullopt;
      }
      program.instructions.push_back(*instruction);
    }
    return program;
  }

 private:
  std::optional<Instruction> parse_instruction(const Program& program) {
    Instruction result{};
    bool is_good = number(result.out) && result.out < program.num_slots && word() == "=";
    const bool is_of_integers = c10::isIntegralType(program.dtype, /*includeBool=*/false);
    std::string_view name = word();
    if (name.starts_with(kForRow)) {
      result.is_for_row = true;
      name.remove_prefix(kForRow.size());
    }
    const auto found =
        std::find_if(kOpcodes.begin(), kOpcodes.end(), [&](const OpcodeTraits& row) { return row.name == name; });
    if (!is_good || found == kOpcodes.end() ||
        !(is_of_integers ? is_for_integers(found->opcode) : is_for_floats(found->opcode)) ||
        (is_for_float32(found->opcode) && program.dtype != c10::ScalarType::Float)) {
      return std::nullopt;
    }
    result.opcode = found->opcode;
    for (size_t i = 0; i < found->num_inputs; ++i) {
      is_good = is_good && number(result.inputs[i]) && result.inputs[i] < program.num_slots;
    }
    for (uint8_t* index : {&result.number, &result.second_number}) {
      const bool is_taken = found->num_numbers > (index == &result.number ? 0 : 1);
      is_good = is_good && (!is_taken || (number(*index) && *index < program.num_numbers));
    }
    return is_good ? std::optional(result) : std::nullopt;
  }

  std::string_view word() {
    const size_t begin = std::min(rest_.find_first_not_of(' '), rest_.size());
    const size_t end = std::min(rest_.find(' ', begin), rest_.size());
    const std::string_view result = rest_.substr(begin, end - begin);
    rest_.remove_prefix(end);
    return result;
  }

  bool number(uint8_t& result) {
    const std::string_view text = word();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), result);
    return error == std::errc() && end == text.data() + text.size();
  }

  std::string_view rest_;
};

} // namespace

template <typename T>
const Loops<T>& loops() {
  static const Loops<T>& chosen = [&]() -> const Loops<T>& {
#ifdef LAZYPLUG_X86_KERNELS
    const std::string capability = at::get_cpu_capability();
    if (capability == "AVX512") {
      return avx512::loops<T>();
    }
    if (capability == "AVX2") {
      return avx2::loops<T>();
    }
#endif
    return default_target::loops<T>();
  }();
  return chosen;
}
template const Loops<float>& loops();
template const Loops<double>& loops();
template const Loops<uint8_t>& loops();
template const Loops<int8_t>& loops();
template const Loops<int16_t>& loops();
template const Loops<int32_t>& loops();
template const Loops<int64_t>& loops();

bool Program::has_rows() const {
  return std::any_of(instructions.begin(), instructions.end(), [](const Instruction& instruction) {
    return instruction.is_for_row || is_about_rows(instruction.opcode);
  });
}

size_t Program::num_whole_slots() const {
  std::vector<bool> is_whole(num_slots);
  std::fill_n(is_whole.begin(), num_memory, true);
  for (const Instruction& instruction : instructions) {
    is_whole[instruction.out] = is_whole[instruction.out] && !instruction.makes_one();
  }
  for (const Instruction& instruction : instructions) {
    is_whole[instruction.out] = is_whole[instruction.out] || !instruction.makes_one();
  }
  return static_cast<size_t>(std::count(is_whole.begin(), is_whole.end(), true));
}

bool computes_floats_of(c10::ScalarType dtype) {
  return dtype == c10::ScalarType::Float || dtype == c10::ScalarType::Double || is_narrow_float(dtype);
}

std::optional<c10::ScalarType> computing_dtype(c10::ScalarType dtype) {
  if (is_narrow_float(dtype)) {
    return c10::ScalarType::Float;
  }
  const bool has_programs =
      std::any_of(std::begin(kDtypes), std::end(kDtypes), [&](const DtypeName& row) { return row.dtype == dtype; });
  return has_programs ? std::optional(dtype) : std::nullopt;
}

std::string to_string(const Program& program) {
  std::ostringstream text;
  const auto* dtype = std::find_if(std::begin(kDtypes), std::end(kDtypes), [&](const DtypeName& row) {
    return row.dtype == program.dtype;
  });
  text << dtype->name << " memory " << int{program.num_memory} << " slots " << int{program.num_slots} << " numbers "
       << int{program.num_numbers};
  for (const Instruction& instruction : program.instructions) {
    text << ' ' << int{instruction.out} << " = " << (instruction.is_for_row ? kForRow : "")
         << traits(instruction.opcode).name;
    for (size_t i = 0; i < num_inputs(instruction.opcode); ++i) {
      text << ' ' << int{instruction.inputs[i]};
    }
    for (size_t i = 0; i < traits(instruction.opcode).num_numbers; ++i) {
      text << ' ' << int{i == 0 ? instruction.number : instruction.second_number};
    }
    text << " ;";
  }
  return text.str();
}

std::optional<Program> parse(std::string_view text) {
  return Parser(text).parse();
}

void run(const Program& program, c10::ArrayRef<Row> rows, c10::ScalarType memory, const Assembly* assembly) {
  TORCH_INTERNAL_ASSERT(!program.has_rows());
  TORCH_INTERNAL_ASSERT(
      memory == program.dtype || (is_narrow_float(memory) && program.dtype == c10::ScalarType::Float));
  AT_DISPATCH_ALL_TYPES(program.dtype, "tile program", [&] { run_rows<scalar_t>(program, rows, memory, assembly); });
}

} // namespace lazyplug::kernels
