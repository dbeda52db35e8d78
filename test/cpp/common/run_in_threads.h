#pragma once

#include <thread>
#include <vector>

namespace lazyplug {

// Calls work(0), ..., work(n - 1), each in a thread of its own, and waits for all of them.
template <typename Work>
void run_in_threads(int n, Work work) {
  std::vector<std::thread> threads;
  for (int i = 0; i < n; ++i) {
    threads.emplace_back(work, i);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

} // namespace lazyplug
