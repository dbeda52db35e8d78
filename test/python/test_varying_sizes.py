"""Programs whose sizes change every time: a few graphs, then calls that run at once, with the same results."""

import copy

import pytest
import torch
from helpers import DEVICE, both, finish_pending, run_fresh, work

from torch_lazyplug import config, ir_cache, metrics

VARIANTS = config.get("max_size_variants")


@pytest.fixture(scope="module", autouse=True)
def forgotten():
    """What these programs have in common with others runs at once until they are forgotten."""
    yield
    ir_cache.reset()


@pytest.fixture
def flag():
    old = {name: config.get(name) for name in ("max_size_variants", "symbolic_shape_mode")}
    yield config.set
    for name, value in old.items():
        config.set(name, value)


def ran_at_once():
    return metrics.counter_value("RunAtOnce") or 0


def step(x):
    y = x.sinh()  # makes programs of this file that no other has
    y.view(-1)[1:].mul_(2)
    return (y + x).cosh() / 3, y.t()


def compiles_of(sizes, fn=step):
    with work() as done:
        for size in sizes:
            both(fn, torch.linspace(-1, 1, 3 * size).view(3, size))
    assert done.fallbacks == 0, done.fallback_ops
    return done.compiles


@pytest.mark.own_schedule("counts graphs, and each cut makes others")
def test_new_sizes_are_compiled_a_few_times_only():
    before = ran_at_once()
    assert compiles_of(range(1001, 1051)) <= VARIANTS + 2
    assert ran_at_once() > before


@pytest.mark.own_schedule("counts graphs, and each cut makes others")
def test_symbolic_mode_expects_it(flag):
    flag("symbolic_shape_mode", True)
    assert compiles_of(range(2001, 2051), lambda x: step(x)[0].atan()) <= 4


@pytest.mark.own_schedule("counts graphs, and each cut makes others")
def test_the_second_time_is_recorded():
    sizes = range(3001, 3031)
    compiles_of(sizes, lambda x: step(x)[0].asin())
    compiles_of(sizes, lambda x: step(x)[0].asin())  # those that ran at once are compiled
    before = ran_at_once()
    assert compiles_of(sizes, lambda x: step(x)[0].asin()) == 0
    assert ran_at_once() == before


@pytest.mark.own_schedule("counts graphs, and each cut makes others")
def test_any_number_of_graphs(flag):
    flag("max_size_variants", 0)
    before = ran_at_once()
    assert compiles_of(range(4001, 4021), lambda x: step(x)[0].acos()) == 20
    assert ran_at_once() == before


def test_programs_of_other_kinds_are_recorded():
    compiles_of(range(5001, 5021), lambda x: step(x)[0].tan())
    x = torch.ones(5, 6, 7, device=DEVICE)
    finish_pending()
    with work() as done:
        y = x.tan() + x
        assert done.flushes == 0
        finish_pending()
    assert done.recorded == 2
    assert torch.equal(y.cpu(), x.cpu().tan() + x.cpu())


def test_pending_results_are_computed_first():
    def grow(x):
        cache = x[:, :1].asinh()
        for i in range(1, x.shape[1]):
            cache = torch.cat([cache, x[:, i : i + 1].asinh()], 1)
        return cache, cache.sum(1)

    with work() as done:
        both(grow, torch.randn(3, 60))
    assert done.fallbacks == 0


def test_random_numbers_are_those_of_recorded_calls(flag):
    def draw(variants):
        flag("max_size_variants", variants)
        torch.manual_seed(3)
        return [torch.rand(size, device=DEVICE).erfinv().cpu() for size in range(6001, 6031)]

    before = ran_at_once()
    at_once = draw(4)
    assert ran_at_once() > before
    assert all(map(torch.equal, at_once, draw(0)))


def test_errors_are_those_of_eager():
    for size in range(7001, 7021):
        x = torch.ones(3, size, device=DEVICE)
        (x.digamma() + x).cpu()
        with pytest.raises(RuntimeError, match="must match the size of tensor"):
            x.digamma() + torch.ones(3, size + 1, device=DEVICE)


FIRST_CALLS = """
import sys, torch
known = set(sys.modules)
x = torch.ones(3, 3, device="lazy")
y = torch.ones(300, 300, device="lazy")
z = ((y @ y + 1).relu() * y).sum(0).softmax(0).exp().mean(0) + (x @ x + 1).relu().sum()
print(z.item(), [name for name in sys.modules if name not in known])
"""


def test_first_calls_load_no_modules():
    value, modules = run_fresh(FIRST_CALLS).split(maxsplit=1)
    assert float(value) > 0
    assert modules.strip() == "[]"


@pytest.fixture
def storms():
    """Programs that never repeat are noticed."""
    config.set("max_unused_graphs", 32)
    config.set("chunk_nodes", 0)
    yield
    config.set("max_unused_graphs", 0)
    config.set("chunk_nodes", 16)


def test_packed_sequences_of_random_lengths_are_soon_compiled_no_more(storms):
    import random

    from torch.nn.utils.rnn import pack_padded_sequence

    chance = random.Random(0)
    torch.manual_seed(0)
    cpu = torch.nn.LSTM(4, 4)
    lazy = copy.deepcopy(cpu).to(DEVICE)

    def step():
        lengths = sorted((chance.randint(2, 12) for _ in range(8)), reverse=True)
        x = torch.randn(lengths[0], 8, 4)
        results = []
        for lstm, data in ((lazy, x.to(DEVICE)), (cpu, x)):
            lstm.zero_grad()
            output = lstm(pack_padded_sequence(data, lengths))[0].data
            output.square().mean().backward()
            results.append((output.sum().item(), lstm.weight_hh_l0.grad.sum().item()))
        assert results[0] == pytest.approx(results[1], rel=1e-4, abs=1e-5)

    for _ in range(50):
        step()
    with work() as done:
        for _ in range(100):
            step()
    assert done.compiles <= 10
    assert done.fallbacks == 0
