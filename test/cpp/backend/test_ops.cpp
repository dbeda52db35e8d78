#include "test/cpp/backend/test_ops.h"

#include <ATen/ATen.h>
#include <torch/library.h>

namespace lazyplug::test_ops {
namespace {

Gate* gate = nullptr;
std::exception_ptr raised_instead;

at::Tensor meta(const at::Tensor& self) {
  return at::empty_like(self);
}

at::Tensor& meta_(at::Tensor& self) {
  return self;
}

at::Tensor fail_cpu(const at::Tensor& /*self*/) {
  if (raised_instead) {
    std::rethrow_exception(raised_instead);
  }
  TORCH_CHECK_INDEX(false, "failed on purpose");
}

at::Tensor& fail_cpu_(at::Tensor& self) {
  fail_cpu(self);
  return self;
}

at::Tensor same_cpu(const at::Tensor& self) {
  return self;
}

at::Tensor meta_of_first(const at::Tensor& self, const at::Tensor& /*other*/) {
  return at::empty_like(self);
}

at::Tensor first_cpu(const at::Tensor& self, const at::Tensor& /*other*/) {
  return self.clone();
}

at::Tensor transposed_cpu(const at::Tensor& self) {
  return self.t().contiguous().t();
}

at::Tensor copy_cpu(const at::Tensor& self) {
  return self.clone();
}

at::Tensor grad_mode_cpu(const at::Tensor& self) {
  return at::full_like(self, at::GradMode::is_enabled() ? 1 : 0);
}

at::Tensor first_row_cpu(const at::Tensor& self) {
  return self.select(0, 0);
}

at::Tensor& grow_cpu_(at::Tensor& self) {
  auto sizes = self.sizes().vec();
  ++sizes[0];
  self.resize_(sizes);
  self.select(0, -1).fill_(7);
  return self;
}

TORCH_LIBRARY(lazyplug_backend_test, m) {
  m.def("fail(Tensor self) -> Tensor");
  m.def("fail_(Tensor(a!) self) -> Tensor(a!)");
  m.def("same(Tensor self) -> Tensor");
  m.def("first(Tensor self, Tensor other) -> Tensor");
  m.def("transposed(Tensor self) -> Tensor");
  m.def("no_meta(Tensor self) -> Tensor");
  m.def("first_row(Tensor(a) self) -> Tensor(a)");
  m.def("grad_mode(Tensor self) -> Tensor");
  m.def("grow_(Tensor(a!) self) -> Tensor(a!)");
  m.def("wait(Tensor self) -> Tensor");
}

} // namespace

at::Tensor wait_cpu(const at::Tensor& self) {
  gate->arrived_.set_value();
  gate->opened_.get_future().wait();
  return self.clone();
}

namespace {

TORCH_LIBRARY_IMPL(lazyplug_backend_test, Meta, m) {
  m.impl("fail", meta);
  m.impl("fail_", meta_);
  m.impl("same", meta);
  m.impl("first", meta_of_first);
  m.impl("transposed", meta);
  m.impl("grad_mode", meta);
  m.impl("wait", meta);
}

TORCH_LIBRARY_IMPL(lazyplug_backend_test, CPU, m) {
  m.impl("fail", fail_cpu);
  m.impl("fail_", fail_cpu_);
  m.impl("same", same_cpu);
  m.impl("first", first_cpu);
  m.impl("transposed", transposed_cpu);
  m.impl("no_meta", copy_cpu);
  m.impl("first_row", first_row_cpu);
  m.impl("grad_mode", grad_mode_cpu);
  m.impl("grow_", grow_cpu_);
  m.impl("wait", wait_cpu);
}

template <typename Signature>
auto typed(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

using Functional = at::Tensor(const at::Tensor&);
using InPlace = at::Tensor&(at::Tensor&);

} // namespace

at::Tensor fail(const at::Tensor& self) {
  return typed<Functional>("lazyplug_backend_test::fail").call(self);
}

at::Tensor& fail_(at::Tensor& self) {
  return typed<InPlace>("lazyplug_backend_test::fail_").call(self);
}

at::Tensor same(const at::Tensor& self) {
  return typed<Functional>("lazyplug_backend_test::same").call(self);
}

at::Tensor grad_mode(const at::Tensor& self) {
  return typed<Functional>("lazyplug_backend_test::grad_mode").call(self);
}

at::Tensor first(const at::Tensor& self, const at::Tensor& other) {
  return typed<at::Tensor(const at::Tensor&, const at::Tensor&)>("lazyplug_backend_test::first").call(self, other);
}

at::Tensor transposed(const at::Tensor& self) {
  return typed<Functional>("lazyplug_backend_test::transposed").call(self);
}

at::Tensor no_meta(const at::Tensor& self) {
  return typed<Functional>("lazyplug_backend_test::no_meta").call(self);
}

at::Tensor first_row(const at::Tensor& self) {
  return typed<Functional>("lazyplug_backend_test::first_row").call(self);
}

at::Tensor& grow_(at::Tensor& self) {
  return typed<InPlace>("lazyplug_backend_test::grow_").call(self);
}

at::Tensor wait(const at::Tensor& self) {
  return typed<Functional>("lazyplug_backend_test::wait").call(self);
}

void raise_instead(std::exception_ptr error) {
  raised_instead = std::move(error);
}

Gate::Gate() {
  gate = this;
}

Gate::~Gate() {
  open();
}

void Gate::await_arrival() {
  arrived_.get_future().wait();
}

void Gate::open() {
  if (!is_open_) {
    is_open_ = true;
    opened_.set_value();
  }
}

} // namespace lazyplug::test_ops
