"""By default, functions such as exp are our own: the same bits wherever they run, and nearly the CPU's."""

import copy

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


# Of which PyTorch's are faster without AVX-512.
NOT_ALWAYS = {"sin", "cos", "gelu"}


def are_ours(name):
    return torch.backends.cpu.get_cpu_capability() == "AVX512" or name not in NOT_ALWAYS


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
    return tensor.detach().cpu().contiguous().view(torch.int32)


def value_and_gradient(function, x):
    x = x.clone().requires_grad_()
    y = function(x)
    (gradient,) = torch.autograd.grad(y, x, torch.ones_like(y) * 1.5)
    return y.detach(), gradient


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients(name):
    x = numbers(7, 133)
    with work() as done:
        actual = value_and_gradient(FUNCTIONS[name], x.to(DEVICE))
        finish_everything()
    assert done.fallbacks == 0
    assert not are_ours(name) or metrics.counter_value("FusedNodes") > 0
    expected = value_and_gradient(FUNCTIONS[name], x.double())
    for ours, exact in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours.cpu().double(), exact, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bits_do_not_depend_on_who_shares_the_kernel(name):
    x = numbers(9, 57)

    def program(x):
        before = x * 0.5 + 1
        y = FUNCTIONS[name](before)
        return y, (y - before).relu() * y

    together = program(x.to(DEVICE))
    first = [bits(result) for result in together]
    with config.changed({"schedule": "every:1"}):
        alone = [bits(result) for result in program(x.to(DEVICE))]
    with config.changed({"launch_blocking": True}):
        blocking = [bits(result) for result in program(x.to(DEVICE))]
    for results in (alone, blocking):
        assert all(torch.equal(a, b) for a, b in zip(first, results, strict=True))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bits_are_the_same_at_once(name):
    tensors = [numbers(2, size) for size in range(2001, 2061)]
    at_once = [bits(FUNCTIONS[name](x.to(DEVICE))) for x in tensors]
    assert metrics.counter_value("RunAtOnce") > 20
    ir_cache.reset()
    with config.changed({"max_size_variants": 0}):
        recorded = [bits(FUNCTIONS[name](x.to(DEVICE))) for x in tensors]
    assert all(torch.equal(a, b) for a, b in zip(at_once, recorded, strict=True))


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
        lambda x: x.half().tanh(),
        lambda x: x.double().abs().sqrt(),
        lambda x: x.abs().sqrt_(),
        lambda x: x[:, ::2].exp(),
        lambda x: x.clone().exp_(),
        lambda x: torch.exp(x, out=torch.empty_like(x)),
        lambda x: x.lgamma(),
        lambda x: x.int().sin(),
        lambda x: F.gelu(x.t()[1:3]),
    ],
    ids=[
        "double",
        "half",
        "root of double",
        "root in place",
        "with gaps",
        "in place",
        "out=",
        "another",
        "integers",
        "a part",
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
