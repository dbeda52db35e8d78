#include "backend/execution/number_cache.h"

#include <cstring>

#include "backend/ops/float_numbers.h"
#include "common/config.h"
#include "common/metrics.h"
#include "device/cpu_allocator.h"
#include "lowering/calls/runtime_ops.h"

namespace lazyplug {

Number Number::of(const c10::TensorImpl& tensor, bool prefer_float) {
  Number number;
  number.wrapped = tensor.is_wrapped_number();
  const auto converted = prefer_float && number.wrapped ? as_float(tensor) : std::nullopt;
  number.dtype = converted ? c10::ScalarType::Float : c10::typeMetaToScalarType(tensor.dtype());
  std::memcpy(number.bits.data(), converted ? &*converted : tensor.data(), c10::elementSize(number.dtype));
  return number;
}

// Made once.
const LayoutPtr& Number::layout() const {
  using Layouts = std::array<std::array<LayoutPtr, 2>, c10::NumScalarTypes>;
  static const auto& layouts = *new Layouts([] {
    Layouts made;
    for (int dtype = 0; dtype < c10::NumScalarTypes; ++dtype) {
      Geometry layout = Geometry::contiguous(static_cast<c10::ScalarType>(dtype), {});
      made[dtype][false] = c10::make_intrusive<SharedLayout>(layout);
      layout.wrapped_number = true;
      made[dtype][true] = c10::make_intrusive<SharedLayout>(layout);
    }
    return made;
  }());
  return layouts[static_cast<size_t>(dtype)][wrapped];
}

at::Tensor Number::make_tensor() const {
  const Geometry& layout = this->layout()->geometry;
  c10::Storage memory(
      c10::Storage::use_byte_size_t(),
      static_cast<int64_t>(layout.itemsize()),
      plain_cpu_allocator(),
      /*resizable=*/true);
  std::memcpy(memory.mutable_data(), bits.data(), layout.itemsize());
  return make_cpu_tensor(std::move(memory), layout);
}

bool Number::is_in(const at::Tensor& tensor) const {
  return std::memcmp(bits.data(), tensor.const_data_ptr(), tensor.itemsize()) == 0;
}

at::Tensor NumberCache::find(const Number& number) {
  static Counter& hits = counter("DeviceDataCacheHit");
  static Counter& misses = counter("DeviceDataCacheMiss");
  if (config().device_data_cache_size.get() == 0) {
    return {};
  }
  auto leaf = leaves_.find(number);
  // A kernel may have written what its schema says it reads: that leaf is lost, but it is the last.
  if (!leaf || !number.is_in(*leaf)) {
    misses.add();
    return {};
  }
  hits.add();
  return *std::move(leaf);
}

void NumberCache::add(const Number& number, at::Tensor leaf) {
  const auto capacity = static_cast<size_t>(config().device_data_cache_size.get());
  if (capacity == 0) {
    return clear();
  }
  if (leaves_.capacity() != capacity) {
    leaves_.set_capacity(capacity);
  }
  leaves_.replace(number, std::move(leaf));
}

} // namespace lazyplug
