#pragma once

#include <cstddef>
#include <new>

namespace lazyplug {

// Memory for objects of one class, of which there are many that live shortly: a base of T. Each thread keeps some of
// what it frees. malloc keeps but a handful of a size at hand, and a program has hundreds of these alive.
//
// Sanitizers see every allocation.
template <typename T>
class Recycled {
 public:
  static void* operator new(size_t size) {
    Kept& kept = kept_;
    if (size != sizeof(T) || !kept.first) {
      return ::operator new(size);
    }
    Block* block = kept.first;
    kept.first = block->next;
    --kept.count;
    return block;
  }
  static void operator delete(void* memory, size_t size) {
    Kept& kept = kept_;
    if (size != sizeof(T) || (kept.count >= kept.most && !begin(kept))) {
      ::operator delete(memory);
      return;
    }
    kept.first = new (memory) Block{kept.first};
    ++kept.count;
  }

 private:
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  static constexpr size_t kMost = 0;
#else
  static constexpr size_t kMost = 4096;
#endif

  struct Block {
    Block* next;
  };
  // Has no destructor: objects may die after what empties it, with the thread's others, and still find it.
  struct Kept {
    Block* first;
    size_t count;
    size_t most;
    bool has_ended;
  };
  static inline thread_local Kept kept_{};

  struct Emptied {
    Emptied() = default;
    Emptied(const Emptied&) = delete;
    Emptied& operator=(const Emptied&) = delete;
    ~Emptied() {
      kept_.most = 0;
      kept_.has_ended = true;
      while (Block* block = kept_.first) {
        kept_.first = block->next;
        ::operator delete(block);
      }
    }
  };
  // The first time on a thread. Says whether there is room.
  static bool begin(Kept& kept) {
    if (kMost == 0 || kept.most != 0 || kept.has_ended) {
      return false;
    }
    static thread_local const Emptied emptied;
    kept.most = kMost;
    return true;
  }
};

} // namespace lazyplug
