#include "device/memory_pool.h"

#include "common/running_op.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <random>
#include <set>
#include <thread>

namespace lazyplug {
namespace {

constexpr size_t kKiB = 1 << 10;
constexpr size_t kMebibyte = 1 << 20;

class MemoryPoolTest : public ::testing::Test {
 protected:
  // The addresses of a test are never given back, but its memory is.
  ~MemoryPoolTest() override {
    pool_.trim();
  }

  size_t in_use() const {
    return static_cast<size_t>(pool_.stats().allocated_bytes[0].current);
  }
  size_t reserved() const {
    return static_cast<size_t>(pool_.stats().reserved_bytes[0].current);
  }

  MemoryPool pool_{"a test", c10::Device(c10::kCPU), reserve_addresses(256 * kMebibyte)};
};

std::string message_of(const std::function<void()>& function) {
  try {
    function();
  } catch (const c10::OutOfMemoryError& error) {
    return error.what_without_backtrace();
  }
  return "";
}

TEST_F(MemoryPoolTest, MemoryIsAlignedAndWritable) {
  for (const size_t nbytes : {size_t{1}, size_t{100}, 5 * kKiB, 70 * kKiB, 3 * kMebibyte}) {
    void* block = pool_.allocate(nbytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % kBlockAlignment, 0);
    EXPECT_GE(pool_.block_size(block), nbytes);
    std::memset(block, 1, nbytes);
    pool_.deallocate(block);
  }
}

TEST_F(MemoryPoolTest, FreedBlocksAreHandedOutAgain) {
  for (const size_t nbytes : {size_t{100}, 100 * kKiB, 5 * kMebibyte}) {
    void* block = pool_.allocate(nbytes);
    pool_.deallocate(block);
    EXPECT_EQ(pool_.allocate(nbytes), block);
    pool_.deallocate(block);
  }
}

TEST_F(MemoryPoolTest, NeighbouringBlocksBecomeALargerOne) {
  std::vector<void*> blocks;
  for (int i = 0; i < 4; ++i) {
    blocks.push_back(pool_.allocate(kMebibyte));
  }
  for (void* block : blocks) {
    pool_.deallocate(block);
  }
  const size_t before = reserved();
  void* large = pool_.allocate(4 * kMebibyte);
  EXPECT_EQ(reserved(), before);
  pool_.deallocate(large);
}

TEST_F(MemoryPoolTest, LargeBlocksAreCutUp) {
  void* large = pool_.allocate(4 * kMebibyte);
  pool_.deallocate(large);
  const size_t before = reserved();
  void* small = pool_.allocate(kMebibyte);
  void* slab = pool_.allocate(100);
  EXPECT_EQ(reserved(), before);
  EXPECT_NE(small, slab);
  pool_.deallocate(small);
  pool_.deallocate(slab);
}

TEST_F(MemoryPoolTest, TrimReturnsWhatIsNotInUse) {
  void* kept = pool_.allocate(100);
  void* freed = pool_.allocate(100);
  void* large = pool_.allocate(4 * kMebibyte);
  std::memset(kept, 7, 100);
  pool_.deallocate(freed);
  pool_.deallocate(large);
  pool_.trim();
  EXPECT_EQ(reserved(), 64 * kKiB); // the slab that holds `kept`
  EXPECT_EQ(static_cast<char*>(kept)[99], 7);
  pool_.deallocate(kept);
  pool_.trim();
  EXPECT_EQ(reserved(), 0);
  EXPECT_EQ(pool_.idle_bytes(), 0);
}

TEST_F(MemoryPoolTest, ReleasedMemoryReadsAsZeros) {
  auto* block = static_cast<char*>(pool_.allocate(4 * kMebibyte));
  std::memset(block, 1, 4 * kMebibyte);
  pool_.deallocate(block);
  pool_.trim();
  auto* again = static_cast<char*>(pool_.allocate(4 * kMebibyte));
  EXPECT_LT(std::abs(again - block), static_cast<std::ptrdiff_t>(kGranule));
  EXPECT_EQ(again[kMebibyte], 0);
  pool_.deallocate(again);
}

TEST_F(MemoryPoolTest, CountsHowOftenItIsLeftEmpty) {
  void* small = pool_.allocate(10);
  void* large = pool_.allocate(kLargeBlock);
  pool_.deallocate(small);
  EXPECT_EQ(pool_.times_empty(), 0);
  pool_.deallocate(large);
  EXPECT_EQ(pool_.times_empty(), 1);
  pool_.deallocate(pool_.allocate(10));
  EXPECT_EQ(pool_.times_empty(), 2);
}

TEST_F(MemoryPoolTest, Figures) {
  void* small = pool_.allocate(100);
  void* large = pool_.allocate(2 * kMebibyte);
  pool_.deallocate(small);
  auto stats = pool_.stats();
  EXPECT_EQ(stats.allocated_bytes[0].current, 2 * kMebibyte);
  EXPECT_EQ(stats.allocated_bytes[0].peak, 2 * kMebibyte + 128);
  EXPECT_EQ(stats.allocated_bytes[1].freed, 128);
  EXPECT_EQ(stats.allocated_bytes[2].allocated, 2 * kMebibyte);
  EXPECT_EQ(stats.allocation[0].allocated, 2);
  EXPECT_EQ(stats.allocation[0].current, 1);
  EXPECT_EQ(stats.num_device_alloc, 2);
  pool_.deallocate(large);
  pool_.reset_peak_stats();
  pool_.reset_accumulated_stats();
  stats = pool_.stats();
  EXPECT_EQ(stats.allocated_bytes[0].peak, 0);
  EXPECT_EQ(stats.allocated_bytes[0].allocated, 0);
  EXPECT_EQ(stats.num_device_alloc, 0);
  EXPECT_EQ(stats.reserved_bytes[0].peak, stats.reserved_bytes[0].current);
}

TEST_F(MemoryPoolTest, TheLimitCountsWhatIsHeld) {
  const size_t limit = 2 * (4 * kMebibyte + kGranule); // each large block begins somewhere in a granule
  pool_.set_limit(limit);
  void* first = pool_.allocate(4 * kMebibyte);
  void* second = pool_.allocate(4 * kMebibyte);
  EXPECT_THROW(pool_.allocate(kMebibyte), c10::OutOfMemoryError);
  EXPECT_EQ(in_use(), 8 * kMebibyte);
  EXPECT_EQ(pool_.headroom(), 2 * kGranule);
  EXPECT_EQ(pool_.stats().num_ooms, 1);
  // What is idle makes room for sizes that it does not fit.
  pool_.deallocate(first);
  void* third = pool_.allocate(3 * kMebibyte);
  EXPECT_LE(reserved(), limit);
  pool_.deallocate(second);
  pool_.deallocate(third);
}

TEST_F(MemoryPoolTest, IdleSlabsMakeRoomForLargeBlocks) {
  pool_.set_limit(kMebibyte + kGranule);
  std::vector<void*> blocks;
  for (int i = 0; i < 16; ++i) {
    blocks.push_back(pool_.allocate(60 * kKiB));
  }
  for (void* block : blocks) {
    pool_.deallocate(block);
  }
  void* large = pool_.allocate(kMebibyte);
  EXPECT_EQ(reserved(), kMebibyte + kGranule);
  pool_.deallocate(large);
}

TEST_F(MemoryPoolTest, LargeBlocksOfOneSizeBeginAQuarterOfAPageApart) {
  std::set<uintptr_t> places;
  std::vector<void*> blocks;
  for (int i = 0; i < 4; ++i) {
    blocks.push_back(pool_.allocate(kMebibyte));
    std::memset(blocks.back(), 1, kMebibyte);
    places.insert(reinterpret_cast<uintptr_t>(blocks.back()) % 4096);
  }
  EXPECT_EQ(places, (std::set<uintptr_t>{0, 1024, 2048, 3072}));
  for (const LiveBlock& live : pool_.largest_live_blocks(blocks.size())) {
    EXPECT_EQ(std::count(blocks.begin(), blocks.end(), live.address), 1);
  }
  for (void* block : blocks) {
    pool_.deallocate(block);
  }
}

TEST_F(MemoryPoolTest, ALowerLimitTrims) {
  pool_.deallocate(pool_.allocate(8 * kMebibyte));
  pool_.set_limit(4 * kMebibyte);
  EXPECT_EQ(reserved(), 0);
  EXPECT_EQ(pool_.limit(), 4 * kMebibyte);
}

TEST_F(MemoryPoolTest, TheErrorNamesTheLargestBlocks) {
  pool_.set_limit(8 * kMebibyte);
  void* anonymous = pool_.allocate(kMebibyte);
  const RunningOp op("aten::mm");
  void* product = pool_.allocate(4 * kMebibyte);
  const std::string message = message_of([&] { pool_.allocate(16 * kMebibyte); });
  EXPECT_EQ(
      message,
      "LAZY out of memory. Tried to allocate 16.00 MiB on a test, which may hold 8.00 MiB and has 5.00 MiB in use. "
      "The largest live tensors: 4.00 MiB by aten::mm, 1.00 MiB.");
  pool_.deallocate(anonymous);
  pool_.deallocate(product);
}

TEST_F(MemoryPoolTest, MoreThanThereAreAddresses) {
  EXPECT_THROW(pool_.allocate(size_t{1} << 40), c10::OutOfMemoryError);
  EXPECT_THROW(pool_.allocate(~size_t{0}), c10::OutOfMemoryError);
}

TEST_F(MemoryPoolTest, LiveBlocksAreListedByTheirSize) {
  void* slab = pool_.allocate(100);
  void* medium = pool_.allocate(kMebibyte);
  void* large = pool_.allocate(2 * kMebibyte);
  void* freed = pool_.allocate(3 * kMebibyte);
  pool_.deallocate(freed);
  const auto blocks = pool_.largest_live_blocks(10);
  ASSERT_EQ(blocks.size(), 2);
  EXPECT_EQ(blocks[0].address, large);
  EXPECT_EQ(blocks[1].address, medium);
  EXPECT_EQ(pool_.largest_live_blocks(1).size(), 1);
  for (void* block : {slab, medium, large}) {
    pool_.deallocate(block);
  }
}

TEST_F(MemoryPoolTest, FreeingTwiceIsNoticed) {
  void* block = pool_.allocate(kMebibyte);
  pool_.deallocate(block);
  EXPECT_THROW(pool_.deallocate(block), c10::Error);
}

// What a thread does to its own blocks; each holds a pattern of its own, so that blocks which overlap are noticed.
class RandomUser {
 public:
  RandomUser(MemoryPool& pool, unsigned seed) : pool_(pool), random_(seed) {}

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      random_() % 5 < 3 ? allocate() : free_any();
    }
    while (!blocks_.empty()) {
      free_any();
    }
  }
  bool intact() const {
    return intact_;
  }

 private:
  struct Block {
    unsigned char* memory;
    size_t nbytes;
    unsigned char pattern;
  };

  void allocate() {
    // From single bytes to a MiB, evenly by magnitude.
    const size_t nbytes = (size_t{1} << random_() % 20) + random_() % 64;
    auto* memory = static_cast<unsigned char*>(pool_.allocate(nbytes));
    const auto pattern = static_cast<unsigned char>(random_());
    memory[0] = memory[nbytes / 2] = memory[nbytes - 1] = pattern;
    blocks_.push_back({memory, nbytes, pattern});
  }

  void free_any() {
    if (blocks_.empty()) {
      return;
    }
    std::swap(blocks_[random_() % blocks_.size()], blocks_.back());
    const Block block = blocks_.back();
    blocks_.pop_back();
    intact_ &= block.memory[0] == block.pattern && block.memory[block.nbytes / 2] == block.pattern &&
               block.memory[block.nbytes - 1] == block.pattern;
    pool_.deallocate(block.memory);
  }

  MemoryPool& pool_;
  std::mt19937 random_;
  std::vector<Block> blocks_;
  bool intact_ = true;
};

TEST_F(MemoryPoolTest, RandomUseOnSeveralThreads) {
  constexpr int kThreads = 4;
  std::vector<RandomUser> users;
  for (unsigned i = 0; i < kThreads; ++i) {
    users.emplace_back(pool_, i);
  }
  std::vector<std::thread> threads;
  for (RandomUser& user : users) {
    threads.emplace_back([&] { user.run(5000); });
  }
  std::atomic<bool> done = false;
  std::thread observer([&] {
    while (!done) {
      pool_.trim();
      pool_.stats();
      pool_.largest_live_blocks(3);
      std::this_thread::yield();
    }
  });
  for (std::thread& thread : threads) {
    thread.join();
  }
  done = true;
  observer.join();
  for (const RandomUser& user : users) {
    EXPECT_TRUE(user.intact());
  }
  EXPECT_EQ(in_use(), 0);
  pool_.trim();
  EXPECT_EQ(reserved(), 0);
}

TEST_F(MemoryPoolTest, BlocksAreFreedOnOtherThreads) {
  std::vector<void*> blocks;
  for (int i = 0; i < 100; ++i) {
    blocks.push_back(pool_.allocate(1000));
    static_cast<char*>(blocks.back())[0] = 1;
  }
  std::thread([&] {
    for (void* block : blocks) {
      pool_.deallocate(block);
    }
  }).join();
  EXPECT_EQ(in_use(), 0);
  EXPECT_EQ(pool_.allocate(1000), blocks.back());
  pool_.deallocate(blocks.back());
}

} // namespace
} // namespace lazyplug
