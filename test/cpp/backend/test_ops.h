// Ops of the tests' own, with Meta and CPU kernels, called as on any device.
#pragma once

#include <ATen/core/Tensor.h>

#include <exception>
#include <future>

namespace lazyplug::test_ops {

at::Tensor fail(const at::Tensor& self); // raises IndexError when it runs
at::Tensor& fail_(at::Tensor& self);
void raise_instead(std::exception_ptr error);  // what they raise from now on; null: IndexError again
at::Tensor same(const at::Tensor& self);       // returns its argument although its schema says it is new
at::Tensor transposed(const at::Tensor& self); // a copy, with other strides than its Meta kernel says
at::Tensor no_meta(const at::Tensor& self);    // a copy; has no Meta kernel
at::Tensor grad_mode(const at::Tensor& self);  // ones if gradients are on where it runs, else zeros
at::Tensor first_row(const at::Tensor& self);  // a view, which cannot be recorded
at::Tensor first(const at::Tensor& self, const at::Tensor& other); // a copy of its first argument
at::Tensor& grow_(at::Tensor& self);                               // makes it one row longer; has no Meta kernel

// A copy, made only after the gate is open.
at::Tensor wait(const at::Tensor& self);

// Closed when it is made. Tells when `wait` has arrived. One at a time.
class Gate {
 public:
  Gate();
  ~Gate();
  void await_arrival();
  void open();

 private:
  friend at::Tensor wait_cpu(const at::Tensor& self);
  std::promise<void> arrived_;
  std::promise<void> opened_;
  bool is_open_ = false;
};

} // namespace lazyplug::test_ops
