#include "backend/inference/result_layouts.h"

#include <ATen/ExpandUtils.h>
#include <ATen/TensorIterator.h>
#include <ATen/native/ConvUtils.h>
#include <c10/core/MemoryFormat.h>
#include <c10/util/strides.h>

#include <algorithm>

#include "lowering/calls/runtime_ops.h"

namespace lazyplug {
namespace layout_rules {
namespace {

c10::DimVector in_format(c10::IntArrayRef sizes, at::MemoryFormat format) {
  switch (format) {
    case at::MemoryFormat::ChannelsLast:
      return c10::DimVector(c10::get_channels_last_strides_2d(sizes));
    case at::MemoryFormat::ChannelsLast3d:
      return c10::DimVector(c10::get_channels_last_strides_3d(sizes));
    default:
      return c10::contiguous_strides(sizes);
  }
}

} // namespace

c10::DimVector as_promised(const Answered& call) {
  return c10::DimVector(call.result.strides());
}

c10::DimVector contiguous(const Answered& call) {
  return c10::contiguous_strides(call.result.sizes());
}

c10::DimVector iterated(const Answered& call) {
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false).check_all_same_dtype(false);
  config.declare_static_dtype_and_device(at::kFloat, at::kMeta);
  config.add_owned_output(at::Tensor());
  for (const at::Tensor& tensor : call.tensors) {
    if (tensor.is_meta()) {
      config.add_owned_const_input(tensor);
    } else if (tensor.defined()) { // numbers stay on the CPU; with one, not all have the same sizes
      config.add_owned_const_input(at::empty(tensor.sizes(), tensor.options().device(at::kMeta)));
    }
  }
  const at::Tensor output = config.build().output();
  return c10::DimVector(output.sizes() == call.result.sizes() ? output.strides() : call.result.strides());
}

LayoutRule like(size_t tensor) {
  return [tensor](const Answered& call) {
    const at::Tensor& model = call.tensors[tensor];
    if (call.result.dim() != model.dim()) {
      return c10::DimVector(call.result.strides()); // it has been reduced
    }
    const bool dense = model.is_non_overlapping_and_dense();
    return dense ? c10::DimVector(model.strides())
                 : c10::DimVector(at::infer_dense_strides(model.sizes(), model.strides()));
  };
}

LayoutRule in_format_of(size_t tensor) {
  return [tensor](const Answered& call) {
    return in_format(call.result.sizes(), call.tensors[tensor].suggest_memory_format());
  };
}

LayoutRule in_volume_format_of(size_t tensor, size_t without_batch) {
  return [tensor, without_batch](const Answered& call) {
    if (call.tensors[tensor].dim() != 4) {
      return in_format(call.result.sizes(), call.tensors[tensor].suggest_memory_format());
    }
    const at::Tensor batch = call.tensors[without_batch].unsqueeze(0);
    const bool last = !batch.is_contiguous() && batch.is_contiguous(at::MemoryFormat::ChannelsLast3d);
    auto strides = in_format(
        call.result.unsqueeze(0).sizes(),
        last ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::Contiguous);
    strides.erase(strides.begin());
    return strides;
  };
}

namespace {

// A CPU tensor that has no memory: for functions that look at geometries only.
at::Tensor hollow(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return tensor;
  }
  const Geometry geometry = Geometry::of(*tensor.unsafeGetTensorImpl());
  c10::DataPtr nothing(nullptr, c10::kCPU);
  c10::Storage storage(c10::Storage::use_byte_size_t(), geometry.extent_bytes(), std::move(nothing), nullptr, false);
  return make_cpu_tensor(std::move(storage), geometry);
}

c10::SymIntArrayRef numbers(const c10::IValue& list, std::vector<c10::SymInt>& memory) {
  for (const int64_t number : list.toIntVector()) {
    memory.emplace_back(number);
  }
  return memory;
}

// Convolutions in one dimension are computed in two.
at::Tensor in_two_dimensions(const at::Tensor& tensor) {
  return tensor.dim() == 3 ? tensor.unsqueeze(2) : tensor;
}

struct Library {
  at::native::ConvBackend backend;
  at::MemoryFormat format;
};

Library find_library(const at::Tensor& input, const at::Tensor& weight, const c10::IValue* arguments) {
  std::vector<c10::SymInt> stride;
  std::vector<c10::SymInt> padding;
  std::vector<c10::SymInt> dilation;
  std::vector<c10::SymInt> output_padding;
  const auto backend = at::native::select_conv_backend(
      input,
      weight,
      std::nullopt,
      numbers(arguments[0], stride),
      numbers(arguments[1], padding),
      numbers(arguments[2], dilation),
      arguments[3].toBool(),
      numbers(arguments[4], output_padding),
      arguments[5].toInt(),
      std::nullopt);
  const at::Tensor image = in_two_dimensions(input);
  return {backend, at::native::_determine_backend_memory_format(image, in_two_dimensions(weight), backend)};
}

// The library that computes the convolution. `input` is one of the call's
// tensors, followed by the weight; `stride` the first of its numbers.
Library library_of(const Answered& call, size_t input, size_t stride) {
  const at::Tensor& image = call.tensors[input];
  const at::Tensor weight = hollow(call.tensors[input + 1]);
  return find_library(hollow(image.dim() == 3 ? image.contiguous() : image), weight, &call.arguments[stride]);
}

// Of a result that was computed in two dimensions.
c10::DimVector back_in_one_dimension(c10::DimVector strides, const Answered& call) {
  if (call.result.dim() == 3) {
    strides.erase(strides.begin() + 2);
  }
  return strides;
}

} // namespace

LayoutRule convolved(size_t input, size_t stride) {
  return [input, stride](const Answered& call) {
    const Library library = library_of(call, input, stride);
    return back_in_one_dimension(in_format(in_two_dimensions(call.result).sizes(), library.format), call);
  };
}

// oneDNN converts the gradient. The others make it like the weight, which they
// convert; that does nothing to one that is in several formats at once.
LayoutRule convolved_weight(size_t input, size_t stride) {
  return [input, stride](const Answered& call) {
    using at::native::ConvBackend;
    const Library library = library_of(call, input, stride);
    const at::Tensor weight = in_two_dimensions(call.tensors[input + 1]);
    const bool converted = library.backend == ConvBackend::Mkldnn || library.backend == ConvBackend::MkldnnTranspose;
    const bool as_it_is = !converted && weight.is_contiguous(library.format);
    auto strides = as_it_is ? c10::DimVector(weight.strides()) : in_format(weight.sizes(), library.format);
    return back_in_one_dimension(std::move(strides), call);
  };
}

} // namespace layout_rules

namespace {

using Tensors = std::vector<at::Tensor>;

bool loops_over_several(const OpInfo& op, const Tensors& tensors) {
  const auto defined = [](const at::Tensor& tensor) { return tensor.defined(); };
  return op.handle().hasTag(at::Tag::pointwise) && std::count_if(tensors.begin(), tensors.end(), defined) > 1;
}

const std::vector<LayoutRule>& layouts_of(const OpInfo& op, const Tensors& tensors, bool knows_loops) {
  static const std::vector<LayoutRule> none;
  static const std::vector<LayoutRule> loop = {layout_rules::iterated};
  const auto* known = OpTable::get().layouts(op.handle().operator_name());
  return known ? *known : !knows_loops && loops_over_several(op, tensors) ? loop : none;
}

// Meta kernels may return what the call does not ask for: the second result, in attention.
bool is_left_out(const OpInfo& op, c10::ArrayRef<c10::IValue> arguments, size_t result) {
  const auto& schema = op.handle().schema();
  if (const auto mask = schema.argumentIndexWithName("output_mask")) {
    return !arguments[*mask].toBoolList().get(result);
  }
  const auto weights = schema.argumentIndexWithName("need_weights");
  return weights && result == 1 && !arguments[*weights].toBool();
}

} // namespace

void lay_out_as_cpu(
    const Call& call,
    const c10::Stack& stack,
    const Tensors& tensors,
    bool knows_loops,
    c10::Stack* results) {
  const auto& layouts = layouts_of(*call.op, tensors, knows_loops);
  const auto arguments = torch::jit::last(stack, call.op->num_args());
  for (size_t i = 0; i < results->size(); ++i) {
    c10::IValue& result = (*results)[i];
    if (is_left_out(*call.op, arguments, i)) {
      result = at::Tensor();
    } else if (
        i < layouts.size() && call.op->return_aliases()[i] < 0 && result.isTensor() && result.toTensor().defined()) {
      const at::Tensor meta = result.toTensor();
      meta.unsafeGetTensorImpl()->set_sizes_and_strides(meta.sizes(), layouts[i]({tensors, arguments, meta}));
    }
  }
}

} // namespace lazyplug
