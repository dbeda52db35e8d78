#include "lowering/ir/parse.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <sstream>
#include <unordered_map>

#include "lowering/ir/finish_signature.h"

namespace lazyplug {
namespace {

// What is left of a line.
class Cursor {
 public:
  explicit Cursor(std::string_view line) : line_(line), rest_(line) {}

  bool at_end() const {
    return rest_.empty();
  }
  bool sees(std::string_view word) const {
    return rest_.starts_with(word);
  }
  bool take(std::string_view word) {
    const bool is_there = sees(word);
    rest_.remove_prefix(is_there ? word.size() : 0);
    return is_there;
  }
  void expect(std::string_view word) {
    check(take(word), word);
  }
  std::string_view take_until(std::string_view stops) {
    const std::string_view word = rest_.substr(0, rest_.find_first_of(stops));
    rest_.remove_prefix(word.size());
    return word;
  }
  int64_t take_int() {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    check(error == std::errc(), "a number");
    rest_.remove_prefix(end - rest_.data());
    return value;
  }
  // Between quotes, with \" and \\ for " and \.
  std::string take_quoted() {
    std::string text;
    expect("\"");
    while (!take("\"")) {
      take("\\");
      check(!at_end(), "\"");
      text += rest_.front();
      rest_.remove_prefix(1);
    }
    return text;
  }
  // "[a, b]" or such.
  template <typename Take>
  void take_list(std::string_view open, std::string_view close, const Take& take_element) {
    expect(open);
    for (bool is_first = true; !take(close); is_first = false) {
      if (!is_first) {
        expect(", ");
      }
      take_element();
    }
  }
  void check(bool is_right, std::string_view expected) const {
    TORCH_CHECK_VALUE(is_right, "no graph: expected ", expected, " before \"", rest_, "\" in \"", line_, "\"");
  }

 private:
  const std::string_view line_;
  std::string_view rest_;
};

c10::ScalarType take_dtype(Cursor& cursor) {
  const std::string_view name = cursor.take_until("[");
  for (int i = 0; i < static_cast<int>(c10::ScalarType::NumOptions); ++i) {
    if (name == c10::toString(static_cast<c10::ScalarType>(i))) {
      return static_cast<c10::ScalarType>(i);
    }
  }
  cursor.check(false, "a dtype");
  return {};
}

c10::DimVector take_ints(Cursor& cursor) {
  c10::DimVector ints;
  cursor.take_list("[", "]", [&] { ints.push_back(cursor.take_int()); });
  return ints;
}

// As to_string(Geometry) prints it, or, if `moves` is to be told, to_string(View).
Geometry take_geometry(Cursor& cursor, bool* moves = nullptr) {
  Geometry geometry;
  geometry.dtype = take_dtype(cursor);
  geometry.sizes = take_ints(cursor);
  cursor.expect(" strides=");
  geometry.strides = take_ints(cursor);
  const bool is_input = moves && cursor.take(" at=");
  geometry.offset = is_input || cursor.take(" offset=") ? cursor.take_int() : 0;
  if (moves) {
    *moves = is_input;
  }
  geometry.conj = cursor.take(" conj");
  geometry.neg = cursor.take(" neg");
  geometry.wrapped_number = cursor.take(" number");
  return geometry;
}

c10::IValue number_of(std::string_view word, const Cursor& cursor) {
  int64_t integer = 0;
  if (const auto [end, error] = std::from_chars(word.begin(), word.end(), integer);
      error == std::errc() && end == word.end()) {
    return integer;
  }
  double real = 0;
  const auto [end, error] = std::from_chars(word.begin(), word.end(), real);
  cursor.check(error == std::errc() && end == word.end() && !word.empty(), "a constant");
  return real;
}

// A constant or a scalar, as c10::IValue prints it.
c10::IValue take_constant(Cursor& cursor) {
  if (cursor.sees("\"")) {
    return cursor.take_quoted();
  }
  if (cursor.sees("[")) {
    std::vector<c10::IValue> elements;
    cursor.take_list("[", "]", [&] { elements.push_back(take_constant(cursor)); });
    c10::impl::GenericList list(elements.empty() ? c10::TypePtr(c10::IntType::get()) : elements.front().type());
    for (c10::IValue& element : elements) {
      list.push_back(std::move(element));
    }
    return list;
  }
  const std::string_view word = cursor.take_until(",])");
  if (word == "None") {
    return {};
  }
  if (word == "True" || word == "False") {
    return word == "True";
  }
  return word == "cpu" ? c10::IValue(c10::Device(c10::kCPU)) : number_of(word, cursor);
}

class Parser {
 public:
  explicit Parser(c10::function_ref<const OpInfo&(const std::string&)> find_op) : find_op_(find_op) {}

  void read_line(std::string_view line) {
    Cursor cursor(line);
    if (cursor.take("return ")) {
      while (!cursor.at_end()) {
        graph_.add_root(take_value(cursor));
        cursor.take(", ");
      }
      return;
    }
    cursor.expect("%");
    const auto id = static_cast<NodeId>(cursor.take_int());
    cursor.expect(" = ");
    const std::string name(cursor.take_until("("));
    if (name == "device_data") {
      read_leaf(id, cursor);
    } else if (name == "empty") {
      cursor.expect("()");
      nodes_[id] = &graph_.add_empty(id, graph_.own(take_layouts(cursor).front()));
    } else {
      read_call(id, find_op_(name), cursor);
    }
  }

  Graph result() && {
    return std::move(graph_);
  }

 private:
  struct Call {
    c10::intrusive_ptr<Signature> signature = c10::make_intrusive<Signature>();
    std::vector<GraphOperand> operands;
    std::vector<size_t> arguments; // of the operands
    std::vector<uint32_t> scalars;
  };

  GraphValue take_value(Cursor& cursor) const {
    cursor.expect("%");
    const auto found = nodes_.find(static_cast<NodeId>(cursor.take_int()));
    cursor.check(found != nodes_.end(), "a value from above");
    const auto output = static_cast<uint32_t>(cursor.take(".") ? cursor.take_int() : 0);
    cursor.check(output < found->second->num_outputs(), "an output");
    return found->second->output(output);
  }

  static std::vector<Geometry> take_layouts(Cursor& cursor) {
    std::vector<Geometry> layouts;
    cursor.expect("  #");
    do {
      cursor.expect(" ");
      layouts.push_back(take_geometry(cursor));
    } while (cursor.take(";"));
    return layouts;
  }

  // Those that nobody needs are not printed.
  void read_leaf(NodeId id, Cursor& cursor) {
    cursor.expect("(");
    const auto index = static_cast<size_t>(cursor.take_int());
    cursor.expect(")");
    while (graph_.leaves().size() < index) {
      graph_.add_leaf(Value::kNone, graph_.own(Geometry::contiguous(at::kFloat, {})));
    }
    cursor.check(graph_.leaves().size() == index, "leaves in their order");
    nodes_[id] = &graph_.add_leaf(id, graph_.own(take_layouts(cursor).front()));
  }

  void read_call(NodeId id, const OpInfo& op, Cursor& cursor) {
    Call call;
    size_t argument = 0;
    cursor.take_list("(", ")", [&] {
      cursor.check(argument < op.num_args(), ")");
      read_argument(op.args()[argument].kind, argument, call, cursor);
      ++argument;
    });
    cursor.check(argument == op.num_args(), "more arguments");
    finish(op, call, take_layouts(cursor));
    nodes_[id] = &graph_.add_call(id, call.signature, call.operands, std::move(call.scalars), nullptr);
  }

  void read_argument(ArgKind kind, size_t argument, Call& call, Cursor& cursor) {
    ArgBinding binding;
    switch (kind) {
      case ArgKind::kTensor:
        binding.kind = ArgBinding::Kind::kOperand;
        add_operand(argument, call, cursor);
        break;
      case ArgKind::kTensorList:
        if (!cursor.sees("[")) { // None
          binding.constant = take_constant(cursor);
          break;
        }
        binding.kind = ArgBinding::Kind::kOperandList;
        cursor.take_list("[", "]", [&] {
          add_operand(argument, call, cursor);
          ++binding.count;
        });
        break;
      case ArgKind::kGenerator:
        if (cursor.take("seed=")) {
          binding.kind = ArgBinding::Kind::kGenerator;
          call.scalars.push_back(graph_.add_scalar(take_constant(cursor)));
        } else {
          binding.constant = take_constant(cursor);
        }
        break;
      case ArgKind::kScalar: {
        const bool is_constant = cursor.take("const ");
        binding.constant = take_constant(cursor);
        if (!is_constant && !binding.constant.isNone()) {
          binding.kind = ArgBinding::Kind::kScalar;
          call.scalars.push_back(graph_.add_scalar(binding.constant));
        }
        break;
      }
      default:
        binding.constant = take_constant(cursor);
    }
    call.signature->args.push_back(std::move(binding));
  }

  const View* take_view(GraphValue value, Cursor& cursor) {
    bool moves = false;
    Geometry view = take_geometry(cursor, &moves);
    if (!moves) {
      return graph_.own(std::move(view));
    }
    // Two views that begin at one element of a value are taken to move together.
    const auto [known, is_new] = offsets_.try_emplace({value.node->id(), value.output, view.offset}, 0);
    known->second = is_new ? graph_.add_scalar(view.offset) : known->second;
    return graph_.own(std::move(view), known->second);
  }

  void add_operand(size_t argument, Call& call, Cursor& cursor) {
    const auto index = static_cast<uint32_t>(call.operands.size());
    GraphOperand operand{{}, nullptr, index};
    if (cursor.take("same(")) {
      const auto same_as = static_cast<uint32_t>(cursor.take_int());
      cursor.expect(")");
      cursor.check(same_as < index, "an operand before this one");
      operand = call.operands[same_as];
    } else if (!cursor.take("None")) {
      operand.value = take_value(cursor);
      if (cursor.take("[")) {
        operand.view = take_view(operand.value, cursor);
        cursor.expect("]");
      }
      for (uint32_t i = 0; i < index && !operand.view; ++i) {
        const GraphOperand& other = call.operands[i];
        operand.same_as = !other.view && other.value == operand.value ? std::min(i, operand.same_as) : operand.same_as;
      }
    }
    call.operands.push_back(operand);
    call.arguments.push_back(argument);
    const Geometry* geometry = operand.view              ? operand.view
                               : operand.value.defined() ? &operand.value.layout()
                                                         : nullptr;
    call.signature->operands.push_back(geometry ? *geometry : Geometry());
  }

  // What the schema, and the number of results, say.
  static void finish(const OpInfo& op, Call& call, std::vector<Geometry> layouts) {
    Signature& signature = *call.signature;
    signature.op = &op;
    bool returns_list = false;
    size_t num_fresh = 0;
    for (size_t i = 0; i < op.num_returns(); ++i) {
      const int alias = op.return_aliases()[i];
      const bool is_list = op.handle().schema().returns()[i].type()->kind() == c10::TypeKind::ListType;
      returns_list |= alias < 0 && is_list;
      num_fresh += alias < 0 ? 1 : 0;
      signature.returns.push_back(
          alias >= 0 ? ReturnBinding{ReturnBinding::Kind::kArgument, static_cast<uint32_t>(alias)}
          : is_list  ? ReturnBinding{ReturnBinding::Kind::kFreshList, 0}
                     : ReturnBinding{});
    }
    size_t num_written = mark_written(op, call, /*hidden=*/false);
    if (!returns_list && num_fresh + num_written < layouts.size()) {
      num_written = mark_written(op, call, /*hidden=*/true);
    }
    TORCH_CHECK_VALUE(
        layouts.size() >= num_written && (returns_list || layouts.size() == num_fresh + num_written),
        "no graph: ",
        op.name(),
        " has another number of results");
    layouts.resize(layouts.size() - num_written);
    for (ReturnBinding& binding : signature.returns) {
      if (binding.kind == ReturnBinding::Kind::kFreshList) {
        binding.index = static_cast<uint32_t>(layouts.size() - (num_fresh - 1));
      }
    }
    signature.outputs = std::move(layouts);
    identify(signature);
  }

  // Returns how many distinct values the call writes.
  static size_t mark_written(const OpInfo& op, Call& call, bool hidden) {
    std::vector<GraphValue> values;
    std::vector<bool> written;
    for (size_t i = 0; i < call.operands.size(); ++i) {
      const GraphValue value = call.operands[i].value;
      written.push_back(value.defined() && op.writes_argument(call.arguments[i], hidden));
      if (written.back() && std::find(values.begin(), values.end(), value) == values.end()) {
        values.push_back(value);
      }
    }
    call.signature->written = values.empty() ? std::vector<bool>() : written;
    return values.size();
  }

  static void identify(Signature& signature) {
    std::ostringstream text;
    text << signature.op->name();
    for (const ArgBinding& arg : signature.args) {
      text << ' ' << static_cast<int>(arg.kind) << ' ' << arg.count;
      if (arg.kind == ArgBinding::Kind::kConstant) {
        text << ' ' << arg.constant;
      }
    }
    signature.identity = hash_bytes(text.str());
    for (const Geometry& operand : signature.operands) {
      signature.identity = hash_combine(signature.identity, operand);
    }
    finish_signature(signature);
    signature.key = signature.hash;
  }

  c10::function_ref<const OpInfo&(const std::string&)> find_op_;
  Graph graph_;
  std::unordered_map<NodeId, GraphNode*> nodes_;
  std::map<std::tuple<NodeId, uint32_t, int64_t>, uint32_t> offsets_; // of moving views of a value: their scalars
};

} // namespace

Graph parse_graph(std::string_view text, c10::function_ref<const OpInfo&(const std::string&)> find_op) {
  Parser parser(find_op);
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (!line.empty()) {
      parser.read_line(line);
    }
  }
  return std::move(parser).result();
}

} // namespace lazyplug
