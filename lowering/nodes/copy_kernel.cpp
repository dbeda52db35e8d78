#include "lowering/nodes/copy_kernel.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "lowering/calls/element_line.h"

namespace lazyplug {
namespace {

// More are copied as quickly by PyTorch's kernel, or by several threads.
constexpr int64_t kMostElements = 4'096;

using Dim = ElementLine;

// Whether elements that are written may have one place; `dims` are ordered, from the outermost. What stays there
// depends on the order in which PyTorch's kernel goes through them.
bool may_overlap(const std::vector<Dim>& dims, int64_t item) {
  int64_t extent = item;
  for (auto dim = dims.rbegin(); dim != dims.rend(); ++dim) {
    if (dim->to < extent) {
      return true;
    }
    extent += (dim->size - 1) * dim->to;
  }
  return false;
}

// Those of more than one element, from the outermost in the memory that is written, the fewest that will do. Nothing if
// the elements cannot be matched, or are not written to places of their own.
std::optional<std::vector<Dim>> common_dims(const Geometry& to, const Geometry& from) {
  const auto item = static_cast<int64_t>(c10::elementSize(to.dtype));
  const auto strides = from.strides_for(to.sizes);
  if (!strides) {
    return std::nullopt;
  }
  std::vector<Dim> dims;
  for (size_t i = 0; i < to.sizes.size(); ++i) {
    if (to.sizes[i] != 1) {
      dims.push_back({to.sizes[i], to.strides[i] * item, (*strides)[i] * item});
    }
  }
  std::stable_sort(dims.begin(), dims.end(), [](const Dim& a, const Dim& b) { return a.to > b.to; });
  if (may_overlap(dims, item)) {
    return std::nullopt;
  }
  std::vector<Dim> merged;
  for (const Dim& dim : dims) {
    Dim* const outer = merged.empty() ? nullptr : &merged.back();
    if (outer && outer->to == dim.size * dim.to && outer->from == dim.size * dim.from) {
      *outer = {outer->size * dim.size, dim.to, dim.from};
    } else {
      merged.push_back(dim);
    }
  }
  return merged;
}

class CopyKernel {
 public:
  CopyKernel(const OpInfo& op, const Geometry& to, const Geometry& from, std::vector<Dim> dims)
      : op_(op), to_(to), from_(from), dims_(std::move(dims)), item_(c10::elementSize(to.dtype)) {
    if (dims_.empty()) {
      dims_.push_back({1, 0, 0});
    }
  }

  void operator()(c10::Stack& stack) const {
    const auto self = stack.end() - static_cast<std::ptrdiff_t>(op_.num_args());
    const auto* to = self[0].unsafeToTensorImpl();
    const auto* from = self[1].unsafeToTensorImpl();
    if (!to_.matches_apart_from_offset(*to) || !from_.matches_apart_from_offset(*from)) {
      return op_.call(stack);
    }
    copy(0, static_cast<char*>(const_cast<void*>(to->data())), static_cast<const char*>(from->data()));
    torch::jit::drop(stack, op_.num_args() - 1);
  }

 private:
  void copy(size_t place, char* to, const char* from) const {
    const Dim& dim = dims_[place];
    if (place + 1 < dims_.size()) {
      for (int64_t i = 0; i < dim.size; ++i) {
        copy(place + 1, to + i * dim.to, from + i * dim.from);
      }
      return;
    }
    copy_line(dim, item_, to, from);
  }

  const OpInfo& op_;
  const Geometry& to_;
  const Geometry& from_;
  std::vector<Dim> dims_; // from the outermost
  const size_t item_;
};

} // namespace

std::function<void(c10::Stack&)>
copy_kernel(const torch::jit::Node& node, const OpInfo& op, TypeGeometries& geometries) {
  static const auto copy = c10::Symbol::fromQualString("aten::copy_");
  if (node.kind() != copy) {
    return nullptr;
  }
  const Geometry* to = geometries.find(*node.input(0)->type());
  const Geometry* from = geometries.find(*node.input(1)->type());
  if (!to || !from || to->dtype != from->dtype || to->numel() == 0 || to->numel() > kMostElements) {
    return nullptr;
  }
  auto dims = common_dims(*to, *from);
  return dims ? CopyKernel(op, *to, *from, std::move(*dims)) : std::function<void(c10::Stack&)>();
}

} // namespace lazyplug
