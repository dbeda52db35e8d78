#include "lowering/ir/op_info.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "kernels/opcode.h"

namespace lazyplug {
namespace {

c10::TypePtr strip_optional(const c10::TypePtr& type) {
  if (auto optional = type->cast<c10::OptionalType>()) {
    return optional->getElementType();
  }
  return type;
}

ArgKind list_kind(const c10::TypePtr& type) {
  const auto element = strip_optional(type->expectRef<c10::ListType>().getElementType());
  return element->kind() == c10::TypeKind::TensorType   ? ArgKind::kTensorList
         : element->kind() == c10::TypeKind::NumberType ? ArgKind::kScalar
                                                        : ArgKind::kConstant;
}

bool is_named(const c10::Argument& argument, const std::vector<std::string>& names) {
  return std::find(names.begin(), names.end(), argument.name()) != names.end();
}

ArgKind classify(const c10::Argument& argument, const OpTraits& traits) {
  const auto type = strip_optional(argument.real_type());
  switch (type->kind()) {
    case c10::TypeKind::TensorType:
      return ArgKind::kTensor;
    case c10::TypeKind::ListType:
      if (list_kind(type) == ArgKind::kScalar && traits.scalars_are_constants) {
        return ArgKind::kConstant;
      }
      return is_named(argument, traits.int_inputs) ? ArgKind::kScalar : list_kind(type);
    case c10::TypeKind::NumberType:
    case c10::TypeKind::FloatType:
      return traits.scalars_are_constants ? ArgKind::kConstant : ArgKind::kScalar;
    case c10::TypeKind::GeneratorType:
      return ArgKind::kGenerator;
    case c10::TypeKind::DeviceObjType:
      return ArgKind::kDevice;
    default:
      return is_named(argument, traits.int_inputs) ? ArgKind::kScalar : ArgKind::kConstant;
  }
}

// Types of which a graph can hold constants, and the tracer compare them.
bool is_plain(const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::OptionalType:
    case c10::TypeKind::ListType:
      return std::all_of(type->containedTypes().begin(), type->containedTypes().end(), is_plain);
    case c10::TypeKind::TensorType:
    case c10::TypeKind::NumberType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::StringType:
    case c10::TypeKind::DeviceObjType:
    case c10::TypeKind::GeneratorType:
    case c10::TypeKind::LayoutType:
    case c10::TypeKind::ScalarTypeType:
    case c10::TypeKind::MemoryFormatType:
      return true;
    default:
      return false;
  }
}

bool is_tensor_or_tensors(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::ListType) {
    return list_kind(type) == ArgKind::kTensorList;
  }
  return type->kind() == c10::TypeKind::TensorType;
}

// "lazy::add" for "aten::add"
std::string calls_name(const std::string& base_name) {
  return "lazy" + base_name.substr(base_name.find("::"));
}

} // namespace

OpInfo::OpInfo(c10::OperatorHandle handle, const OpTraits& traits)
    : handle_(std::move(handle)),
      name_(c10::toString(handle_.operator_name())),
      base_name_(handle_.operator_name().name),
      overload_(handle_.operator_name().overload_name),
      symbol_(c10::Symbol::fromQualString(base_name_)),
      calls_(counter(calls_name(base_name_))) {
  is_aten_ = base_name().starts_with("aten::");
  is_foreach_ = base_name().starts_with("aten::_foreach_");
  const bool is_pointwise = is_aten_ && handle_.hasTag(at::Tag::pointwise);
  fusion_ = traits.fusion.value_or(is_pointwise ? FusionClass::kPointwise : FusionClass::kNone);
  infer_on_cpu_ = traits.infer_on_cpu;
  is_quick_ = traits.is_quick;
  shape_may_depend_on_data_ = handle_.hasTag(at::Tag::dynamic_output_shape);
  random_ = handle_.hasTag(at::Tag::nondeterministic_seeded);
  first_factor_ = find_first_factor();
  thread_use_ = find_thread_use();
  read_arguments(traits);
  read_returns();
  judge_traceability(traits);
}

int OpInfo::find_first_factor() const {
  static constexpr std::array kProducts =
      {"aten::mm", "aten::bmm", "aten::mv", "aten::dot", "aten::vdot", "aten::_cdist_forward", "aten::_euclidean_dist"};
  static constexpr std::array kSumsWithProducts =
      {"aten::addmm", "aten::_addmm_activation", "aten::addmv", "aten::baddbmm", "aten::addbmm"};
  const std::string_view name(base_name_.data(), base_name_.size() - (base_name_.ends_with('_') ? 1 : 0));
  const auto is_name = [&](const char* other) { return name == other; };
  if (std::any_of(kProducts.begin(), kProducts.end(), is_name)) {
    return 0;
  }
  return std::any_of(kSumsWithProducts.begin(), kSumsWithProducts.end(), is_name) ? 1 : -1;
}

// By names, or parts of them: found by comparing the bits that one and two threads give for small tensors.
ThreadUse OpInfo::find_thread_use() const {
  static constexpr std::array kLoops = {"aten::linalg_vector_norm", "lazyplug::lstm_cell", "lazyplug::gru_cell"};
  static constexpr std::array kMatrices = {
      "linalg",
      "svd",
      "cholesky",
      "::lu_",
      "_lu_with_info",
      "::qr",
      "geqrf",
      "orgqr",
      "ormqr",
      "_solve",
      "_spsolve",
      "inverse"};
  static constexpr std::array kNorms = {"batch_norm", "layer_norm", "softmax"};
  static constexpr std::array kLibraries = {
      "conv1d",
      "conv2d",
      "conv3d",
      "conv_",
      "convolution",
      "lstm",
      "gru",
      "rnn",
      "mkldnn",
      "multi_head_attention",
      "transformer_encoder"};
  static constexpr std::array kAttentions = {"attention"};
  static constexpr std::array kTransforms = {"_fft_"};
  const auto has_one = [&](const auto& parts) {
    return std::any_of(parts.begin(), parts.end(), [&](const char* part) {
      return name_.find(part) != std::string::npos;
    });
  };
  if (first_factor_ >= 0) {
    return ThreadUse::kProduct;
  }
  if (base_name_ == "aten::convolution" || base_name_ == "aten::convolution_backward") {
    return ThreadUse::kConvolution;
  }
  if (has_one(kLoops)) {
    return ThreadUse::kLoops;
  }
  return has_one(kLibraries)    ? ThreadUse::kOwn
         : has_one(kMatrices)   ? ThreadUse::kMatrices
         : has_one(kNorms)      ? ThreadUse::kNorm
         : has_one(kAttentions) ? ThreadUse::kAttention
         : has_one(kTransforms) ? ThreadUse::kTransform
                                : ThreadUse::kLoops;
}

c10::ArrayRef<double> OpInfo::decisive_values(const std::string& argument) const {
  static constexpr double kFactors[] = {1};
  static constexpr auto kExponents = [] {
    std::array<double, kernels::kPowers.size()> exponents{};
    for (size_t i = 0; i < exponents.size(); ++i) {
      exponents[i] = kernels::kPowers[i].exponent;
    }
    return exponents;
  }();
  if (argument == "alpha" && !is_foreach_) {
    return kFactors;
  }
  static constexpr double kOrders[] = {2};
  static constexpr double kCorrections[] = {0, 1};
  if (argument == "ord" && name_ == "aten::linalg_vector_norm") {
    return kOrders;
  }
  if (argument == "correction") {
    return kCorrections;
  }
  return argument == "exponent" && name_ == "aten::pow.Tensor_Scalar" ? c10::ArrayRef<double>(kExponents)
                                                                      : c10::ArrayRef<double>();
}

size_t ArgInfo::decision(const c10::IValue& number) const {
  if (decisive.empty() || !(number.isInt() || number.isDouble())) {
    return 0;
  }
  const double value = number.isInt() ? static_cast<double>(number.toInt()) : number.toDouble();
  const auto* found = std::find(decisive.begin(), decisive.end(), value);
  return found == decisive.end() ? 0 : found - decisive.begin() + 1;
}

void OpInfo::call(c10::Stack& stack) const {
  TORCH_CHECK(!is_retired_.load(), name_, " has been deregistered since this call of it was recorded");
  handle_.callBoxed(stack);
}

Counter& OpInfo::fallbacks() const {
  Counter* known = fallbacks_.load(std::memory_order_relaxed);
  if (!known) {
    known = &counter(base_name_);
    fallbacks_.store(known, std::memory_order_relaxed);
  }
  return *known;
}

void OpInfo::read_arguments(const OpTraits& traits) {
  for (const auto& argument : handle_.schema().arguments()) {
    const auto* alias = argument.alias_info();
    args_.push_back(
        {argument.name(),
         classify(argument, traits),
         alias && alias->isWrite(),
         argument.is_out(),
         decisive_values(argument.name())});
    writes_ |= args_.back().written;
  }
  for (const auto& name : traits.hidden_writes) {
    hidden_writes_.resize(args_.size());
    hidden_writes_[argument_index(name)] = true;
    writes_ = true;
  }
  if (!traits.hidden_writes_if.empty()) {
    hidden_writes_if_ = argument_index(traits.hidden_writes_if);
  }
  if (!traits.cpu_indices.empty()) {
    cpu_indices_ = argument_index(traits.cpu_indices);
  }
  if (!traits.size_argument.empty()) {
    size_argument_ = argument_index(traits.size_argument);
  }
}

int OpInfo::argument_index(const std::string& name) const {
  const auto index = handle_.schema().argumentIndexWithName(name);
  TORCH_INTERNAL_ASSERT(index, "no argument '", name, "' in ", handle_.schema());
  return *index;
}

void OpInfo::read_returns() {
  const auto& schema = handle_.schema();
  for (const auto& result : schema.returns()) {
    int alias = -1;
    for (size_t i = 0; result.alias_info() && i < args_.size(); ++i) {
      const auto* info = schema.arguments()[i].alias_info();
      if (info && info->beforeSets() == result.alias_info()->beforeSets()) {
        alias = static_cast<int>(i);
      }
    }
    return_aliases_.push_back(alias);
  }
}

void OpInfo::judge_traceability(const OpTraits& traits) {
  const auto& schema = handle_.schema();
  not_traceable_because_ = traits.not_traceable_because;
  if (schema.is_vararg() || schema.is_varret()) {
    not_traceable_because_ = "variadic schema";
  }
  if (schema.returns().empty() && !writes_) {
    not_traceable_because_ = "has no result";
  }
  for (const auto& argument : schema.arguments()) {
    if (!is_plain(argument.real_type())) {
      not_traceable_because_ = "argument of type " + argument.type()->str();
    }
  }
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    const auto& result = schema.returns()[i];
    if (!is_tensor_or_tensors(result.type())) {
      not_traceable_because_ = "returns " + result.type()->str();
    } else if (result.alias_info() && (return_aliases_[i] < 0 || !result.alias_info()->isWrite())) {
      not_traceable_because_ = "returns a view";
    }
  }
  depends_on_data_ =
      (shape_may_depend_on_data_ && !traits.shape_may_be_static) || handle_.hasTag(at::Tag::data_dependent_output);
  if (depends_on_data_) {
    not_traceable_because_ = "output depends on data";
  }
}

} // namespace lazyplug
