"""`_foreach_` ops are one node each, neighbours one kernel, and what they compute is what the CPU computes."""

import re

import pytest
import torch
from helpers import AVAILABLE, DEVICE, PENDING, assert_same, both, copies, work
from torch.testing._internal.common_device_type import ops
from torch.testing._internal.common_methods_invocations import (
    foreach_binary_op_db,
    foreach_other_op_db,
    foreach_pointwise_op_db,
    foreach_reduce_op_db,
    foreach_unary_op_db,
)

import torch_lazyplug

OPS = [
    *foreach_unary_op_db,
    *foreach_binary_op_db,
    *foreach_pointwise_op_db,
    *foreach_reduce_op_db,
    *foreach_other_op_db,
]
assert ops
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.complex64)


def variants(op, dtype):
    if dtype in op.dtypes:
        functional = [(op.method_variant, False)] if op.supports_out else []
        yield from [*functional, *([(op.inplace_variant, True)] if op.inplace_variant else [])]


def to_device(value):
    if isinstance(value, torch.Tensor):
        return value.to(DEVICE)
    return [to_device(v) for v in value] if isinstance(value, (list, tuple)) else value


def without_signs_of_nan(tensors):
    """On the CPU, that of a rounded one depends on where it stands in memory."""
    if not isinstance(tensors, (list, tuple)) or not tensors[0].is_floating_point():
        return tensors
    return [torch.where(t.isnan(), torch.nan, t) if t.isnan().any() else t for t in tensors]


def call(fn, tensors, args, kwargs):
    try:
        return fn(tensors, *args, **kwargs), None
    except Exception as error:
        return None, error


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_every_op(op, dtype):
    """Of PyTorch's database, in place and not: results, what is written, versions and errors are the CPU's."""
    count = 0
    seen = without_signs_of_nan if dtype == torch.bfloat16 else lambda tensors: tensors
    for fn, in_place in variants(op, dtype):
        samples = op.sample_inputs("cpu", dtype, noncontiguous=False, allow_higher_dtype_scalars=True)
        for sample in [s for s, _ in zip(samples, range(60), strict=False)]:
            tensors = [t.detach().clone() for t in sample.input]
            args, kwargs = sample.args, {k: v for k, v in sample.kwargs.items() if k != "disable_fastpath"}
            lazy = [t.to(DEVICE) for t in tensors]
            lazy_args = [to_device(a) for a in args]
            versions = [t._version for t in lazy]
            expected, eager_error = call(fn, tensors, args, kwargs)
            actual, error = call(fn, lazy, lazy_args, {k: to_device(v) for k, v in kwargs.items()})
            assert type(error) is type(eager_error), (error, eager_error)
            if error is None:
                assert_same(seen(actual), seen(expected))
                bumps = [t._version - v for t, v in zip(lazy, versions, strict=True)]
                assert bumps == [t._version for t in tensors], "versions"
            assert_same(seen(lazy), seen(tensors), "written" if in_place else "read")
            count += 1
    assert count or dtype not in op.dtypes or not list(variants(op, dtype))


def parameters(device, n=5, layout=torch.contiguous_format, dtype=torch.float32):
    torch.manual_seed(0)
    shapes = [(3, 4), (7,), (), (2, 3, 4, 5), (33, 65)][:n]
    tensors = [torch.rand(shape) + 0.5 for shape in shapes]
    if layout == torch.channels_last:
        tensors = [t.to(memory_format=layout) if t.dim() == 4 else t for t in tensors]
    return [t.to(device, dtype) for t in tensors]


def adam_like(params, grads, moments, squares, step):
    torch._foreach_mul_(params, 1 - 1e-3)
    torch._foreach_lerp_(moments, grads, 0.1)
    torch._foreach_mul_(squares, 0.999)
    torch._foreach_addcmul_(squares, grads, grads, 0.001)
    denominators = torch._foreach_sqrt(squares)
    torch._foreach_div_(denominators, [(1 - 0.999**step) ** 0.5] * len(params))
    torch._foreach_add_(denominators, 1e-8)
    torch._foreach_addcdiv_(params, moments, denominators, [-1e-3 / (1 - 0.9**step)] * len(params))
    return denominators


@pytest.mark.own_schedule("counts graphs")
@pytest.mark.parametrize("layout", (torch.contiguous_format, torch.channels_last), ids=str)
@pytest.mark.parametrize("dtype", (torch.float32, torch.float16, torch.bfloat16), ids=str)
@pytest.mark.parametrize("keep", (False, True), ids=("temporary", "kept"))
def test_an_optimizers_step_is_one_kernel(layout, dtype, keep):
    """Eight calls on five tensors are eight nodes; the denominators have memory only if somebody keeps them."""
    results = {}
    for device in ("cpu", DEVICE):
        lists = [parameters(device, layout=layout, dtype=dtype) for _ in range(4)]
        with work() as done:
            for step in range(1, 5):
                kept = adam_like(*lists, step)
                if device == DEVICE:
                    torch_lazyplug.mark_step(wait=True)
        results[device] = [*lists, kept if keep else None]
    assert done.recorded == 4 * 8 and done.compiles <= 2 and not done.fallbacks
    assert_same(results[DEVICE][:4], results["cpu"][:4])
    if keep:
        assert_same(results[DEVICE][4], results["cpu"][4])


@pytest.mark.own_schedule("counts graphs")
def test_graphs_show_the_kernel():
    lists = [parameters(DEVICE) for _ in range(4)]
    torch_lazyplug.mark_step(wait=True)
    adam_like(*lists, 1)
    text = torch_lazyplug.debug.get_tensors_backend([lists[0][0]])
    assert text.count("lazyplug::tile_program") == 1 and not re.search(
        r"^ *(%.* = )?aten::_foreach", text, re.MULTILINE
    )
    assert '"aten::_foreach_addcdiv_.ScalarList"' in text, "what the group computes"


@pytest.mark.own_schedule("counts graphs")
def test_numbers_are_inputs():
    """A learning rate that changes compiles nothing."""
    params, grads = parameters(DEVICE), parameters(DEVICE)
    expected = parameters("cpu")
    with work() as done:
        for step in range(1, 20):
            torch._foreach_mul_(params, [0.5 + step / 50] * 5)
            torch._foreach_add_(params, grads, alpha=1 / step)
            torch_lazyplug.mark_step(wait=True)
            torch._foreach_mul_(expected, [0.5 + step / 50] * 5)
            torch._foreach_add_(expected, parameters("cpu"), alpha=1 / step)
    assert done.compiles == 1
    assert_same(params, expected)


@pytest.mark.parametrize("state", (AVAILABLE, PENDING))
def test_lists_that_share_memory(state):
    def share(x):
        rows = list(x.unbind())
        torch._foreach_add_(rows, rows[::-1])
        torch._foreach_mul_([x, x], [2.0, 3.0])
        torch._foreach_add_([rows[0], rows[0]], [rows[1], rows[1]], alpha=0.5)
        return rows

    both(share, torch.rand(4, 6), state=state)


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16), ids=str)
def test_copies_keep_the_bits_of_nan(dtype):
    bits = torch.tensor([0x7FC1, 0x7F81, 0x7E01, 0x7FFF, 1, 0], dtype=torch.int16)
    source = torch.cat([bits, bits | -(2**15)]).view(dtype)
    target = torch.zeros_like(source, device=DEVICE)
    torch._foreach_copy_([target], [source.to(DEVICE)])
    assert target.cpu().view(torch.int16).equal(source.view(torch.int16))


VIEWS_OF_WRITTEN = {
    "of another row": lambda a, b: torch._foreach_mul_([a, b], [a.detach(), a.detach()]),
    "crosswise": lambda a, b: torch._foreach_add_([a, b], [b[:], a[:]]),
    "as the third list": lambda a, b: torch._foreach_addcmul_([a, b], [b.detach(), b.detach()], [a[:], a[:]]),
    "copied": lambda a, b: torch._foreach_copy_([a, b], [b[:], a[:]]),
}


@pytest.mark.parametrize("state", (AVAILABLE, PENDING))
@pytest.mark.parametrize("call", VIEWS_OF_WRITTEN.values(), ids=VIEWS_OF_WRITTEN)
def test_views_of_what_is_written_are_read_row_by_row(call, state):
    def run(a, b):
        for _ in range(2):
            call(a, b)
        return a, b

    both(run, torch.rand(3), torch.rand(3), state=state)


def test_old_values_that_somebody_holds_are_copied():
    def hold(a, b):
        before = a.clone(), a.detach()
        kept = torch._foreach_mul([a, b], 2.0)
        torch._foreach_add_(kept, [a, b])
        copies_ = [t.clone() for t in kept]
        torch._foreach_sub_(kept, 1.0)
        torch._foreach_add_([a, b], kept)
        return *before, *kept, *copies_

    both(hold, torch.rand(3), torch.rand(2, 2))


def test_cpu_tensors_among_them():
    """As on other devices: the lists fall apart into ops on single tensors."""
    lazy, cpu = torch.ones(3, device=DEVICE), torch.ones(3)
    torch._foreach_add_([lazy, cpu], 1)
    assert lazy.device.type == DEVICE and cpu.tolist() == [2, 2, 2] and lazy.tolist() == [2, 2, 2]
    torch._foreach_copy_([lazy], [torch.arange(3.0)])
    assert lazy.tolist() == [0, 1, 2]


def test_gradients():
    def differentiate(a, b):
        a, b = a.requires_grad_(), b.requires_grad_()
        products = torch._foreach_mul([a, b], 3.0)
        roots = torch._foreach_sqrt(torch._foreach_add(products, [b, a], alpha=0.5))
        sum(r.sum() for r in roots).backward()
        return a.grad, b.grad

    both(differentiate, torch.rand(4) + 1, torch.rand(4) + 1)


def test_versions_in_inference_mode():
    tensors = copies([torch.ones(2), torch.ones(3)], DEVICE)
    before = [t._version for t in tensors]
    with torch.inference_mode():
        torch._foreach_add_(tensors, 1)
        fresh = torch._foreach_mul(tensors, 2.0)
        torch._foreach_add_(fresh, 1)
    assert [t._version - v for t, v in zip(tensors, before, strict=True)] == [1, 1]
    assert [t.tolist() for t in fresh] == [[5, 5], [5, 5, 5]]


def test_errors_of_numbers():
    tensors = parameters(DEVICE)
    with pytest.raises(RuntimeError, match="value cannot be converted to type float without overflow"):
        torch._foreach_add_(tensors, parameters(DEVICE), alpha=1e40)
    assert_same(tensors, parameters("cpu"))


def test_forced_fallback(forced):
    tensors = parameters(DEVICE)
    forced("aten::_foreach_add_")
    with work() as done:
        torch._foreach_add_(tensors, 1.0)
    assert done.fallbacks == 1 and tensors[0]._version == 1
    expected = parameters("cpu")
    torch._foreach_add_(expected, 1.0)
    assert_same(tensors, expected)


def test_inference_tensors_are_refused_elsewhere():
    with torch.inference_mode():
        x = torch.ones(3, device=DEVICE)
        torch._foreach_add_([x], 1)
    for write in (torch._foreach_zero_, lambda tensors: torch._foreach_add_(tensors, 1)):
        with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode"):
            write([torch.ones(3, device=DEVICE), x])
    assert x.tolist() == [2, 2, 2]
