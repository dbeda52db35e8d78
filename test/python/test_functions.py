"""By default, functions such as exp are our own: the same bits wherever they run, and nearly the CPU's."""

import copy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from helpers import DEVICE, finish_everything, work

from torch_lazyplug import config, ir_cache, metrics

pytestmark = [pytest.mark.lazy_only, pytest.mark.own_schedule("sets schedules")]

FUNCTIONS = {
    "exp": torch.exp,
    "expm1": torch.expm1,
    "sqrt": lambda x: x.abs().sqrt(),
    "log": lambda x: x.abs().log(),
    "log1p": lambda x: x.abs().log1p(),
    "sin": torch.sin,
    "cos": torch.cos,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "softplus": lambda x: F.softplus(x, 2, 3),
}

ROWS = {
    "softmax": lambda x: F.softmax(x, -1),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:], x.detach()[0] + 1, x.detach()[1]),
    "logsumexp": lambda x: x - x.logsumexp(-1, keepdim=True),
    "var": lambda x: x - x.var(-1, keepdim=True),
    "std": lambda x: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6),
    "std of a population": lambda x: x.std(-1, unbiased=False)[:, None].expand_as(x) + 1,
    "logsumexp without its dimension": lambda x: x.logsumexp(-1)[:, None].expand_as(x) + 1,
    "layer_norm of itself": lambda x: F.layer_norm(x, x.shape[-1:]),
}
ALL = FUNCTIONS | ROWS


# Of which PyTorch's are faster without AVX-512.
NOT_ALWAYS = {"sin", "cos"}


# Which PyTorch computes as quickly of 16-bit floats; of bfloat16 alone.
NOT_NARROW = {"sqrt", "sin", "cos"}
NOT_BFLOAT16 = {"gelu"}
NARROW = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}  # half a unit of the last place


# MKL's are faster.
NOT_ON_INTEL = {"sin", "cos"}
IS_INTEL = "GenuineIntel" in Path("/proc/cpuinfo").read_text(encoding="utf-8")


def are_ours(name, dtype=torch.float32):
    if IS_INTEL and name in NOT_ON_INTEL:
        return False
    if (dtype != torch.float32 and name in NOT_NARROW) or (dtype == torch.bfloat16 and name in NOT_BFLOAT16):
        return False
    return torch.backends.cpu.get_cpu_capability() == "AVX512" or name not in NOT_ALWAYS


needs_vectors = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"), reason="there are no functions of our own"
)


@pytest.fixture(autouse=True)
def functions():
    finish_everything()
    ir_cache.reset()
    metrics.reset()
    with config.changed({"fusion": 3}):
        yield
        finish_everything()
    ir_cache.reset()


def numbers(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)) * 3


def bits(tensor):
    return tensor.detach().cpu().contiguous().view(torch.uint8)


def value_and_gradient(function, x):
    x = x.clone().requires_grad_()
    y = function(x)
    (gradient,) = torch.autograd.grad(y, x, torch.ones_like(y) * 1.5)
    return y.detach(), gradient


@pytest.mark.parametrize("name", ALL)
def test_values_and_gradients(name):
    x = numbers(7, 133)
    with work() as done:
        actual = value_and_gradient(ALL[name], x.to(DEVICE))
        finish_everything()
    assert done.fallbacks == 0
    assert not are_ours(name) or metrics.counter_value("FusedNodes") > 0
    expected = value_and_gradient(ALL[name], x.double())
    for ours, exact in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours.cpu().double(), exact, rtol=2e-6, atol=2e-6)


@needs_vectors
@pytest.mark.parametrize(
    ("name", "dtype"), [(name, dtype) for name in FUNCTIONS for dtype in NARROW if are_ours(name, dtype)], ids=str
)
def test_all_numbers_of_16_bits_are_rounded_once(name, dtype):
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    x = x[x.isfinite() & (x.abs() < 8)]
    with work() as done:
        actual = value_and_gradient(FUNCTIONS[name], x.to(DEVICE))
        finish_everything()
    assert done.fallbacks == 0
    assert metrics.counter_value("FusedNodes") > 0
    value, _ = value_and_gradient(FUNCTIONS[name], x.double())
    assert actual[0].dtype == dtype
    # Where the formula of gelu cancels, its error is relative to the argument.
    torch.testing.assert_close(actual[0].cpu().double(), value, rtol=NARROW[dtype] * 1.01, atol=1e-6, equal_nan=True)
    assert (actual[0].cpu() == value.to(dtype)).double().mean() > 0.99


@needs_vectors
@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("name", ["silu", "gelu by tanh", "softplus", "softmax", "log_softmax", "sigmoid", "tanh"])
def test_gradients_of_16_bits_are_as_near_as_the_cpus(name, dtype):
    x = numbers(7, 133).to(dtype)
    with work() as done:
        (_, actual) = value_and_gradient(ALL[name], x.to(DEVICE))
        finish_everything()
    assert done.fallbacks == 0
    assert metrics.counter_value("FusedNodes") > 0
    assert actual.dtype == dtype
    exact = value_and_gradient(ALL[name], x.double())[1]
    cpus = value_and_gradient(ALL[name], x)[1]
    error = (actual.cpu().double() - exact).abs().max()
    assert error <= (cpus.double() - exact).abs().max() + NARROW[dtype] * exact.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, *NARROW], ids=str)
@pytest.mark.parametrize("name", ALL)
def test_bits_do_not_depend_on_who_shares_the_kernel(name, dtype):
    x = numbers(9, 77).to(dtype)

    def program(x):
        before = x * 0.5 + 1
        y = ALL[name](before)
        return y, (y - before).relu() * y

    together = program(x.to(DEVICE))
    first = [bits(result) for result in together]
    with config.changed({"schedule": "every:1"}):
        alone = [bits(result) for result in program(x.to(DEVICE))]
    with config.changed({"launch_blocking": True}):
        blocking = [bits(result) for result in program(x.to(DEVICE))]
    for results in (alone, blocking):
        assert all(torch.equal(a, b) for a, b in zip(first, results, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, *NARROW], ids=str)
@pytest.mark.parametrize("name", ALL)
def test_bits_are_the_same_at_once(name, dtype):
    tensors = [numbers(2, size).to(dtype) for size in range(2001, 2061)]
    at_once = [bits(ALL[name](x.to(DEVICE))) for x in tensors]
    assert metrics.counter_value("RunAtOnce") > 20
    ir_cache.reset()
    with config.changed({"max_size_variants": 0}):
        recorded = [bits(ALL[name](x.to(DEVICE))) for x in tensors]
    assert all(torch.equal(a, b) for a, b in zip(at_once, recorded, strict=True))


@pytest.mark.parametrize("name", ROWS)
def test_gradients_of_rows_are_the_same_at_once(name):
    def gradients():
        return [bits(value_and_gradient(ROWS[name], numbers(3, size).to(DEVICE))[1]) for size in range(1001, 1041)]

    at_once = gradients()
    assert metrics.counter_value("RunAtOnce") > 20
    ir_cache.reset()
    with config.changed({"max_size_variants": 0}):
        recorded = gradients()
    assert all(torch.equal(a, b) for a, b in zip(at_once, recorded, strict=True))


GROUPS = {
    "gelu of softmax": (lambda x: F.gelu(F.softmax(x, -1), approximate="tanh").sum(-1, keepdim=True), 3),
    "residual": (lambda x: F.layer_norm(x * 0.5 + x.sin(), x.shape[-1:]), 4),
    "gate": (lambda x: F.layer_norm(x, x.shape[-1:], x.reshape(-1)[: x.shape[-1]]).sigmoid() * x, 3),
    "masked": (lambda x: F.softmax(torch.where(x > 1, x / 3, x - 1000), -1), 5),
    "statistics": (lambda x: torch.cat(torch.native_layer_norm(x + 1, x.shape[-1:], None, None, 1e-5), -1), 2),
}


@needs_vectors
@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("shape", [(5, 64), (3, 7, 130), (300, 768)], ids=str)
def test_rows_share_a_kernel_with_their_neighbours(name, shape):
    function, num_nodes = GROUPS[name]
    x = numbers(*shape).to(DEVICE)
    x.cpu()
    if not are_ours("sin"):
        num_nodes -= name == "residual"
    with work() as done:
        actual = function(x).cpu()
    assert done.fallbacks == 0
    assert metrics.counter_value("FusedGroups") == 1
    assert metrics.counter_value("FusedNodes") == num_nodes
    torch.testing.assert_close(actual.double(), function(x.cpu().double()), rtol=3e-6, atol=3e-6)


@needs_vectors
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("length", [64, 65, 127, 1000, 2048])
def test_rows_of_any_length(name, length):
    x = numbers(6, length)
    actual = value_and_gradient(ROWS[name], x.to(DEVICE))
    finish_everything()
    assert metrics.counter_value("FusedNodes") > 0
    for ours, exact in zip(actual, value_and_gradient(ROWS[name], x.double()), strict=True):
        torch.testing.assert_close(ours.cpu().double(), exact, rtol=2e-6, atol=4e-6)


@needs_vectors
def test_cross_entropy_and_its_gradient():
    logits, labels = numbers(50, 10), torch.arange(50) % 10
    losses = []
    for x, y in ((logits.double(), labels), (logits.to(DEVICE), labels.to(DEVICE))):
        x = x.detach().requires_grad_()
        loss = F.cross_entropy(x, y)
        loss.backward()
        losses.append((loss.detach().cpu().double(), x.grad.cpu().double()))
    assert metrics.counter_value("FusedNodes") >= 2
    for exact, ours in zip(*losses, strict=True):
        torch.testing.assert_close(ours, exact, rtol=1e-6, atol=1e-7)


def test_rows_without_a_number_are_nan():
    x = numbers(4, 70)
    x[0] = -float("inf")
    x[1, 3] = float("nan")
    x[2, 69] = float("inf")
    for function in ROWS.values():
        actual = function(x.to(DEVICE)).cpu()
        torch.testing.assert_close(actual.isnan(), function(x).isnan())
        assert actual[3].isnan().sum() == function(x)[3].isnan().sum()


def test_a_lost_parameter_spoils_all_results_of_a_norm():
    x = numbers(4, 70).to(DEVICE)
    lost = x.reshape(-1).index_select(0, torch.arange(400, 470).to(DEVICE))
    results = torch.native_layer_norm(x, (70,), lost, None, 1e-5)
    other = x * 2
    assert torch.equal(other.cpu(), x.cpu() * 2)
    for result in results:
        with pytest.raises(IndexError, match="out of range"):
            result.cpu()


def roots(tensors):
    return torch._foreach_add(torch._foreach_sqrt(tensors), 1)


@pytest.mark.parametrize("setting", [{}, {"schedule": "every:1"}, {"launch_blocking": True}], ids=str)
def test_square_roots_of_lists_are_rounded_correctly(setting):
    x = numbers(9, 57).abs()
    parts = [lambda x: x, lambda x: x[2:5], lambda x: x.t(), lambda x: x[0, :0]]
    with config.changed(setting), work() as done:
        actual = roots([part(x.to(DEVICE)) for part in parts])
        finish_everything()
    assert done.fallbacks == 0
    for result, part in zip(actual, parts, strict=True):
        assert torch.equal(result.cpu(), part(x).double().sqrt().float() + 1)


def gates(x):
    i, f, g, o = x.chunk(4, -1)
    return torch.cat((f.sigmoid() * 0.5 + i.sigmoid() * g.tanh(), F.silu(o), F.gelu(g, approximate="tanh") * o), -1)


@pytest.mark.parametrize(
    "setting", [{}, {"schedule": "every:1"}, {"launch_blocking": True}, {"run_at_once": "always"}], ids=str
)
@pytest.mark.parametrize("sizes", [(16, 256), (3, 5, 260), (1, 256), (40, 32), (2, 1, 256)], ids=str)
def test_parts_of_rows_have_the_bits_of_whole_ones(sizes, setting):
    x = numbers(*sizes)
    with config.changed(setting), work() as done:
        lazy = x.to(DEVICE).requires_grad_()
        result = gates(lazy)
        result.square().sum().backward()
        finish_everything()
    assert done.fallbacks == 0
    assert result.stride() == gates(x).stride()
    whole = [part.contiguous().to(DEVICE) for part in x.chunk(4, -1)]
    i, f, g, o = whole
    is_ours = sizes not in ((40, 32), (2, 1, 256))  # short pieces, and what may lie otherwise, are left to the CPU
    expected = torch.cat((f.sigmoid() * 0.5 + i.sigmoid() * g.tanh(), F.silu(o), F.gelu(g, approximate="tanh") * o), -1)
    assert torch.equal(result.detach().cpu(), expected.cpu()) or not is_ours
    reference = x.double().requires_grad_()
    gates(reference).square().sum().backward()
    torch.testing.assert_close(lazy.grad.cpu().double(), reference.grad, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("setting", [{}, {"schedule": "every:1"}, {"launch_blocking": True}], ids=str)
def test_lists_with_gaps_are_left_to_the_cpu(setting):
    x = numbers(9, 57).abs()
    with config.changed(setting):
        actual = roots([x.to(DEVICE), x.to(DEVICE)[:, ::2]])
        assert all(torch.equal(a.cpu(), e) for a, e in zip(actual, roots([x, x[:, ::2]]), strict=True))


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.double().exp(),
        lambda x: x.half().sin(),
        lambda x: x.bfloat16().abs().sqrt(),
        lambda x: F.gelu(x.bfloat16()),
        lambda x: x.half().logsumexp(-1),
        lambda x: x.bfloat16().log_softmax(-1),
        lambda x: x.bfloat16().tanh_(),
        lambda x: x.double().abs().sqrt(),
        lambda x: x.abs().sqrt_(),
        lambda x: x[:, ::2].exp(),
        lambda x: x.clone().exp_(),
        lambda x: torch.exp(x, out=torch.empty_like(x)),
        lambda x: x.lgamma(),
        lambda x: x.int().sin(),
        lambda x: F.gelu(x.t()[1:3]),
        lambda x: F.softmax(x.double(), -1),
        lambda x: F.softmax(x, 0),
        lambda x: F.log_softmax(x.t(), -1),
        lambda x: F.softmax(x[:, :1], -1),
        lambda x: x.logsumexp(0),
        lambda x: x.logsumexp((0, 1)),
        lambda x: F.layer_norm(x, x.shape),
        lambda x: F.layer_norm(x, x.shape[-1:]),
        lambda x: F.layer_norm(x.repeat(1, 3), (93,), bias=x.repeat(1, 3)[0]),
    ],
    ids=[
        "double",
        "sine of half",
        "root of bfloat16",
        "gelu of bfloat16",
        "logsumexp of half",
        "log_softmax of bfloat16",
        "bfloat16 in place",
        "root of double",
        "root in place",
        "with gaps",
        "in place",
        "out=",
        "another",
        "integers",
        "a part",
        "softmax of double",
        "softmax of columns",
        "softmax of a transpose",
        "softmax of one",
        "logsumexp of columns",
        "logsumexp of all",
        "a norm of all",
        "a norm of short rows",
        "a norm with a bias alone",
    ],
)
def test_what_is_left_to_the_cpu_has_its_bits(program):
    x = numbers(8, 31)
    assert torch.equal(program(x.to(DEVICE)).cpu(), program(x))


def test_training_is_nearly_the_cpus():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 16), torch.nn.Sigmoid())
    x = numbers(64, 16)
    losses = {}
    for device in ("cpu", DEVICE):
        net = copy.deepcopy(model).to(device)
        optimizer = torch.optim.AdamW(net.parameters())
        losses[device] = []
        for _ in range(20):
            loss = (net(x.to(device)) - 0.3).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[device].append(loss.item())
    assert losses[DEVICE] == pytest.approx(losses["cpu"], rel=1e-4)
    assert metrics.counter_value("FusedNodes") > 0


def test_infinities_and_nan():
    x = torch.tensor([float("inf"), float("-inf"), float("nan"), 0.0, -0.0, 90.0, -110.0, 1e-40])
    for function in (torch.exp, torch.expm1, torch.sin, torch.cos, torch.tanh, torch.erf, torch.sigmoid, F.softplus):
        actual, expected = function(x.to(DEVICE)).cpu(), function(x.double()).float()
        torch.testing.assert_close(actual, expected, rtol=1e-6, atol=0, equal_nan=True)


@needs_vectors
def test_powers_that_are_no_normal_numbers(functions):
    x = torch.linspace(-106, -86, 200_000)
    x = torch.cat([x, torch.tensor([-float("inf"), -1e9, -87.34, -87.33])])
    y = x.to(DEVICE).exp().cpu()
    expected = x.double().exp()
    error = (y.double() - expected).abs()
    assert (error <= torch.maximum(expected * 2**-23, torch.tensor(2.0**-149, dtype=torch.double))).all()


@needs_vectors
def test_masked_rows(functions):
    x = torch.randn(40, 70)
    x[torch.rand(40, 70) < 0.5] = -float("inf")
    x[:, 3] = 0
    for function in (torch.softmax, torch.log_softmax):
        torch.testing.assert_close(function(x.to(DEVICE), -1).cpu(), function(x, -1))
