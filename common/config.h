// Every setting of the plugin, once: name, default, documentation, environment variable, getter and setter.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/fork_safe_mutex.h"

namespace lazyplug {

// What a flag is, apart from its type and value.
struct FlagInfo {
  std::string name;
  std::string doc;
  // Environment variables that set the initial value; the first one that is set and not empty wins.
  std::vector<std::string> env;
};

// The type-erased face of a flag, for Python and for reports.
class FlagBase {
 public:
  explicit FlagBase(FlagInfo info) : info_(std::move(info)) {}
  FlagBase(const FlagBase&) = delete;
  FlagBase& operator=(const FlagBase&) = delete;
  virtual ~FlagBase() = default;

  const std::string& name() const {
    return info_.name;
  }
  const std::string& doc() const {
    return info_.doc;
  }
  const std::vector<std::string>& env() const {
    return info_.env;
  }

  virtual std::string get_string() const = 0;

  // Is at least 1 and grows after every change. Who derives something from a value keeps the version it saw, and reads
  // the value again only when the version has moved.
  uint64_t version() const {
    return version_.load(std::memory_order_acquire);
  }

  // Raises ValueError, and leaves the flag as it was, if the text is no allowed value.
  void set_string(std::string_view text) {
    assign(text, name());
  }

 protected:
  // Takes the initial value from the environment; errors name the variable.
  void load_env();
  // `source` is what an error message calls the origin of the text.
  virtual void assign(std::string_view text, std::string_view source) = 0;
  void bump_version() {
    version_.fetch_add(1, std::memory_order_release);
  }

 private:
  const FlagInfo info_;
  std::atomic<uint64_t> version_{1};
};

// Returns what a value must be ("must be at least 1") if it is not that.
template <typename T>
using Validator = std::function<std::optional<std::string>(const T&)>;

// How a flag stores its value: scalars in a relaxed atomic, cheap enough for a hot path, strings under a mutex.
template <typename T>
class FlagStorage {
 public:
  explicit FlagStorage(T value) : value_(value) {}

  T load() const {
    return value_.load(std::memory_order_relaxed);
  }
  void store(T value) {
    value_.store(value, std::memory_order_relaxed);
  }

 private:
  std::atomic<T> value_;
};

template <>
class FlagStorage<std::string> {
 public:
  explicit FlagStorage(std::string value) : value_(std::move(value)) {}

  std::string load() const {
    ForkSafeLock lock(mutex_);
    return value_;
  }
  void store(std::string value) {
    ForkSafeLock lock(mutex_);
    value_ = std::move(value);
  }

 private:
  mutable ForkSafeMutex mutex_;
  std::string value_;
};

// A setting of type bool, int64_t or std::string. All members are thread-safe.
template <typename T>
class Flag final : public FlagBase {
 public:
  Flag(FlagInfo info, T default_value, Validator<T> validator = {});

  T get() const {
    return storage_.load();
  }

  // Raises ValueError, and leaves the flag as it was, if the validator refuses the value.
  void set(T value) {
    store(std::move(value), name());
  }

  std::string get_string() const override;

 private:
  void assign(std::string_view text, std::string_view source) override;
  void store(T value, std::string_view source);

  const Validator<T> validator_;
  FlagStorage<T> storage_;
};

struct Config {
  // Reads the environment; raises ValueError naming the variable whose value is not allowed.
  Config();

  Flag<int64_t> device_count;
  Flag<int64_t> cache_size;
  Flag<int64_t> signature_cache_size;
  Flag<int64_t> device_data_cache_size;
  Flag<std::string> force_fallback;
  Flag<std::string> fallback;
  Flag<bool> debug;
  Flag<bool> verify_ir;
  Flag<bool> verify_torchscript;
  Flag<std::string> disabled_passes;
  Flag<int64_t> fusion;
  Flag<int64_t> assemble_after;
  Flag<int64_t> side_calls;
  Flag<bool> perf_map;
  Flag<std::string> dump_dir;
  Flag<bool> launch_blocking;
  Flag<std::string> sync_debug;
  Flag<bool> reuse_ir;
  Flag<bool> backward_pass;
  Flag<int64_t> small_call;
  Flag<bool> symbolic_shape_mode;
  Flag<int64_t> max_size_variants;
  Flag<int64_t> max_unused_graphs;
  Flag<std::string> run_at_once;
  Flag<std::string> compile;
  Flag<int64_t> min_cut_nodes;
  Flag<int64_t> max_pending_nodes;
  Flag<std::string> overlap;
  Flag<int64_t> chunk_nodes;
  Flag<int64_t> max_pending_bytes;
  Flag<int64_t> closure_exit_timeout;
  Flag<bool> memory_cache;
  Flag<std::string> schedule;
  Flag<int64_t> scramble;
  Flag<std::string> log_level;

  // Every flag above, in that order.
  std::vector<FlagBase*> flags();

  // Raises ValueError if no flag has that name.
  FlagBase& flag(std::string_view name);
};

// The process-wide configuration, read from the environment at the first call and never destroyed, so that threads
// may read it during exit. If the environment is invalid, every call raises until it is mended.
inline Config& config() {
  static Config& instance = *new Config();
  return instance;
}

} // namespace lazyplug
