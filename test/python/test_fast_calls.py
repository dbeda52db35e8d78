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


def as_on_cpu(step):
    """The step's results; the last time, all its calls are predicted."""
    expected = repeat(step, "cpu")
    for _ in range(REPETITIONS - 1):
        step(torch.arange(1.0, 7.0, device=DEVICE).view(2, 3))
        torch_lazyplug.mark_step()
    before = predicted() - recorded()
    actual = step(torch.arange(1.0, 7.0, device=DEVICE).view(2, 3))
    assert predicted() - recorded() == before or IS_SCHEDULED
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


def test_tensors_like_others():
    """They are made on a device, which is an argument as any other."""
    as_on_cpu(lambda x: (torch.ones_like(x), torch.zeros_like(x, dtype=torch.int64), torch.full_like(x, 2.5)))
    as_on_cpu(lambda x: (x.new_zeros(3), x.new_full((2, 2), 7)))


def test_given_tensors():
    """What `out=` names is written and returned, and counts the write."""

    def step(x):
        out, view, product = torch.zeros_like(x), x.new_zeros(2, 6)[:, ::2], x.new_zeros(2, 2)
        total, truths = torch.zeros(3, device=x.device), torch.zeros_like(x, dtype=torch.bool)
        assert torch.add(x, 1, out=out) is out
        torch.mul(x, x, out=out)
        torch.exp(x, out=view)
        torch.mm(x, x.t(), out=product)
        torch.sum(x, 0, out=total)
        torch.lt(x, 3, out=truths)
        return out, view, product, total, truths, torch.cat([x, out], out=x.new_zeros(4, 3))

    as_on_cpu(step)


def test_given_tensors_are_not_differentiated():
    x = torch.ones(2, 3, device=DEVICE, requires_grad=True)
    out = torch.zeros(2, 3, device=DEVICE)
    for _ in range(REPETITIONS):
        with torch.no_grad():
            torch.add(x, 1, out=out)
        with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
            torch.add(x, 1, out=out)
    assert torch.equal(out.cpu(), torch.full((2, 3), 2.0))
    assert out._version == REPETITIONS


def test_products_of_vectors():
    as_on_cpu(lambda x: (x[0] @ x[1], torch.vdot(x[0], x[1])))


def test_lists_of_indices():
    """With and without gaps; other indices, or none, are other calls."""

    def index(x):
        i, j = torch.tensor([1, 0], device=x.device), torch.tensor([2, 2], device=x.device)
        written = x.clone()
        written[i, j] = 7.0
        return x[i], x[:, j], x[i, j], x[None, i], x[i][:, None, j], written

    as_on_cpu(index)


def test_masks_of_results():
    """Which gradients are asked for is a list of bools."""

    def gradients(x, *wanted):
        x, weight, bias = (tensor.detach().requires_grad_() for tensor in (x, x[0], x[1]))
        y = torch.nn.functional.layer_norm(x, (3,), weight, bias)
        return torch.autograd.grad(y.square().sum(), [(x, weight, bias)[i] for i in wanted])

    for _ in range(REPETITIONS):
        for wanted in ((0, 1, 2), (0,), (1, 2), (0, 1, 2)):
            x = torch.arange(1.0, 7.0).view(2, 3).square()
            actual, expected = gradients(x.to(DEVICE), *wanted), gradients(x, *wanted)
            for a, b in zip(actual, expected, strict=True):
                torch.testing.assert_close(a.cpu(), b)


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
    "sub_": lambda x: x.sub_(2),
    "rsub": lambda x: 2 - x,
    "fill_": lambda x: x.fill_(2),
    "abs": torch.abs,
    "reciprocal": torch.reciprocal,
    "log": torch.log,
    "sin": torch.sin,
    "cos": torch.cos,
    "clamp": lambda x: x.clamp(0.5, 1),
    "clamp to one side": lambda x: x.clamp(max=1),
    "maximum": lambda x: torch.maximum(x, x[:1]),
    "minimum": lambda x: torch.minimum(x, x[:1]),
    "clone": lambda x: x.t().clone(memory_format=torch.contiguous_format),
    "eq": lambda x: x == 0.5,
    "eq of tensors": lambda x: x == x[:1],
    "ne": lambda x: x != 0.5,
    "lt": lambda x: x < 0.5,
    "lt of tensors": lambda x: x < x[:1],
    "le": lambda x: x <= 0.5,
    "le of tensors": lambda x: x <= x[:1],
    "gt": lambda x: x > 0.5,
    "gt of tensors": lambda x: x > x[:1],
    "ge": lambda x: x >= 0.5,
    "ge of tensors": lambda x: x >= x[:1],
    "gelu": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "gelu_backward": lambda x: torch.ops.aten.gelu_backward(x, x),
    "softmax_backward": lambda x: torch.ops.aten._softmax_backward_data(x, x, -1, x.dtype),
    "log_softmax": lambda x: torch.ops.aten._log_softmax(x, -1, False),
    "log_softmax_backward": lambda x: torch.ops.aten._log_softmax_backward_data(x, x, -1, x.dtype),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, (3,)),
    "mse_loss": lambda x: torch.nn.functional.mse_loss(x, x),
    "mse_loss_backward": lambda x: torch.ops.aten.mse_loss_backward(x, x, x, 0),
    "sum": torch.sum,
    "sum over a dimension": lambda x: x.sum(0, keepdim=True),
    "mean": torch.mean,
    "mean over dimensions": lambda x: x.mean((0, 1)),
    "max": torch.max,
    "max over a dimension": lambda x: x.max(1).values,
    "argmax": lambda x: x.argmax(1),
    "linalg_vector_norm": torch.linalg.vector_norm,
    "mv": lambda x: x @ x[0],
    "max_pool2d": lambda x: torch.nn.functional.max_pool2d(x[None], 2),
    "conv2d": lambda x: torch.nn.functional.conv2d(x[None, None], x[None, None, :1]),
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

    as_on_cpu(step)


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

    as_on_cpu(step)


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


OTHER_DTYPES = {
    "bitwise_and": lambda mask, index, x: mask & mask,
    "where": lambda mask, index, x: torch.where(mask, x, x[0]),
    "masked_fill": lambda mask, index, x: x.masked_fill(mask, 2),
    "gather": lambda mask, index, x: x.gather(1, index[None]),
    "index_select": lambda mask, index, x: x.index_select(0, index),
    "embedding": lambda mask, index, x: torch.nn.functional.embedding(index, x),
    "nll_loss": lambda mask, index, x: torch.nn.functional.nll_loss(x, index),
    "nll_loss, weighted": lambda mask, index, x: torch.nn.functional.nll_loss(x, index, x[0].detach()),
}


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", OTHER_DTYPES)
def test_ops_of_masks_and_indices_stay_whole(name, requires_grad):
    x = torch.arange(1.0, 7.0).view(2, 3) / 4
    mask, index = x > 0.5, torch.tensor([1, 0])
    expected = OTHER_DTYPES[name](mask, index, x.clone().requires_grad_(requires_grad))
    for _ in range(REPETITIONS):
        arguments = mask.to(DEVICE), index.to(DEVICE), x.to(DEVICE).requires_grad_(requires_grad)
        before = recorded()
        actual = OTHER_DTYPES[name](*arguments)
        assert recorded() - before == 1
        assert actual.requires_grad == expected.requires_grad
        assert torch.equal(actual.detach().cpu(), expected.detach())


def test_optional_tensors_are_differentiated():
    """Of a convolution whose bias alone asks for a gradient."""
    bias = torch.ones(2, device=DEVICE, requires_grad=True)
    image, weight = torch.ones(1, 1, 4, 4, device=DEVICE), torch.ones(2, 1, 3, 3, device=DEVICE)
    for _ in range(REPETITIONS):
        bias.grad = None
        result = torch.nn.functional.conv2d(image, weight, bias)
        result.sum().backward()
        assert torch.equal(bias.grad.cpu(), torch.tensor([4.0, 4.0]))


def test_other_constants_are_other_calls():
    """Lists, strings and absent arguments are compared with those of the call that is predicted."""

    def step(dims, approximate, low):
        y = torch.nn.functional.gelu(torch.arange(1.0, 7.0, device=device).view(2, 3), approximate=approximate)
        return y.sum(dims).clamp(low, 2).tolist()

    choices = [
        ((0,), "none", 0.5),
        ((1,), "none", 0.5),
        ((0, 1), "none", 0.5),
        ((0,), "tanh", 0.5),
        ((0,), "none", None),
    ]
    results = {}
    for device in ("cpu", DEVICE):
        results[device] = [step(*choice) for choice in choices for _ in range(2)]
    assert results[DEVICE] == results["cpu"]
