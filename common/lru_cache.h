// The one bounded cache of the plugin: least recently used entries leave first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>

#include "common/fork_safe_mutex.h"

namespace lazyplug {

// Maps K to V, a handle that is cheap to copy, such as a shared_ptr. A Hash with `is_transparent` allows look-ups by
// any type that it accepts and that compares equal to K.
//
// Locking: every member takes the one mutex, under which V is only copied and moved: values that leave the cache are
// destroyed after the lock is released, so their destructors may use the cache.
template <typename K, typename V, typename Hash = std::hash<K>>
class LruCache {
 public:
  // The capacity is the number of entries kept, at least 1.
  explicit LruCache(size_t capacity) : capacity_(checked(capacity)) {}
  LruCache(const LruCache&) = delete;
  LruCache& operator=(const LruCache&) = delete;

  // Counts a hit or a miss; a hit makes the entry the most recent.
  template <typename Q = K>
  std::optional<V> find(const Q& key) {
    ForkSafeLock lock(mutex_);
    const auto found = entries_.find(key);
    if (found == entries_.end()) {
      ++misses_;
      return std::nullopt;
    }
    ++hits_;
    touch(found->second);
    return found->second.value;
  }

  // Adds the entry unless the key is already there, and returns the value that is now in the cache: when two threads
  // make the same value, the first one wins and both use it.
  V insert(const K& key, V value) {
    Evicted evicted;
    ForkSafeLock lock(mutex_);
    const auto [entry, is_new] = entries_.try_emplace(key);
    if (is_new) {
      add(entry, std::move(value));
      evicted = evict_excess();
    } else {
      touch(entry->second);
    }
    return entry->second.value;
  }

  // Adds the entry or replaces its value.
  void replace(const K& key, V value) {
    Evicted evicted;
    ForkSafeLock lock(mutex_);
    const auto [entry, is_new] = entries_.try_emplace(key);
    if (is_new) {
      add(entry, std::move(value));
      evicted = evict_excess();
    } else {
      touch(entry->second);
      // The old value leaves through the parameter, which outlives the lock.
      std::swap(entry->second.value, value);
    }
  }

  // Whether there was such an entry.
  bool erase(const K& key) {
    Evicted evicted;
    ForkSafeLock lock(mutex_);
    const auto found = entries_.find(key);
    if (found == entries_.end()) {
      return false;
    }
    evicted.push_back(remove(found));
    return true;
  }

  // Neither this nor erase() counts as eviction.
  void clear() {
    Entries removed;
    ForkSafeLock lock(mutex_);
    order_.clear();
    removed.swap(entries_);
  }

  void set_capacity(size_t capacity) {
    Evicted evicted;
    ForkSafeLock lock(mutex_);
    capacity_ = checked(capacity);
    evicted = evict_excess();
  }

  // The values of the `n` entries that were used last, the last one first. Counts as no use.
  std::vector<V> most_recent(size_t n) const {
    std::vector<V> values;
    ForkSafeLock lock(mutex_);
    for (auto key = order_.begin(); key != order_.end() && values.size() < n; ++key) {
      values.push_back(entries_.find(**key)->second.value);
    }
    return values;
  }

  size_t size() const {
    return read([this] { return entries_.size(); });
  }
  size_t capacity() const {
    return read([this] { return capacity_; });
  }
  int64_t hits() const {
    return read([this] { return hits_; });
  }
  int64_t misses() const {
    return read([this] { return misses_; });
  }
  int64_t evictions() const {
    return read([this] { return evictions_; });
  }

 private:
  // Keys from the most to the least recently used; they live in the map, whose nodes do not move.
  using Order = std::list<const K*>;

  struct Entry {
    V value{};
    typename Order::iterator place{};
  };

  using Entries = std::unordered_map<K, Entry, Hash, std::equal_to<>>;
  using Evicted = std::vector<typename Entries::node_type>;

  static size_t checked(size_t capacity) {
    TORCH_CHECK_VALUE(capacity > 0, "the capacity of a cache must be at least 1, got ", capacity);
    return capacity;
  }

  template <typename Read>
  auto read(Read get) const {
    ForkSafeLock lock(mutex_);
    return get();
  }

  void touch(Entry& entry) {
    order_.splice(order_.begin(), order_, entry.place);
  }

  void add(typename Entries::iterator entry, V value) {
    order_.push_front(&entry->first);
    entry->second = {std::move(value), order_.begin()};
  }

  typename Entries::node_type remove(typename Entries::iterator entry) {
    order_.erase(entry->second.place);
    return entries_.extract(entry);
  }

  Evicted evict_excess() {
    Evicted evicted;
    while (entries_.size() > capacity_) {
      evicted.push_back(remove(entries_.find(*order_.back())));
      ++evictions_;
    }
    return evicted;
  }

  mutable ForkSafeMutex mutex_;
  Entries entries_;
  Order order_;
  size_t capacity_;
  int64_t hits_ = 0;
  int64_t misses_ = 0;
  int64_t evictions_ = 0;
};

} // namespace lazyplug
