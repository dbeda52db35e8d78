// How many threads a kernel uses, for one calling thread.
#pragma once

namespace lazyplug {

// Sets the number of OpenMP's and MKL's threads for what the calling thread runs from now on. Unlike
// at::set_num_threads() it leaves threads alone that start later. Returns false, and does nothing, where kernels do
// not use OpenMP.
bool set_intra_op_threads(int num_threads);

// Gives the calling thread back what it had, however the scope ends, if use() has changed it.
class IntraOpThreadsScope {
 public:
  IntraOpThreadsScope();
  IntraOpThreadsScope(const IntraOpThreadsScope&) = delete;
  IntraOpThreadsScope& operator=(const IntraOpThreadsScope&) = delete;
  ~IntraOpThreadsScope() {
    use(before_);
  }

  // How many threads there were.
  int before() const {
    return before_;
  }
  void use(int num_threads) {
    if (num_threads != current_ && set_intra_op_threads(num_threads)) {
      current_ = num_threads;
    }
  }

 private:
  const int before_;
  int current_;
};

} // namespace lazyplug
