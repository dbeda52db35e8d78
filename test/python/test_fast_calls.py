"""Frequent ops skip autograd's kernel where it has nothing to do, once they are predicted; nobody can tell."""

import pytest
import torch
import torch.autograd.forward_ad as fwAD
from helpers import DEVICE, IS_SCHEDULED

import torch_lazyplug
from torch_lazyplug import ir_cache, metrics

REPETITIONS = 4  # the first ones are learned from


@pytest.fixture(autouse=True)
def fresh():
    torch_lazyplug.wait_device_ops()
    ir_cache.reset()
    metrics.reset()


def predicted() -> int:
    return metrics.counter_value("Predicted") or 0


def recorded() -> int:
    return metrics.counter_value("NodesRecorded") or 0


def repeat(step, device):
    """What the step returned the last time."""
    result = None
    for _ in range(REPETITIONS):
        result = step(torch.arange(1.0, 7.0, device=device).view(2, 3))
        torch_lazyplug.mark_step()
    return result


def as_on_cpu(step, factories=1):
    """The step's results; the last time, all its calls are predicted, but for those that make tensors of nothing."""
    expected = repeat(step, "cpu")
    for _ in range(REPETITIONS - 1):
        step(torch.arange(1.0, 7.0, device=DEVICE).view(2, 3))
        torch_lazyplug.mark_step()
    before = predicted() - recorded()
    actual = step(torch.arange(1.0, 7.0, device=DEVICE).view(2, 3))
    assert predicted() - recorded() - before == -factories or IS_SCHEDULED
    for a, b in zip(actual, expected, strict=True):
        if isinstance(b, torch.Tensor):
            assert torch.equal(a.cpu(), b)
            assert a.requires_grad == b.requires_grad
            assert (a.grad_fn is None) == (b.grad_fn is None)
            assert a._version == b._version
        else:
            assert a == b
    return actual


def test_new_tensors():
    as_on_cpu(lambda x: (x + x, x.relu() * 2))


WHOLE = {
    "add": lambda x: x + x,
    "sub": lambda x: x - x,
    "mul": lambda x: x * x,
    "div": lambda x: x / x,
    "add_": lambda x: x.add_(x.detach()),
    "mul_": lambda x: x.mul_(2),
    "div_": lambda x: x.div_(3),
    "addcmul_": lambda x: x.addcmul_(x, x),
    "addcdiv_": lambda x: x.addcdiv_(x, x),
    "lerp_": lambda x: x.lerp_(x, 0.25),
    "zero_": lambda x: x.zero_(),
    "neg": lambda x: -x,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "exp": torch.exp,
    "pow": lambda x: x**2,
    "relu": torch.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "silu": torch.nn.functional.silu,
    "threshold_backward": lambda x: torch.ops.aten.threshold_backward(x, x, 2),
    "tanh_backward": lambda x: torch.ops.aten.tanh_backward(x, x),
    "sigmoid_backward": lambda x: torch.ops.aten.sigmoid_backward(x, x),
    "silu_backward": lambda x: torch.ops.aten.silu_backward(x, x),
    "softmax": lambda x: torch.ops.aten._softmax(x, -1, False),
    "mm": lambda x: x @ x.t(),
    "bmm": lambda x: torch.bmm(x[None], x.t()[None]),
    "addmm": lambda x: torch.addmm(x[:, :2], x, x.t()),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("name", WHOLE)
def test_ops_stay_whole(name, dtype):
    """Each is one recorded call, which gives the CPU's bits, whether autograd is interested in it or not."""
    for requires_grad in (False, True) if not name.endswith("_") else (False,):
        x = torch.arange(1.0, 7.0, dtype=dtype).view(2, 3) / 4
        expected = WHOLE[name](x.clone().requires_grad_(requires_grad))
        for _ in range(REPETITIONS):
            lazy = x.to(DEVICE).requires_grad_(requires_grad)
            before = recorded()
            actual = WHOLE[name](lazy)
            assert recorded() - before == 1
            assert torch.equal(actual.detach().cpu(), expected.detach())


def test_in_place_ops_count_versions():
    def step(x):
        version = x._version
        x.add_(1).mul_(2)
        other = x * 2
        y = x.t()
        y.addcmul_(other.t(), other.t())
        return x, y, x._version - version, y._version - version

    actual = as_on_cpu(step)
    assert actual[2:] == (3, 3)


def test_gradients_are_recorded_in_the_midst_of_predicted_calls():
    def step(x):
        y = x + 1
        w = x.clone().requires_grad_()
        z = (w * y).relu()
        (grad,) = torch.autograd.grad(z.sum(), w)
        return y, w, z, grad

    as_on_cpu(step, factories=2)  # the gradient of a sum is one, too


def test_a_tensor_that_begins_to_require_gradients():
    x = torch.ones(3, device=DEVICE)
    for i in range(6):
        x.requires_grad_(i == 5)
        y = x * 2
        assert y.requires_grad == (i == 5)
        torch_lazyplug.mark_step()
    y.sum().backward()
    assert torch.equal(x.grad.cpu(), torch.full((3,), 2.0))


def test_leaves_are_protected_except_without_gradients():
    parameter = torch.ones(3, device=DEVICE, requires_grad=True)
    for _ in range(REPETITIONS):
        with torch.no_grad():
            parameter.add_(1)
        torch_lazyplug.mark_step()
    assert predicted() >= 1
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation"):
        parameter.add_(1)
    assert parameter._version == REPETITIONS
    assert torch.equal(parameter.detach().cpu(), torch.full((3,), 1.0 + REPETITIONS))


def test_saved_tensors_are_still_guarded():
    for _ in range(REPETITIONS):
        w = torch.ones(3, device=DEVICE, requires_grad=True)
        y = torch.full((3,), 2.0, device=DEVICE)
        z = w * y
        y.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()
        torch_lazyplug.mark_step()


def test_views_of_tensors_that_require_gradients():
    def step(x):
        w = x.clone().requires_grad_()
        y = w * 1
        row = y[0]
        row.mul_(3)
        y.sum().backward()
        return w.grad, row

    as_on_cpu(step, factories=2)


def test_tangents():
    def step(x):
        with fwAD.dual_level():
            plain = x * 2
            dual = fwAD.make_dual(x, x + 1) * 2
            return plain, fwAD.unpack_dual(plain).tangent, fwAD.unpack_dual(dual).tangent

    for _ in range(REPETITIONS):
        x = torch.arange(3.0)
        plain, none, tangent = step(x.to(DEVICE))
        assert none is None
        assert torch.equal(plain.cpu(), x * 2)
        assert torch.equal(tangent.cpu(), (x + 1) * 2)
        torch_lazyplug.mark_step()


def test_inference_tensors_are_not_written_outside_of_inference_mode():
    with torch.inference_mode():
        frozen = torch.ones(3, device=DEVICE)
    other = torch.ones(3, device=DEVICE)
    for _ in range(REPETITIONS):
        with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode"):
            frozen.add_(other)
        assert not (frozen + other).is_inference()
        torch_lazyplug.mark_step()


@pytest.mark.parametrize("make", [torch.conj, torch._neg_view], ids=["conj", "neg"])
def test_lazy_bits_are_resolved(make):
    for value in range(6):
        x = torch.tensor([1 + 2j, 3 - 1j])
        lazy = x.to(DEVICE)
        # As predicted the first times, the same call with a bit set the last time.
        a, b = (make(x), make(lazy)) if value == 5 else (x, lazy)
        assert torch.equal((b * b).cpu(), a * a)


def test_subclasses_and_modes_see_every_call():
    seen = []

    class Mode(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, op, types, args=(), kwargs=None):
            seen.append(op)
            return op(*args, **(kwargs or {}))

    x = torch.ones(3, device=DEVICE)
    for _ in range(REPETITIONS):
        y = x + x
        torch_lazyplug.mark_step()
    assert predicted() >= 1
    with Mode():
        y = x + x
    assert seen == [torch.ops.aten.add.Tensor]
    assert torch.equal(y.cpu(), torch.full((3,), 2.0))


def test_transforms():
    x = torch.arange(6.0).view(2, 3)
    lazy = x.to(DEVICE)

    def loss(x):
        return (x * x + x).sum()

    for _ in range(REPETITIONS):
        assert torch.equal(torch.func.grad(loss)(lazy).cpu(), torch.func.grad(loss)(x))
        assert torch.equal(torch.func.vmap(loss)(lazy).cpu(), torch.func.vmap(loss)(x))
        assert torch.equal((lazy * lazy + lazy).cpu(), x * x + x)
