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
    if (size != sizeof(T) || kept.count >= kept.most) {
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
  struct Kept {
    Block* first = nullptr;
    size_t count = 0;
    size_t most = kMost;

    // Objects may die after it, with the thread's others.
    ~Kept() {
      most = 0;
      while (first) {
        Block* block = first;
        first = block->next;
        ::operator delete(block);
      }
    }
  };
  static inline thread_local Kept kept_;
};

} // namespace lazyplug
