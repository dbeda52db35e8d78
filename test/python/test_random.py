"""Random numbers: distributed as on the CPU, another draw each time, and the same for a seed whenever they are run."""

import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from helpers import DEVICE, assert_same, finish_pending, work
from torch import distributions, nn

from torch_lazyplug import config

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from conformance.distributions import moments_differ, p_value

N = 20_000
LEAST_P = 1e-4


def full(value, device, dtype=torch.float32):
    return torch.full((N,), value, dtype=dtype, device=device)


def steps(low, high, device):
    return torch.linspace(low, high, N, device=device)


# Draws of N numbers or more, which are each distributed alike or in an order that tells nothing.
DRAWS = {
    "rand": lambda d: torch.rand(N, device=d),
    "rand_double": lambda d: torch.rand(N, dtype=torch.float64, device=d),
    "rand_half": lambda d: torch.rand(N, dtype=torch.float16, device=d),
    "rand_bfloat16": lambda d: torch.rand(N, dtype=torch.bfloat16, device=d),
    "rand_complex": lambda d: torch.rand(N, dtype=torch.complex64, device=d),
    "rand_like": lambda d: torch.rand_like(full(0, d)),
    "rand_out": lambda d: torch.rand(N, out=full(0, d)),
    "randn": lambda d: torch.randn(N, device=d),
    "randn_double": lambda d: torch.randn(N, dtype=torch.float64, device=d),
    "randn_bfloat16": lambda d: torch.randn(N, dtype=torch.bfloat16, device=d),
    "randn_complex": lambda d: torch.randn(N, dtype=torch.complex64, device=d),
    "randn_small": lambda d: torch.cat([torch.randn(8, device=d) for _ in range(N // 8)]),
    "randn_like": lambda d: torch.randn_like(full(0, d)),
    "randint": lambda d: torch.randint(3, 11, (N,), device=d),
    "randint_wide": lambda d: torch.randint(-(2**40), 2**40, (N,), device=d),
    "randint_uint8": lambda d: torch.randint(256, (N,), dtype=torch.uint8, device=d),
    "randint_like": lambda d: torch.randint_like(full(0, d), -5, 5),
    "randperm": lambda d: torch.randperm(2 * N, device=d)[:N],
    "randperm_small": lambda d: torch.cat([torch.randperm(5, device=d) + 5 * i for i in range(N // 50)]).diff(),
    "normal_": lambda d: full(0, d).normal_(3, 2),
    "normal_view": lambda d: torch.zeros(N, 2, device=d)[:, 1].normal_(3, 2),
    "normal_of_tensors": lambda d: torch.normal(steps(-5, 5, d), steps(0.1, 3, d)),
    "normal_of_number_and_tensor": lambda d: torch.normal(1.0, steps(0.1, 3, d)),
    "normal_of_tensor_and_number": lambda d: torch.normal(steps(-5, 5, d), 0.5),
    "normal_of_sizes": lambda d: torch.normal(2.0, 3.0, (N,), device=d),
    "uniform_": lambda d: full(0, d).uniform_(-2, 5),
    "uniform_double": lambda d: full(0, d, torch.float64).uniform_(-2, 5),
    "exponential_": lambda d: full(0, d).exponential_(2.5),
    "geometric_": lambda d: full(0, d).geometric_(0.2),
    "geometric_integers": lambda d: full(0, d, torch.int64).geometric_(0.4),
    "cauchy_": lambda d: full(0, d).cauchy_(1, 2),
    "log_normal_": lambda d: full(0, d).log_normal_(0.5, 0.4),
    "random_": lambda d: full(0, d, torch.int64).random_(),
    "random_floats": lambda d: full(0, d).random_(),
    "random_bytes": lambda d: full(0, d, torch.int8).random_(),
    "random_bools": lambda d: full(False, d, torch.bool).random_(),
    "random_below": lambda d: full(0, d).random_(7),
    "random_between": lambda d: full(0, d, torch.int32).random_(-7, 7),
    "bernoulli": lambda d: torch.bernoulli(full(0.3, d)),
    "bernoulli_steps": lambda d: torch.bernoulli(steps(0, 1, d)) * torch.arange(N, device=d),
    "bernoulli_p": lambda d: torch.bernoulli(full(0, d), 0.2),
    "bernoulli_": lambda d: full(0, d).bernoulli_(0.7),
    "bernoulli_integers": lambda d: full(0, d, torch.int64).bernoulli_(0.7),
    "bernoulli_tensor": lambda d: full(0, d).bernoulli_(full(0.1, d)),
    "poisson": lambda d: torch.poisson(full(4, d)),
    "binomial": lambda d: torch.binomial(full(10, d), full(0.3, d)),
    "multinomial": lambda d: torch.multinomial(torch.tensor([1.0, 0.0, 3.0, 6.0], device=d), N, replacement=True),
    "multinomial_rows": lambda d: torch.multinomial(torch.tensor([1.0, 2, 3, 4], device=d).expand(N, 4), 2)[:, 1],
    "multinomial_single": lambda d: torch.multinomial(torch.tensor([1.0, 2, 3, 4], device=d).expand(N, 4), 1),
    "gamma": lambda d: torch._standard_gamma(full(2.5, d)),
    "dirichlet": lambda d: torch._sample_dirichlet(torch.tensor([1.0, 2.0, 3.0], device=d).expand(N, 3))[:, 1],
    "rrelu": lambda d: F.rrelu(full(-1, d), training=True),
    "rrelu_": lambda d: F.rrelu_(full(-1, d) + 0, 0.2, 0.9, training=True),
    "dropout": lambda d: F.dropout(full(1, d), 0.3),
    "dropout_": lambda d: F.dropout(full(1, d), 0.3, inplace=True),
    "native_dropout": lambda d: torch.native_dropout(full(1, d), 0.3, True)[0],
    "dropout1d": lambda d: F.dropout1d(torch.ones(N, 2, 1, device=d), 0.3),
    "dropout2d": lambda d: F.dropout2d(torch.ones(N, 2, 1, 1, device=d), 0.3),
    "dropout3d": lambda d: F.dropout3d(torch.ones(N, 2, 1, 1, 1, device=d), 0.3),
    "feature_dropout": lambda d: torch.feature_dropout(torch.ones(N, 2, 1, device=d), 0.3, True),
    "alpha_dropout": lambda d: F.alpha_dropout(full(1, d), 0.3, training=True),
    "feature_alpha_dropout": lambda d: F.feature_alpha_dropout(torch.ones(N, 2, 1, device=d), 0.3, training=True),
    "gumbel_softmax": lambda d: F.gumbel_softmax(torch.zeros(N, 3, device=d))[:, 0],
    "gumbel_choice": lambda d: F.gumbel_softmax(torch.arange(3.0, device=d).expand(N, 3), hard=True).argmax(1),
    "truncated_normal": lambda d: nn.init.trunc_normal_(full(0, d), 0.5, 1, -1, 1),
    "xavier": lambda d: nn.init.xavier_uniform_(torch.empty(100, N // 100, device=d)),
    "kaiming": lambda d: nn.init.kaiming_normal_(torch.empty(100, N // 100, device=d)),
    "beta": lambda d: distributions.Beta(full(2, d), full(3, d)).sample(),
    "student": lambda d: distributions.StudentT(full(4, d)).sample(),
    "categorical": lambda d: distributions.Categorical(torch.tensor([0.2, 0.5, 0.3], device=d)).sample((N,)),
    "attention": lambda d: F.scaled_dot_product_attention(
        *torch.ones(2, N // 2, 1, 8, device=d), torch.ones(N // 2, 1, 8, device=d), dropout_p=0.3
    ),
}

# The ops of a draw that cannot be recorded.
FALLBACKS = {
    "binomial": ["aten::binomial"],
    "dirichlet": ["aten::_sample_dirichlet"],
    "beta": ["aten::_sample_dirichlet"],
}


def draw(name, device, seed=0):
    torch.manual_seed(seed)
    return DRAWS[name](device)


def numbers(sample, at_least=1):
    """The different numbers of the sample that occur so often."""
    values, counts = (torch.view_as_real(sample) if sample.is_complex() else sample).unique(return_counts=True)
    return {*values[counts >= at_least].tolist()}


@pytest.mark.parametrize("name", DRAWS)
def test_distributions_are_the_cpus(name):
    expected = draw(name, "cpu", seed=1)
    with work() as done:
        actual = draw(name, DEVICE)
        finish_pending()
    assert done.fallback_ops == dict.fromkeys(FALLBACKS.get(name, ()), 1)
    assert (actual.dtype, actual.shape, actual.stride()) == (expected.dtype, expected.shape, expected.stride())
    actual = actual.cpu()
    assert p_value(actual, expected) > LEAST_P
    if name != "cauchy_":  # which has no mean
        assert moments_differ(actual, expected) == []
    assert numbers(actual, at_least=20) <= numbers(expected) and numbers(expected, at_least=20) <= numbers(actual)


@pytest.mark.parametrize("name", DRAWS)
def test_numbers_depend_on_the_seed_and_the_order_of_draws_only(name):
    def two(between, order=(0, 1)):
        torch.manual_seed(3)
        first = DRAWS[name](DEVICE)
        between()
        both = [first, DRAWS[name](DEVICE)]
        for index in order:
            both[index] = both[index].cpu()
        return both

    first, second = two(lambda: None)
    assert not torch.equal(first, second)
    others = [two(finish_pending), two(lambda: torch.ones(3, device=DEVICE) * 2), two(lambda: None, order=(1, 0))]
    for other in others:
        assert torch.equal(other[0], first) and torch.equal(other[1], second)
    assert not torch.equal(draw(name, DEVICE, seed=4).cpu(), first)


@pytest.mark.parametrize("name", ["rand", "randn", "randn_small", "normal_", "normal_view", "bernoulli_", "dropout"])
def test_numbers_are_the_same_at_once_and_as_forced_fallbacks(name, forced):
    recorded = draw(name, DEVICE).cpu()
    with config.changed({"run_at_once": "always"}):
        assert_same(draw(name, DEVICE).cpu(), recorded)
    forced("aten::uniform_,aten::normal_,aten::bernoulli_")
    assert_same(draw(name, DEVICE).cpu(), recorded)


@pytest.mark.smoke
@pytest.mark.parametrize("make", [torch.rand, torch.randn], ids=lambda make: make.__name__)
def test_many_small_draws_together_are_a_sample(make):
    """Each draw has a generator of its own, whose first numbers must not resemble those of the ones before."""

    def sample(device):
        torch.manual_seed(0)
        return torch.stack([make(2, device=device) for _ in range(N // 2)]).cpu().double()

    actual, expected = sample(DEVICE), sample("cpu")
    assert p_value(actual, expected) > LEAST_P
    assert p_value(actual[:, 0], expected[:, 0]) > LEAST_P
    for a, b in ((actual[:, 0], actual[:, 1]), (actual[1:, 0], actual[:-1, 0]), (actual[1:, 0], actual[:-1, 1])):
        assert torch.corrcoef(torch.stack([a, b]))[0, 1].abs() < 5 / len(a) ** 0.5


@pytest.mark.parametrize("name", ["rand", "randn", "randint", "exponential_", "bernoulli_"])
def test_numbers_of_one_draw_and_of_two_are_not_correlated(name):
    torch.manual_seed(0)
    first, second = (DRAWS[name](DEVICE).cpu().double() for _ in range(2))
    for a, b in ((first, second), (first[1:], first[:-1]), (first[1:], second[:-1])):
        assert torch.corrcoef(torch.stack([a, b]))[0, 1].abs() < 5 / len(a) ** 0.5


def test_neighbouring_seeds_are_other_numbers():
    samples = [draw("randn", DEVICE, seed).cpu().double() for seed in range(20)]
    correlations = torch.corrcoef(torch.stack(samples)) - torch.eye(20)
    assert correlations.abs().max() < 6 / N**0.5


# Dropout -------------------------------------------------------------------------------------------------------------

DROPOUTS = {
    "dropout": lambda x, p: F.dropout(x, p),
    "in_place": lambda x, p: F.dropout(x * 1, p, inplace=True),
    "module": lambda x, p: nn.Dropout(p)(x),
    "native": lambda x, p: torch.native_dropout(x, p, True)[0],
}


def scale_of(p, dtype):
    return torch.ones(1, dtype=dtype).div_(1 - p) if p < 1 else torch.zeros(1, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("p", [0.0, 0.1, 0.25, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("name", DROPOUTS)
def test_dropout_keeps_a_fraction_and_scales_it(name, p, dtype):
    data = torch.randn(N).to(dtype)
    x = data.to(DEVICE).requires_grad_()
    y = DROPOUTS[name](x, p)
    y.backward(torch.ones_like(y))
    y, gradient = y.detach().cpu(), x.grad.cpu()
    kept = gradient != 0
    assert abs(kept.sum().item() - N * (1 - p)) <= 5 * (N * p * (1 - p)) ** 0.5
    scale = scale_of(p, dtype)
    assert torch.equal(gradient, torch.where(kept, scale, 0))
    assert_same(y, data * gradient)  # to the signs of its zeros


@pytest.mark.parametrize("dropout", [F.dropout1d, F.dropout2d, F.dropout3d, F.feature_alpha_dropout])
def test_feature_dropout_drops_whole_channels(dropout):
    dims = {F.dropout1d: 1, F.dropout2d: 2, F.dropout3d: 3}.get(dropout, 2)
    x = torch.ones(N // 100, 100, *[2] * dims)
    y = dropout(x.to(DEVICE), 0.4, training=True).cpu().flatten(2)
    assert torch.equal(y, y[..., :1].expand_as(y))
    dropped = y[..., 0] != y.max()
    assert abs(dropped.sum().item() - N * 0.4) <= 5 * (N * 0.4 * 0.6) ** 0.5


def test_evaluation_drops_nothing():
    x = torch.randn(100).to(DEVICE)
    for function in (F.dropout, F.alpha_dropout, F.feature_alpha_dropout, F.rrelu):
        arguments = () if function is F.rrelu else (0.5,)
        expected = function(x.cpu()[None], *arguments, training=False)
        assert torch.equal(function(x[None], *arguments, training=False).cpu(), expected)


@pytest.mark.parametrize("p", [0.0, 0.01, 0.5, 0.99, 1.0])
def test_bernoulli_draws_with_its_probability(p):
    draws = (
        torch.bernoulli(full(p, DEVICE)),
        full(7, DEVICE).bernoulli_(p),
        full(7, DEVICE).bernoulli_(full(p, DEVICE)),
        torch.bernoulli(full(7, DEVICE), p),
        full(7, DEVICE, torch.int64).bernoulli_(p),
    )
    for drawn in draws:
        assert set(drawn.unique().tolist()) <= {0, 1}
        assert abs(drawn.sum().item() - N * p) <= 5 * (N * p * (1 - p)) ** 0.5


def test_permutations_are_permutations():
    for n in (0, 1, 2, 100, N):
        for dtype in (torch.int64, torch.int32):
            assert torch.equal(
                torch.randperm(n, dtype=dtype, device=DEVICE).cpu().sort()[0], torch.arange(n, dtype=dtype)
            )


def test_choices_without_replacement_differ():
    chosen = torch.multinomial(torch.ones(N, 6, device=DEVICE), 6).cpu()
    assert torch.equal(chosen.sort()[0], torch.arange(6).expand(N, 6))
    assert len(chosen.unique(dim=0)) == 720  # every order


# Ways to run ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def setting():
    """Sets flags for the rest of the test."""
    from torch_lazyplug import config

    before = {}

    def set_flag(name, value):
        before.setdefault(name, config.get(name))
        config.set(name, value)

    yield set_flag
    for name, value in before.items():
        config.set(name, value)


def several():
    torch.manual_seed(5)
    x = torch.zeros(50, device=DEVICE)
    drawn = [torch.rand(50, device=DEVICE), x.normal_(), F.dropout(x, 0.5), torch.randint(9, (50,), device=DEVICE)]
    return [t.cpu() for t in [*drawn, torch.bernoulli(drawn[0]), torch.randperm(50, device=DEVICE)]]


WAYS = {
    "blocking": ("launch_blocking", True),
    "fallback": ("force_fallback", "aten::rand,aten::normal_,aten::bernoulli,aten::randperm"),
    "without_prediction": ("reuse_ir", False),
}


@pytest.mark.lazy_only
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.filterwarnings("ignore:aten::")
def test_numbers_do_not_depend_on_the_way_ops_are_run(way, setting):
    expected = several()
    setting(*WAYS[way])
    for actual in (several(), several()):
        assert all(map(torch.equal, actual, expected))


@pytest.mark.lazy_only
@pytest.mark.own_schedule("counts what runs at once")
def test_numbers_of_calls_that_run_at_once_are_those_of_recorded_ones(setting):
    from torch_lazyplug import metrics

    def run():
        torch.manual_seed(6)
        return [torch.nn.functional.dropout(torch.ones(2, n, device=DEVICE), 0.5).neg().cpu() for n in range(901, 941)]

    before = metrics.counter_value("RunAtOnce") or 0
    actual = run()
    assert metrics.counter_value("RunAtOnce") > before
    setting("max_size_variants", 0)
    assert all(map(torch.equal, actual, run()))


@pytest.mark.lazy_only
@pytest.mark.own_schedule("counts what runs at once")
def test_what_is_drawn_at_once_is_what_is_recorded(setting):
    from torch_lazyplug import metrics

    def draw(generator):
        x, p = torch.zeros(3, 40, device=DEVICE), torch.full((40,), 0.3, device=DEVICE)
        yield x.normal_(1, 2, generator=generator).clone()
        yield x.uniform_(-1, 1, generator=generator).clone()
        yield x.random_(5, generator=generator).clone()
        yield x.random_(2, 9, generator=generator).clone()
        yield x.bernoulli_(0.4, generator=generator).clone()
        yield x.bernoulli_(p, generator=generator).clone()
        yield x.exponential_(0.5, generator=generator).clone()
        yield torch.bernoulli(p, generator=generator)
        yield torch.multinomial(p, 7, generator=generator)
        yield torch.normal(p, p, generator=generator)
        yield torch.normal(p, 2.0, generator=generator)
        yield torch.poisson(p, generator=generator)

    def several():
        torch.manual_seed(7)
        generator = torch.Generator(DEVICE).manual_seed(8)
        return [x.cpu() for _ in range(3) for given in (None, generator) for x in draw(given)]

    expected = several()
    setting("run_at_once", "always")
    before = metrics.counter_value("RunAtOnce") or 0
    actual = several()
    assert metrics.counter_value("RunAtOnce") >= before + len(expected)
    assert all(map(torch.equal, actual, expected))


@pytest.mark.lazy_only
@pytest.mark.own_schedule("counts graphs")
def test_a_graph_that_is_run_again_draws_anew():
    def step():
        return (torch.randn(100, device=DEVICE) + torch.rand(100, device=DEVICE)).cpu()

    drawn = [step(), step()]
    with work() as done:
        drawn += [step() for _ in range(6)]
    assert (done.compiles, done.fallbacks) == (0, 0)
    assert len(torch.stack(drawn).unique(dim=0)) == 8


@pytest.mark.lazy_only
@pytest.mark.parametrize(
    "draw",
    [
        lambda **k: torch.rand(5, device=DEVICE, **k),
        lambda **k: torch.randn(5, device=DEVICE, **k),
        lambda **k: torch.randint(100, (5,), device=DEVICE, **k),
        lambda **k: torch.randint(3, 100, (5,), device=DEVICE, **k),
        lambda **k: torch.rand_like(torch.empty(5, device=DEVICE), **k),
        lambda **k: torch.randn_like(torch.empty(5, device=DEVICE), **k),
        lambda **k: torch.randint_like(torch.empty(5, device=DEVICE), 100, **k),
        lambda **k: torch.normal(1.0, 2.0, (5,), device=DEVICE, **k),
    ],
)
def test_a_generator_draws_what_the_default_one_does(draw):
    torch.manual_seed(3)
    with work() as done:
        expected = draw().tolist()
        assert draw(generator=torch.Generator(DEVICE).manual_seed(3)).tolist() == expected
    assert done.fallbacks == 0


def test_normal_numbers_are_those_of_randn():
    torch.manual_seed(3)
    expected = torch.randn(5, device=DEVICE)
    torch.manual_seed(3)
    assert torch.equal(torch.normal(0.0, 1.0, (5,), device=DEVICE), expected)


@pytest.mark.parametrize("begin, end", [(100.0, 101.0), (2.0**24, 2.0**24 + 4), (-3.0, -2.0), (5.0, 5.0)])
def test_uniform_numbers_do_not_reach_the_end(begin, end):
    x = torch.empty(500_000, device=DEVICE).uniform_(begin, end)
    assert (x >= begin).all()
    assert (x < end).all() or begin == end


@pytest.mark.parametrize("n", [10, 1000])
@pytest.mark.parametrize(
    "draw",
    [
        lambda x: x.uniform_(-100, 100),
        lambda x: x.normal_(),
        lambda x: x.bernoulli_(0.5),
        lambda x: x.random_(0, 100),
        lambda x: x.exponential_(),
    ],
    ids=["uniform", "normal", "bernoulli", "random", "exponential"],
)
def test_a_seed_draws_the_same_elements_whatever_gaps_are_between_them(draw, n):
    torch.manual_seed(0)
    expected = draw(torch.empty(n, device=DEVICE))
    torch.manual_seed(0)
    memory = torch.zeros(2 * n, device=DEVICE)
    assert torch.equal(draw(memory[::2]).cpu(), expected.cpu())
    assert memory[1::2].count_nonzero().item() == 0
