"""Calls whose shapes only the CPU kernel knows: it does not run twice on what is large, nor on what no call sees."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers import DEVICE, both, finish_pending, work
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
