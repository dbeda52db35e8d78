"""Calls whose shapes only the CPU kernel knows: it does not run twice on what is large, nor on what no call sees."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers import DEVICE, assert_same, assert_same_error, both, error_of, finish_pending, work
from torch.library import _scoped_library
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_map_only

import torch_lazyplug
from torch_lazyplug import config

pytestmark = pytest.mark.lazy_only


def inferences():
    return torch_lazyplug.metrics.counter_value("ShapeInference") or 0


@pytest.fixture
def runs_of_qr():
    """Counts the runs of the CPU kernel, which NumPy stands in for."""
    runs = []

    def qr(x, mode="reduced"):
        runs.append(x.numel())
        return tuple(torch.from_numpy(part).mT.contiguous().mT for part in np.linalg.qr(x.numpy()))

    with _scoped_library("aten", "IMPL") as library:
        library.impl("linalg_qr", qr, "CPU")
        yield runs


@pytest.mark.smoke
@pytest.mark.own_schedule("looks at what is pending")
def test_a_large_call_runs_once_and_is_recorded_from_then_on(runs_of_qr):
    x = torch.rand(100, 101, device=DEVICE)
    expected = torch.linalg.qr(x.cpu())
    runs_of_qr.clear()
    with work() as done:
        first = torch.linalg.qr(x)
        assert len(runs_of_qr) == 1
        before = inferences()
        second = torch.linalg.qr(x)
        assert torch_lazyplug._C._lazy._is_pending(second[0])
        assert len(runs_of_qr) == 1 and inferences() == before
    assert done.fallbacks == 0
    for results in (first, second):
        for actual, part in zip(results, expected, strict=True):
            assert actual.stride() == part.stride()
            assert torch.equal(actual.cpu(), part)
    assert len(runs_of_qr) == 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_parameters_of_narrow_inputs(dtype):
    """What is float32, and what is as narrow as the input."""

    def weight_norm(device):
        torch.manual_seed(0)
        model = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(200, 200)).to(device, dtype)
        model(torch.randn(4, 200).to(device, dtype)).sum().backward()
        return [parameter.grad for parameter in model.parameters()]

    def batch_norm(device, training, weight=None):
        torch.manual_seed(0)
        x = torch.randn(3, 33, 317).to(device, dtype).requires_grad_()
        bias, mean, variance = (torch.rand(33).to(device) for _ in range(3))
        F.batch_norm(x, mean, variance, weight, bias.requires_grad_(), training).float().sum().backward()
        return x.grad, bias.grad

    for program in (weight_norm, lambda d: batch_norm(d, True), lambda d: batch_norm(d, False)):
        for actual, expected in zip(program(DEVICE), program("cpu"), strict=True):
            assert (actual.dtype, actual.stride()) == (expected.dtype, expected.stride())
            torch.testing.assert_close(actual.cpu(), expected)


@pytest.mark.own_schedule("looks at what is pending")
def test_a_small_view_of_large_memory_is_a_small_call(runs_of_qr):
    big = torch.rand(1 << 20, device=DEVICE)
    finish_pending()
    runs_of_qr.clear()
    q, _ = torch.linalg.qr(big[16:32].view(4, 4))
    assert torch_lazyplug._C._lazy._is_pending(q)
    assert runs_of_qr == [16]  # on zeros


LARGE = {
    "svd": lambda x: torch.linalg.svd(x),
    "svd_values": lambda x: torch.linalg.svd(x, full_matrices=False),
    "eigh": lambda x: torch.linalg.eigh(x @ x.mT),
    "solve": lambda x: torch.linalg.solve(x @ x.mT + torch.eye(100, dtype=x.dtype, device=x.device), x),
    "rfft": lambda x: torch.fft.rfft(x),
    "irfft": lambda x: torch.fft.irfft(x.to(torch.complex64)),
    "out": lambda x: torch.linalg.qr(x, out=(torch.empty(0, device=x.device), torch.empty(0, device=x.device))),
    "permutation": lambda x: torch.randperm(20000, device=x.device).sort().values,
}


@pytest.mark.parametrize("name", LARGE)
def test_large_calls_are_as_on_the_cpu(name):
    x = torch.rand(100, 101)
    for _ in range(3):
        both(LARGE[name], x)


BATCH_NORMS = {
    "no_training": lambda x, w, b, m, v: torch.ops.aten._native_batch_norm_legit_no_training(x, w, b, m, v, 0.1, 1e-5),
    "no_update": lambda x, w, b, m, v: torch.ops.aten._batch_norm_no_update(x, w, b, m, v, 0.1, 1e-5),
    "evaluated": lambda x, w, b, m, v: torch.ops.aten._native_batch_norm_legit(x, w, b, m, v, False, 0.1, 1e-5),
    "trained": lambda x, w, b, m, v: torch.ops.aten._native_batch_norm_legit(x, w, b, m, v, True, 0.1, 1e-5),
    "functional": lambda x, *r: torch.ops.aten._native_batch_norm_legit_functional(x, *r, False, 0.1, 1e-5),
    "trained functional": lambda x, *r: torch.ops.aten._native_batch_norm_legit_functional(x, *r, True, 0.1, 1e-5),
}


@pytest.mark.parametrize("size", [4, 64])
@pytest.mark.parametrize("name", BATCH_NORMS)
def test_batch_norms_return_the_statistics_that_the_cpu_returns(name, size):
    x, channels = torch.rand(2, 3, size, size), [torch.rand(3) for _ in range(4)]
    for _ in range(3):
        both(BATCH_NORMS[name], x, *channels)


@pytest.mark.parametrize(("width", "fallbacks"), [(4, 1), (128, 0)])
def test_a_kernel_that_resizes_what_it_writes(width, fallbacks):
    """The statistics of an observer have the size of the channels from its first call on, which falls back if it is
    small."""

    def quantize(x, low, high, scale, zero):
        on = torch.ones(1, dtype=torch.long, device=x.device)
        averaging, levels, by_channel = 0.01, (-128, 127), (0, True, False)
        statistics = low, high, scale, zero
        arguments = x, on, on, *statistics, averaging, *levels, *by_channel
        return *(torch.fused_moving_avg_obs_fake_quant(*arguments) for _ in range(3)), *statistics

    statistics = torch.empty(0), torch.empty(0), torch.ones(1), torch.zeros(1, dtype=torch.int32)
    both(quantize, torch.rand(width, width), *statistics, fallbacks=fallbacks)


def test_a_large_call_that_is_refused_raises_each_time():
    for _ in range(2):
        with pytest.raises(torch.linalg.LinAlgError, match="singular"):
            torch.linalg.solve(torch.zeros(100, 100, device=DEVICE), torch.zeros(100, device=DEVICE)).cpu()


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_losses_of_large_batches_are_recorded(reduction):
    x, y = torch.rand(64, 784), torch.rand(64, 784)
    # The CPU's loss keeps the buffer that it was reduced from.
    both(lambda x, y: F.binary_cross_entropy(x, y, reduction=reduction), x, y, nbytes=False)


# Not those that run on GPUs only, that take an argument on the CPU, or go beyond their storage on zeros.
UNUSUAL = "jiterator", "tensor_split", "as_strided_partial_views"
OPS = [op for op in op_db if torch.float32 in op.dtypes and not op.formatted_name.startswith(UNUSUAL)]


def fallbacks_of(op, sample, small_call):
    """Which ops run on the CPU if calls of so many elements are small: these ask the CPU's kernel for their shapes."""
    arguments = tree_map_only(torch.Tensor, lambda x: x.detach().to(DEVICE), (sample.input, sample.args, sample.kwargs))
    with config.changed({"small_call": small_call}), work() as done:
        op.op(arguments[0], *arguments[1], **arguments[2])
    return set(done.fallback_ops)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.formatted_name)
def test_large_calls_are_recorded_where_small_ones_are(op):
    """Meta kernels and shape rules know what the CPU's kernels know."""
    for sample in list(op.sample_inputs("cpu", torch.float32))[:4]:
        large = fallbacks_of(op, sample, small_call=0)
        assert large <= fallbacks_of(op, sample, small_call=config.get("small_call"))


# Their Meta kernels promote other dtypes than the CPU's kernels do: such calls are not recorded.
@pytest.mark.parametrize(
    ("call", "is_promised"),
    [
        (lambda x: F.soft_margin_loss(x.half(), x.sign()), False),
        (lambda x: F.soft_margin_loss(x, x.sign().double(), reduction="none"), False),
        (lambda x: F.soft_margin_loss(x, x.sign(), reduction="none"), True),
        (lambda x: torch.addr(x[0].double(), x[:200], x[:200]), False),
        (lambda x: torch.addr(x[:200].double(), x[:200], x[:200]), True),
    ],
)
def test_dtypes_are_those_of_the_cpu(call, is_promised):
    for _ in range(2):
        both(call, torch.linspace(-3, 3, 20_000), fallbacks=0 if is_promised else 1)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.multinomial(x.view(100, 100, 2), 1),
        lambda x: torch.multinomial(x, 0),
        lambda x: torch.multinomial(x, 20_001),
        lambda x: torch.multinomial(x.long(), 1),
        lambda x: torch.bucketize(x, x.view(-1, 2)),
        lambda x: F.max_pool1d(x.long()[None], 2),
        lambda x: F.max_pool1d(x.long()[None, :16], 2),
        lambda x: F.avg_pool3d(x.bfloat16().view(1, 1, 20, 20, 50), 2),
        lambda x: F.interpolate(x.half().view(1, 1, 100, 200), size=(50, 50), mode="bilinear", antialias=True),
        lambda x: torch.linalg.det(x[:10_000].half().view(100, 100)),
        lambda x: torch.linalg.eigvals(x[:10_000].half().view(100, 100)),
        lambda x: torch.full_like(x.byte(), 300),
        lambda x: torch.kthvalue(x, 20_001),
        lambda x: torch.searchsorted(x, x, side="middle"),
        lambda x: x.uniform_(3, -1),
        lambda x: x.random_(3, 1),
        lambda x: x.bernoulli_(2.0),
        lambda x: F.huber_loss(x, x + 1, delta=0.0),
        lambda x: F.smooth_l1_loss(x, x + 1, beta=-1.0),
        lambda x: F.gelu(x, approximate="roughly"),
        lambda x: x.view(100, 200).index_put_((x[:3].long(),), x[:1400].view(7, 200)),
        lambda x: x.view(100, 200).masked_scatter_(x[200:].view(99, 200) > 0, x),
        lambda x: x.put_(x[:3].long(), x[:4]),
        lambda x: x.view(100, 200).sort(3),
        lambda x: x.view(100, 200).flip(0, 0),
        lambda x: torch.searchsorted(x.view(100, 200), x[:15].view(3, 5)),
        lambda x: F.conv1d(x[None, None], x[:12].view(4, 1, 3), x[:3]),
        lambda x: F.unfold(x.view(1, 1, 100, 200), (105, 3)),
        lambda x: torch._foreach_mul_([x], [x[:-1]]),
        lambda x: torch._foreach_copy_([x], [x[:-1]]),
    ],
)
def test_arguments_are_checked_at_the_line(call):
    errors = []
    for device in ("cpu", DEVICE):
        x = torch.ones(20_000, device=device)
        with pytest.raises((RuntimeError, IndexError)) as error:
            call(x)
        errors.append((type(error.value), str(error.value)))
    assert errors[0] == errors[1]


def large(dtype, device, *, fill=1):
    return torch.full((100, 130), fill, dtype=dtype, device=device)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bool], ids=str)
@pytest.mark.parametrize(
    "promoted",
    [lambda x: x / 255.0, lambda x: x * 0.5, lambda x: 1.5 + x, lambda x: x // 2.5, lambda x: x * 1j],
    ids=["div", "mul", "add", "floor_divide", "complex"],
)
def test_python_numbers_promote_integers_as_the_meta_kernel_says(dtype, promoted):
    with work() as done:
        assert_same(promoted(large(dtype, DEVICE)), promoted(large(dtype, "cpu")))
    assert done.fallbacks == 0


# The CPU refuses them when they are called, whatever they are made of.
WRONG = {
    "more windows than fit": lambda d: F.unfold(large(torch.float, d)[None, None], 500),
    "windows too far apart": lambda d: F.unfold(large(torch.float, d)[None, None], 3, dilation=90),
    "negative padding": lambda d: F.unfold(large(torch.float, d)[None, None], 2, padding=-1),
    "no dilation": lambda d: F.unfold(large(torch.float, d)[None, None], 2, dilation=0),
    "values of other sizes": lambda d: large(torch.float, d).index_put((rows(d)[:5],), large(torch.float, d)),
    "indices of other sizes": lambda d: large(torch.float, d).index_put((rows(d)[:5], rows(d)[:4]), one(d)),
    "too many indices": lambda d: large(torch.float, d).index_put((rows(d),) * 3, one(d)),
    "sums of other sizes": lambda d: large(torch.float, d).index_put((rows(d)[:5],), one(d).expand(7), accumulate=True),
    "put": lambda d: large(torch.float, d).put(large(torch.long, d), large(torch.float, d)[:3]),
    "no such dimension": lambda d: torch.renorm(large(torch.float, d), 2, 5, 1.0),
    "bits of floats": lambda d: large(torch.float, d) & 1.5,
}


def rows(device):
    return torch.zeros(100, dtype=torch.long, device=device)


def one(device):
    return torch.ones((), device=device)


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_refused_at_its_line(wrong):
    assert_same_error(error_of(wrong, DEVICE), error_of(wrong, "cpu"))


# The first call is fine, and the second differs only in a number.
WRONG_NUMBERS = {
    "addcmul": (lambda x, n: torch.addcmul(x, x, x, value=n), torch.uint8, 0.0, -1.5),
    "masked_fill": (lambda x, n: x.masked_fill(x > 0, n), torch.uint8, 0.0, -1.5),
    "index_fill": (lambda x, n: x.index_fill(0, rows(x.device), n), torch.uint8, 0.0, -1.5),
    "scatter": (lambda x, n: x.scatter(0, x.long(), n), torch.uint8, 0.0, -1.5),
    "threshold": (lambda x, n: F.threshold(x, n, n), torch.uint8, 0.0, -1.5),
    "hardtanh": (lambda x, n: F.hardtanh(x, n, 3), torch.uint8, 0, -1),
    "pad": (lambda x, n: F.pad(x, (1, 1), value=n), torch.int8, 0.0, 300.5),
    "pad with nan": (lambda x, n: F.pad(x, (1, 1), value=n), torch.int32, 0.0, float("nan")),
    "new_full": (lambda x, n: x.new_full((9000,), n), torch.int8, 0.0, 300.5),
    "full_like": (lambda x, n: torch.full_like(x, n), torch.uint8, 0.0, -1.5),
    "assignment": (lambda x, n: x.__setitem__(slice(0, 90), n), torch.uint8, 0.0, -1.5),
    "floor_divide": (lambda x, n: x // n, torch.int64, 2, 0),
    "div": (lambda x, n: torch.div(x, n, rounding_mode="trunc"), torch.int64, 2, 0),
    "remainder": (lambda x, n: x % n, torch.int64, 2, 0),
}


@pytest.mark.parametrize("call, dtype, right, wrong", WRONG_NUMBERS.values(), ids=WRONG_NUMBERS)
def test_numbers_that_do_not_fit_are_refused_at_their_line(call, dtype, right, wrong):
    call(large(dtype, DEVICE), right)
    actual = error_of(lambda d: call(large(dtype, d), wrong), DEVICE)
    assert_same_error(actual, error_of(lambda d: call(large(dtype, d), wrong), "cpu"))
    call(large(dtype, DEVICE), right)


def test_that_nothing_was_computed_says_nothing_of_dtypes():
    """A product of no rows is made whatever the dtype is."""

    def product(device, rows):
        return torch.ones(rows, 390, dtype=torch.bool, device=device) @ torch.ones(390, 390, device=device).bool()

    assert product(DEVICE, 0).shape == (0, 390)
    for rows in (30, 40):
        assert_same_error(error_of(product, DEVICE, rows), error_of(product, "cpu", rows))
