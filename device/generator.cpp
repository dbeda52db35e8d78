#include "device/generator.h"

#include "device/runtime.h"

#include <ATen/EmptyTensor.h>

#include <array>
#include <cstring>
#include <mutex>
#include <vector>

namespace lazyplug {
namespace {

// Layout of get_state(); the bytes are in the order of this machine.
struct SavedState {
  uint64_t seed;
  uint64_t offset;
};
static_assert(sizeof(SavedState) == 16);

// The splitmix64 finalizer (Steele, Lea and Flood 2014): a bijection in which every input bit flips half the output.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// Mixed twice, so that what neighbouring states give are no shifted copies of each other.
uint64_t mixed(SavedState state) {
  constexpr uint64_t kGoldenGamma = 0x9e3779b97f4a7c15ULL;
  return mix(mix(state.seed + kGoldenGamma) + (state.offset + 1) * kGoldenGamma);
}

std::vector<at::Generator> make_generators() {
  std::vector<at::Generator> generators;
  for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
    generators.push_back(at::make_generator<LazyGeneratorImpl>(device));
  }
  return generators;
}

} // namespace

LazyGeneratorImpl::LazyGeneratorImpl(c10::DeviceIndex device)
    : c10::GeneratorImpl(
          lazy_device(resolve_device_index(device)),
          c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

c10::DeviceType LazyGeneratorImpl::device_type() {
  return kLazyDevice;
}

void LazyGeneratorImpl::set_current_seed(uint64_t seed) {
  state_->seed = seed;
  state_->offset = 0;
}

uint64_t LazyGeneratorImpl::current_seed() const {
  return state_->seed;
}

uint64_t LazyGeneratorImpl::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return state_->seed;
}

void LazyGeneratorImpl::set_offset(uint64_t offset) {
  state_->offset = offset;
}

uint64_t LazyGeneratorImpl::get_offset() const {
  return state_->offset;
}

c10::intrusive_ptr<c10::TensorImpl> LazyGeneratorImpl::get_state() const {
  const SavedState state{state_->seed, state_->offset};
  at::TensorBase tensor = at::detail::empty_cpu({sizeof(state)}, at::kByte);
  std::memcpy(tensor.mutable_data_ptr(), &state, sizeof(state));
  return tensor.getIntrusivePtr();
}

void LazyGeneratorImpl::set_state(const c10::TensorImpl& new_state) {
  at::detail::check_rng_state(new_state);
  SavedState state{};
  TORCH_CHECK(
      new_state.numel() == sizeof(state),
      "the RNG state of a lazy device has ",
      sizeof(state),
      " bytes, but got ",
      new_state.numel());
  std::memcpy(&state, new_state.data(), sizeof(state));
  state_->seed = state.seed;
  state_->offset = state.offset;
}

c10::intrusive_ptr<c10::GeneratorImpl> LazyGeneratorImpl::graphsafe_get_state() const {
  auto sharing = c10::make_intrusive<LazyGeneratorImpl>(device().index());
  sharing->state_ = state_;
  return sharing;
}

void LazyGeneratorImpl::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& new_state) {
  const auto* other = dynamic_cast<const LazyGeneratorImpl*>(new_state.get());
  TORCH_CHECK(other != nullptr, "expected the generator of a lazy device, but got one for ", new_state->device());
  state_ = other->state_;
}

uint64_t LazyGeneratorImpl::next_seed() {
  return mixed({state_->seed, state_->offset++});
}

LazyGeneratorImpl* LazyGeneratorImpl::clone_impl() const {
  auto* clone = new LazyGeneratorImpl(device().index());
  clone->state_->seed = state_->seed.load();
  clone->state_->offset = state_->offset.load();
  return clone;
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  // Never destroyed: Python may hold them until after static destruction.
  static const auto& generators = *new std::vector<at::Generator>(make_generators());
  return generators[resolve_device_index(device)];
}

uint64_t next_seed(const std::optional<at::Generator>& generator, c10::DeviceIndex device) {
  auto* impl = at::get_generator_or_default<LazyGeneratorImpl>(generator, default_generator(device));
  std::lock_guard<std::mutex> lock(impl->mutex_);
  return impl->next_seed();
}

} // namespace lazyplug
