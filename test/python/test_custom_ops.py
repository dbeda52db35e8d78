"""Ops of other libraries: with and without a fake implementation, mutating, differentiable, registered by hand."""

import pytest
import torch
from composed import same_on_both
from helpers import DEVICE, IS_LAZY, work
from torch.library import Library, custom_op


@custom_op("lazyplug_test::opaque", mutates_args=())
def opaque(x: torch.Tensor, factor: float) -> torch.Tensor:
    return torch.from_numpy(x.detach().cpu().numpy() * factor).to(x.device)


@custom_op("lazyplug_test::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x.clone() * 2


doubled.register_fake(lambda x: torch.empty_like(x))
doubled.register_autograd(lambda ctx, grad: grad * 2)


@custom_op("lazyplug_test::add_into", mutates_args={"x"})
def add_into(x: torch.Tensor, y: torch.Tensor) -> None:
    x.add_(y)


@custom_op("lazyplug_test::several", mutates_args=())
def several(xs: list[torch.Tensor], n: int) -> tuple[torch.Tensor, torch.Tensor]:
    return xs[0] + n, xs[1].sum()


several.register_fake(lambda xs, n: (torch.empty_like(xs[0]), xs[1].new_empty(())))


@custom_op("lazyplug_test::positions", mutates_args=())
def positions(x: torch.Tensor) -> torch.Tensor:
    return x.nonzero()


@custom_op("lazyplug_test::total", mutates_args=())
def total(x: torch.Tensor) -> float:
    return float(x.sum())


@custom_op("lazyplug_test::raising", mutates_args=())
def raising(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("mine")


raising.register_fake(lambda x: torch.empty_like(x))

_library = Library("lazyplug_test", "FRAGMENT")
_library.define("for_cpu(Tensor x) -> Tensor")
_library.impl("for_cpu", lambda x: x.relu() * 3, "CPU")
_library.define("composed(Tensor x) -> Tensor")
_library.impl("composed", lambda x: x.sin() + 1, "CompositeImplicitAutograd")


def values(device):
    return torch.linspace(-2, 2, 6).reshape(2, 3).to(device)


def gradient(op):
    def call(device):
        x = values(device).requires_grad_()
        return torch.autograd.grad(op(x).sum(), x)

    return call


def write_a_row(device):
    x = values(device)
    add_into(x[0], torch.ones(3, device=device))
    return x, x._version


CALLS = {
    "opaque": lambda d: opaque(values(d), 3.0),
    "with_fake": lambda d: doubled(values(d)),
    "gradient": gradient(doubled),
    "mutation_of_a_view": write_a_row,
    "mutation_of_a_leaf": lambda d: add_into(values(d).requires_grad_(), values(d)),
    "several": lambda d: several([values(d), values(d)], 2),
    "size_depends_on_data": lambda d: positions(values(d)),
    "number": lambda d: total(values(d)),
    "error": lambda d: raising(values(d)).tolist(),
    "cpu_kernel": lambda d: torch.ops.lazyplug_test.for_cpu(values(d)),
    "composite": lambda d: torch.ops.lazyplug_test.composed(values(d)),
    "composite_gradient": gradient(lambda x: torch.ops.lazyplug_test.composed(x)),
    "composite_vmap": lambda d: torch.vmap(torch.ops.lazyplug_test.composed)(values(d)),
}


@pytest.mark.parametrize("name", CALLS)
def test_custom_op(name):
    same_on_both(CALLS[name])


@pytest.fixture
def no_fallback():
    if not IS_LAZY:
        pytest.skip("there is no fallback")
    import torch_lazyplug

    torch_lazyplug.config.set_fallback("error")
    yield
    torch_lazyplug.config.set_fallback("warn")


def test_cpu_kernels_can_be_forbidden(no_fallback):
    with pytest.raises(NotImplementedError, match="for_cpu"):
        torch.ops.lazyplug_test.for_cpu(values(DEVICE))


def test_composites_need_no_fallback(no_fallback):
    with work() as done:
        torch.ops.lazyplug_test.composed(values(DEVICE)).cpu()
    assert done.fallbacks == 0


_library.define("crop(Tensor x, float part) -> Tensor")
_library.impl("crop", lambda x, part: x[: int(len(x) * part)].clone(), "CPU")
_library.impl("crop", lambda x, part: x[: int(len(x) * part)].clone(), "Meta")
_library.define("scale(Tensor x, float factor, Scalar bias) -> Tensor")
_library.define("scale.int(Tensor x, int factor, Scalar bias) -> Tensor")
for overload in ("scale", "scale.int"):
    _library.impl(overload, lambda x, factor, bias: x * factor + bias, "CPU")
    _library.impl(overload, lambda x, factor, bias: torch.empty_like(x), "Meta")


def test_shapes_may_depend_on_numbers():
    x = torch.arange(8.0, device=DEVICE)
    with work() as done:
        for part in (0.5, 0.25, 1.0, 0.5, 0.25, 1.0):
            y = torch.ops.lazyplug_test.crop(x, part)
            assert y.tolist() == list(range(int(8 * part)))
    assert done.fallbacks == 0


_library.define("offset(Tensor x, float factor, Scalar bias) -> Tensor")
_library.impl("offset", lambda x, factor, bias: x * factor + bias, "CPU")
_library.impl("offset", lambda x, factor, bias: torch.add(x * factor, bias), "Meta")


def test_numbers_of_another_sign_are_other_numbers():
    x = torch.ones(2, device=DEVICE)
    for zero in (0.0, 0.0, 0.0, -0.0, 0.0, -0.0):  # in the end, the call is predicted
        expected = torch.tensor([zero, zero])
        assert torch.equal(torch.ops.lazyplug_test.offset(x, zero, -0.0).cpu().signbit(), expected.signbit())


_library.define("shift(Tensor x, Scalar bias) -> Tensor")
_library.impl("shift", lambda x, bias: x + bias, "CPU")
_library.impl("shift", lambda x, bias: x + bias, "Meta")


def test_numbers_of_another_type_are_other_numbers():
    x = torch.ones(2, dtype=torch.bool, device=DEVICE)
    for bias in (1, True, 1.0, 1, True, 1.0):
        shifted = torch.ops.lazyplug_test.shift(x, bias)
        assert shifted.dtype == torch.result_type(x, bias)
        assert torch.equal(shifted.cpu(), x.cpu() + bias)


@pytest.mark.lazy_only
def test_numbers_can_be_declared_inputs():
    import torch_lazyplug

    x = torch.ones(3, device=DEVICE)
    scale = torch.ops.lazyplug_test.scale
    assert scale(x, 1.5, 1).tolist() == [2.5] * 3  # until then they are constants
    torch_lazyplug.numbers_are_inputs("lazyplug_test::scale")
    assert scale(x, 2.5, 1).tolist() == [3.5] * 3
    assert scale(x, 2, 1).tolist() == [3] * 3
    with work() as done:
        for number in (3.5, 4.5, 5.5):
            assert scale(x, number, 2).tolist() == [number + 2] * 3
            assert scale(x, 2, int(number)).tolist() == [2 + int(number)] * 3
    assert done.compiles == 0 and done.fallbacks == 0
    with pytest.raises(ValueError, match="mylib::scale"):
        torch_lazyplug.numbers_are_inputs("scale")


_library.define("turned(Tensor x) -> Tensor")
_library.impl("turned", lambda x: x.t_().clone(), "CPU")  # it must not, but eager does not care
_library.impl("turned", lambda x: torch.empty(x.shape[::-1], device="meta"), "Meta")


def test_kernels_may_change_the_tensor_that_they_are_given():
    x = torch.arange(6.0, device=DEVICE).view(2, 3)
    for _ in range(3):
        assert (x + 0).tolist() == [[0, 1, 2], [3, 4, 5]]
        torch.ops.lazyplug_test.turned(x.clone() if DEVICE == "cpu" else x).tolist()
