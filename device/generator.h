// The device's random number generator: a (seed, offset) pair on the host, as CUDA's Philox is seen from outside.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

namespace lazyplug {

// Random operations take a seed of their own each; nothing else moves the offset. So neither reading nor writing the
// state has anything to wait for.
//
// Locking: as PyTorch demands of generators, whoever changes the state or takes a seed holds mutex_; the members
// do not lock it themselves. Reading the seed or the offset alone needs no lock, except against graphsafe_set_state.
class LazyGeneratorImpl final : public c10::GeneratorImpl {
 public:
  explicit LazyGeneratorImpl(c10::DeviceIndex device);

  static c10::DeviceType device_type();

  // Also sets the offset to 0.
  void set_current_seed(uint64_t seed) override;
  uint64_t current_seed() const override;
  // Seeds from the system's entropy and returns the seed.
  uint64_t seed() override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;

  // A CPU tensor of 16 bytes: the seed, then the offset.
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  void set_state(const c10::TensorImpl& new_state) override;

  // A generator that shares its state with this one, whichever of the two is used; and the other way round, sharing
  // the state of a generator from now on. torch.compile keeps the numbers of checkpointed regions apart in this way.
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& new_state) override;

  // The seed of the next random operation, well mixed; advances the offset by one.
  uint64_t next_seed();

 private:
  struct State {
    std::atomic<uint64_t> seed{c10::default_rng_seed_val};
    std::atomic<uint64_t> offset{0};
  };

  LazyGeneratorImpl* clone_impl() const override;

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// The generator that operations use when they are given none; -1 means the current device.
const at::Generator& default_generator(c10::DeviceIndex device);

// A well-mixed seed for one random operation on the device, different for each call, and determined by the state of the
// generator: the given one, or the device's default. Raises if the generator is not one of ours. Thread-safe.
uint64_t next_seed(const std::optional<at::Generator>& generator, c10::DeviceIndex device);

} // namespace lazyplug
