"""One graph for one program: changing numbers, names and objects must not compile again; changing shapes must."""

import gc
import itertools
import random

import pytest
import torch
from helpers import DEVICE, both, finish_pending, work

WARM_UP = 3


def repeated(step, times=8):
    """Work of a warm `step(i)`; each step ends with everything run."""
    for i in range(WARM_UP):
        step(i)
        finish_pending()
    with work() as done:
        for i in range(WARM_UP, WARM_UP + times):
            step(i)
            finish_pending()
    assert done.fallbacks == 0, done.fallback_ops
    return done


# Scalars -------------------------------------------------------------------------------------------------------------

SCALAR_USES = {
    "add": lambda x, s: x + s,
    "radd": lambda x, s: s + x,
    "sub": lambda x, s: x - s,
    "rsub": lambda x, s: s - x,
    "mul": lambda x, s: x * s,
    "div": lambda x, s: x / s,
    "rdiv": lambda x, s: s / x,
    "pow": lambda x, s: x**s,
    "add_alpha": lambda x, s: torch.add(x, x, alpha=s),
    "add_in_place": lambda x, s: x.clone().add_(s),
    "mul_in_place": lambda x, s: x.clone().mul_(s),
    "fill": lambda x, s: x.clone().fill_(s),
    "full": lambda x, s: torch.full((3,), s, device=x.device) + x[0, :3],
    "full_like": lambda x, s: torch.full_like(x, s) * x,
    "setitem": lambda x, s: x.clone().index_fill_(0, torch.tensor([1], device=x.device), s),
    "clamp": lambda x, s: x.clamp(-s, s),
    "clamp_min": lambda x, s: x.clamp(min=s),
    "lerp": lambda x, s: x.lerp(x * 2, s),
    "addcmul": lambda x, s: torch.addcmul(x, x, x, value=s),
    "addcdiv": lambda x, s: torch.addcdiv(x, x, x + 2, value=s),
    "addmm": lambda x, s: torch.addmm(x, x, x, beta=s, alpha=s),
    "compare": lambda x, s: x > s,
    "where": lambda x, s: torch.where(x > 0, x, s),
    "leaky_relu": lambda x, s: torch.nn.functional.leaky_relu(-x, s),
    "cpu_scalar_tensor": lambda x, s: x * torch.tensor(s),
    "cpu_scalar_tensor_in_place": lambda x, s: x.clone().mul_(torch.tensor(s, dtype=torch.float64)),
}


@pytest.mark.parametrize("use", SCALAR_USES)
def test_scalar_values(use):
    for scalar in (0.5, 1.5, 2.25, -3.0, 1.0, 0.0, float("inf")):
        both(lambda x, s=scalar: SCALAR_USES[use](x, s), torch.rand(4, 4) + 0.5)


@pytest.mark.lazy_only
@pytest.mark.parametrize("use", SCALAR_USES)
@pytest.mark.own_schedule("counts graphs")
def test_changing_scalars_do_not_compile(use):
    x = torch.rand(4, 4).to(DEVICE) + 0.5
    kept = []
    done = repeated(lambda i: kept.append(SCALAR_USES[use](x, 0.25 + i)))
    assert done.compiles == 0
    assert done.cache_misses == 0


@pytest.mark.parametrize("scalar", (True, False, 3, -1, 2**40, 0.5, float("nan"), float("-inf")))
def test_scalar_kinds(scalar):
    def compute(x, n):
        y = torch.zeros(2, device=x.device).fill_(scalar)
        return x * scalar, x + scalar, n * scalar, n + scalar, y, torch.full((2,), scalar, device=x.device)

    both(compute, torch.tensor([1.0, -2.0]), torch.tensor([3, -4]))


def test_kinds_of_scalar_do_not_mix():
    """An int and a float of the same value promote differently: the graph of one must not serve the other."""

    def compute(n):
        return n * 2, n * 2.0, n * True, n / 1, n // 2, n // 2.0, n**2, n**2.0, n + 1j

    for _ in range(2):
        both(compute, torch.tensor([1, 2, 3]))


def test_complex_scalars():
    for scalar in (1j, 2 - 3j, 0.5 + 0j):
        both(lambda c, s=scalar: (c * s, c + s, c - s), torch.tensor([1 + 1j, -2j]))


def test_float_scalars_keep_double_precision():
    for scalar in (1 / 3, 1e-300, 1 + 1e-12):
        both(lambda x, s=scalar: (x * s, x + s), torch.rand(3, dtype=torch.float64))


def test_constants_that_shape_the_result_are_part_of_the_graph():
    def compute(x):
        results = [x.sum(dim) for dim in (0, 1, 2)]
        results += [x.roll(shift, 0) for shift in (1, 2)]
        results += [x.softmax(dim) for dim in (0, -1)]
        results += [torch.cumsum(x, dim) for dim in (0, 1)]
        results += [x.topk(k).values for k in (1, 2)]
        return results + [x.sum(0, keepdim=keep) for keep in (True, False)]

    both(compute, torch.rand(2, 3, 4))


@pytest.mark.lazy_only
@pytest.mark.parametrize("kind", ("SGD", "Adam", "AdamW", "RMSprop"))
@pytest.mark.parametrize("foreach", (False, True))
@pytest.mark.own_schedule("counts graphs")
def test_optimizer_with_a_schedule_does_not_compile(kind, foreach):
    model = torch.nn.Linear(4, 3).to(DEVICE)
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.1, foreach=foreach)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    x = torch.rand(5, 4).to(DEVICE)

    def step(_):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
        schedule.step()

    assert repeated(step).compiles == 0


@pytest.mark.lazy_only
@pytest.mark.own_schedule("counts graphs")
def test_random_numbers_differ_from_one_graph():
    x = torch.ones(1000).to(DEVICE)
    results = []
    done = repeated(lambda _: results.append(torch.nn.functional.dropout(x)))
    assert done.compiles == 0
    results = [result.cpu() for result in results]
    assert all(not torch.equal(a, b) for a, b in itertools.pairwise(results))
    assert all(400 < (result == 0).sum() < 600 for result in results)


# Cache ---------------------------------------------------------------------------------------------------------------


@pytest.mark.smoke
@pytest.mark.lazy_only
@pytest.mark.own_schedule("counts graphs")
def test_same_program_hits_the_cache():
    def program():
        x = torch.ones(3, 5, device=DEVICE)
        return ((x * 2).tanh() + x).sum().item()

    first = program()
    with work() as done:
        assert program() == first
    assert (done.compiles, done.cache_hits, done.cache_misses) == (0, 1, 0)
    assert done.flushes == 1


@pytest.mark.lazy_only
@pytest.mark.own_schedule("counts graphs")
def test_first_time_compiles_exactly_once():
    x = torch.ones(3, 17).to(DEVICE)
    with work() as done:
        (x.sin() * 3).cos().cpu()
    assert (done.compiles, done.cache_hits, done.cache_misses) == (1, 0, 1)
    assert done.executed >= 3


@pytest.mark.lazy_only
@pytest.mark.own_schedule("counts graphs")
def test_each_shape_compiles_once():
    def program(n):
        x = torch.ones(n, device=DEVICE)
        return (x * 3 - 1).sum().item()

    sizes = (21, 22, 23)
    with work() as done:
        assert [program(n) for n in sizes * 3] == [2.0 * n for n in sizes * 3]
    assert done.compiles <= len(sizes)
    assert done.cache_hits == 3 * len(sizes) - done.compiles


def test_strides_and_dtypes_are_part_of_the_graph():
    def compute(x):
        return x * 2 + 1

    x = torch.rand(4, 4)
    for tensor in (x, x.t(), x[:, ::2], x[1:], x.to(torch.float64), (x * 9).to(torch.int64)):
        for _ in range(2):
            both(compute, tensor)


@pytest.mark.lazy_only
def test_nothing_pending_means_no_work():
    finish_pending()
    x = torch.ones(2).to(DEVICE)
    x.cpu()
    with work() as done:
        for _ in range(5):
            finish_pending()
            x.cpu()
    assert (done.flushes, done.compiles, done.executed) == (0, 0, 0)


@pytest.mark.lazy_only
@pytest.mark.own_schedule("counts graphs")
def test_dead_results_are_not_computed():
    x = torch.ones(4, 4).to(DEVICE)
    with work() as done:
        for _ in range(10):
            x @ x
        finish_pending()
    assert done.executed == 0


@pytest.mark.lazy_only
@pytest.mark.own_schedule("counts graphs")
def test_order_of_results_is_stable():
    """Roots are ordered by creation, whatever hashes, addresses and the order of deletion say."""
    x = torch.rand(4).to(DEVICE)
    shuffle = random.Random(0).shuffle

    def step(_):
        results = [x + 1, x * 2, x - 3, x / 4, x.sin(), x.cos(), x.exp(), x.tanh()]
        shuffle(results)
        noise = [object() for _ in range(random.randrange(50))]
        holder = set(results)
        finish_pending()
        del holder, noise
        gc.collect()

    assert repeated(step, times=20).compiles == 0


@pytest.mark.smoke
def test_liveness_is_part_of_the_graph():
    """The same ops with other results alive: each must be there, and right."""
    x = torch.rand(5)

    def compute(x, keep):
        a = x + 1
        b = a * 2
        c = b.exp()
        d = a - c
        results = [a, b, c, d]
        return [result for result, kept in zip(results, keep, strict=True) if kept]

    for _ in range(2):
        for bits in range(16):
            both(lambda x, bits=bits: compute(x, [bits >> i & 1 for i in range(4)]), x)


def test_same_graph_on_other_data():
    def compute(x):
        return (x * 2).sum(0), x.mean()

    for seed in range(4):
        both(compute, torch.rand(3, 4, generator=torch.Generator().manual_seed(seed)))


def test_aliasing_inputs_are_told_apart():
    """`a + a` and `a + b` have the same shapes but are different programs; so are writes to shared memory."""

    def write(a, b):
        a.add_(1)
        return a + b, a * b

    x = torch.rand(4)
    for _ in range(2):
        both(write, x.clone(), x.clone())
        both(write, x, x)
        both(write, x[:2], x[2:])


@pytest.mark.lazy_only
@pytest.mark.own_schedule("counts graphs")
def test_text_of_a_pending_graph():
    import torch_lazyplug

    x = torch.ones(2, 3).to(DEVICE)
    y = (x * 2).relu()
    text = torch_lazyplug.debug.get_tensors_text([y])
    assert "aten::mul" in text
    assert "aten::relu" in text
    assert text.index("aten::mul") < text.index("aten::relu")
    assert y.sum().item() == 12
