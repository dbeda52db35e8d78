"""Calls that run at once because sizes vary: few graphs, eager's results, and recording as soon as sizes come again."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from helpers import DEVICE, assert_same_error, both, error_of, finish_pending, work

from torch_lazyplug import config, metrics
from torch_lazyplug.extract_compiled_graph import extract_compiled_graph

# Some of the first are whole programs, and some are what is left of these when others run at once.
LIMIT = 2 * config.get("max_size_variants") + 4

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool]


def ran_at_once():
    return metrics.counter_value("RunAtOnce") or 0


def compare(fn, sizes, dtype=torch.float32):
    """Calls fn with tensors of new sizes, and says how many calls ran at once and how many graphs were compiled."""
    before = ran_at_once()
    with work() as done:
        for size in sizes:
            both(fn, torch.linspace(-3, 3, 2 * size).view(2, size).to(dtype))
    assert done.fallbacks == 0, done.fallback_ops
    return ran_at_once() - before, done.compiles


@pytest.mark.own_schedule("counts what runs at once")
def test_layers_of_the_same_sizes_are_one_step():
    def layers(x):
        for _ in range(4):
            x = torch.cat([x, x], 0).erfc()[:2]
        return x

    at_once, compiles = compare(layers, range(1, 61))
    assert compiles <= LIMIT
    assert at_once > 50 * 4


@pytest.mark.own_schedule("counts what runs at once")
def test_a_growing_cache_compiles_little():
    weight = torch.randn(8, 8, device=DEVICE)
    cache = [torch.zeros(1, 8, device=DEVICE) for _ in range(2)]
    with work() as done:
        for _ in range(60):
            token = (cache[0][-1:] @ weight).erf()
            cache = [torch.cat([part, token]) for part in cache]
            (token @ cache[0].t()).softmax(-1).matmul(cache[1]).argmax().item()
    assert done.fallbacks == 0
    assert done.compiles <= LIMIT


@pytest.mark.smoke
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool]
)
@pytest.mark.own_schedule("counts what runs at once")
def test_numbers_are_converted_as_by_eager(dtype):
    def arithmetic(x):
        results = [x + 2, 3 * x, x / 3, 2.1 * x, x - 0.1, x + 16777217, x * True, x + 1j]
        return [*results, x + 1e300, torch.add(x, 0.3, alpha=2), torch.sub(x.float(), 5, alpha=0.5), 7 / x]

    numbers = arithmetic if dtype != torch.bool else lambda x: (x + 2, 3 * x, x / 3, 2.1 * x, x * True)
    at_once, _ = compare(numbers, range(101, 141), dtype)
    assert at_once > 20


def test_numbers_that_are_refused():
    fn = lambda x: (x * 2.5).expm1()  # noqa: E731
    compare(fn, range(201, 221))
    for size in range(221, 224):
        x = torch.ones(2, size, device=DEVICE)
        with pytest.raises(RuntimeError, match="Subtraction, the `-` operator, with a bool tensor"):
            x - True


@pytest.mark.own_schedule("counts what runs at once")
def test_results_are_ordinary_tensors():
    def chain(x):
        return (x * 2 + 1).sum().sinc()

    compare(chain, range(301, 321))
    known = torch.ones(4, device=DEVICE).neg()
    before = ran_at_once()
    x = torch.ones(2, 321, device=DEVICE)
    y = x * 2 + 1
    assert ran_at_once() > before
    assert y.device == x.device
    assert (y._version, y.is_leaf, y.requires_grad, y.is_inference()) == (0, True, False, False)
    assert torch._C._dispatch_keys(y).raw_repr() == torch._C._dispatch_keys(known).raw_repr()
    y.add_(1)
    assert y._version == 1
    with torch.inference_mode():
        assert (torch.ones(2, 322, device=DEVICE) * 2).is_inference()


@pytest.mark.own_schedule("counts what runs at once")
def test_gradients():
    def step(x):
        x = x.detach().requires_grad_()
        y = ((x * 2 + 1).relu() / 3).exp2().sum()
        (gradient,) = torch.autograd.grad(y, x)
        return y.detach(), gradient

    at_once, compiles = compare(step, range(401, 441))
    assert at_once > 100
    assert compiles <= LIMIT


@pytest.mark.own_schedule("counts what runs at once")
def test_writes():
    def write(x):
        y = x.clone()
        y.mul_(2).add_(1)
        view = y[:, :1]
        view += 1
        return y, view, y.logit_()

    at_once, _ = compare(write, range(501, 541))
    assert at_once > 100


def constant(y):
    return (y.xlogy(y) + 1).sum(1)


def grow(x, y):
    return (x.xlogy(x) + 1).sum(), constant(y)


@pytest.mark.own_schedule("counts what runs at once")
def test_what_does_not_vary_goes_with_what_does():
    y = torch.rand(3, 7, device=DEVICE) + 1
    expected = constant(y.cpu())

    def run(sizes):
        before = ran_at_once()
        with work() as done:
            for size in sizes:
                value, rest = grow(torch.ones(2, size, device=DEVICE), y)
                assert value.item() == 2 * size
                assert torch.equal(rest.cpu(), expected)
        return ran_at_once() - before, done

    run(range(601, 631))
    _, done = run(range(631, 641))
    assert (done.recorded, done.compiles) == (0, 0)
    run(range(601, 631))
    run(range(601, 631))
    at_once, done = run(range(601, 631))
    assert (at_once, done.compiles) == (0, 0)
    assert done.recorded > 100


@pytest.mark.own_schedule("counts what runs at once")
def test_a_model_that_is_extracted_is_recorded():
    class Model(torch.nn.Module):
        def forward(self, x):
            return (x * 2 + 1).erfinv()

    model = torch.fx.symbolic_trace(Model())
    compare(model, range(651, 671))
    x = torch.full((2, 671), -0.4, device=DEVICE)
    run = extract_compiled_graph(model, [x])
    assert torch.equal(run(x)[0].cpu(), model(x.cpu()))


def test_without_reads_a_step_ends_some_time():
    def run(size):
        x = torch.ones(2, size, device=DEVICE)
        return (x.rad2deg() * 2).sum()

    for size in range(701, 731):
        run(size).item()
    before = ran_at_once()
    for _ in range(6000):
        run(731)
    assert ran_at_once() - before < 4 * 5000
    finish_pending()


@pytest.mark.own_schedule("counts what runs at once, and graphs")
def test_results_that_are_dropped_make_no_other_graphs():
    """What lives in a trace, and where, varies with every cut: the last result is held until the next is there."""
    a, b = torch.rand(4, 4), torch.rand(4, 4)
    x, y = a.to(DEVICE), b.to(DEVICE)
    held, before = None, ran_at_once()
    with work() as done:
        for step in range(300):
            for _ in range(73):
                result = x + y
            held, older = result, held
            if step % 50 == 7:
                assert torch.equal(older.cpu(), a + b)
    finish_pending()
    assert ran_at_once() == before
    assert done.compiles <= 12  # one for each way in which one or two results are needed, and some at first


@pytest.mark.own_schedule("counts what runs at once")
def test_small_calls_in_place_write_what_others_see():
    """Views, aliases on the CPU and saved tensors, of sizes that come only once."""

    def gates(x):
        parts = x.clone()
        left, right = parts.chunk(2, 1) if parts.shape[1] > 1 else (parts, parts.clone())
        right = right[:, : left.shape[1]]
        left.mul_(2).add_(left)
        if right.shape == left.shape:
            left.add_(right, alpha=0.5)
        right.neg_()
        return parts, left * 3

    at_once, _ = compare(gates, range(4, 64))
    assert at_once > 40 * 5
    for size in range(70, 75):
        x = torch.ones(2, size, device=DEVICE)
        version, kept = x._version, x.detach()
        x.add_(1).mul_(3)
        assert x._version == version + 2
        assert kept.sum().item() == 6 * 2 * size
    x = torch.ones(2, 80, device=DEVICE, requires_grad=True)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def at_once():
    with config.changed({"run_at_once": "always"}):
        yield
        finish_pending()


def line_search(device):
    """A few ops between two reads, in and out of place, by numbers and by tensors; returns all that it has read."""
    weights = torch.linspace(-1, 1, 10).to(device).requires_grad_()
    x = torch.linspace(-2, 2, 200).view(20, 10).to(device)
    y = (x.detach().cpu().sum(1) > 0).float().to(device)
    seen, step = [], 0.5
    for _ in range(8):
        loss = F.binary_cross_entropy_with_logits(x @ weights, y) + 0.01 * weights.square().sum()
        (gradient,) = torch.autograd.grad(loss, weights)
        seen += [loss.item(), gradient.abs().max().item(), gradient.dot(gradient).item()]
        with torch.no_grad():
            weights.add_(gradient, alpha=-step)
            kept = weights.clone()
            weights.copy_(kept * (kept.norm() < 10)).mul_(0.99)
        step = step * 0.9 if bool(loss > seen[0]) else step * 1.1
    return seen + [*weights.tolist(), *(weights - kept).cumsum(0).tolist()]


@pytest.mark.own_schedule("counts what runs at once")
def test_short_steps_run_at_once_if_the_flag_says_so(at_once):
    expected = line_search("cpu")
    metrics.reset()
    assert line_search(DEVICE) == expected
    assert ran_at_once() > 100
    assert metrics.counter_value("NodesRecorded") in (None, 0)
    assert metrics.counter_value("Flush") in (None, 0)


def assert_same_at_once(compute, at_least):
    """Calls compute twice, recorded and at once: the same bits and strides, with so many calls at once."""
    recorded = compute()
    before = ran_at_once()
    with config.changed({"run_at_once": "always"}):
        at_once = compute()
    assert ran_at_once() - before >= at_least
    for (wanted, strides), (got, same_strides) in zip(recorded, at_once, strict=True):
        assert torch.equal(wanted, got)
        assert strides == same_strides


@pytest.mark.own_schedule("counts what runs at once")
def test_at_once_functions_have_the_bits_of_graphs(functions):
    """Also where dimensions of one element have odd strides, alone and in lists."""
    odd = torch.linspace(-2, 2, 30).as_strided((2, 1, 3, 5), (15, 1, 5, 1))
    columns = torch.randn(30, 70, 1, generator=torch.Generator().manual_seed(0))
    usual = torch.linspace(0, 3, 24).view(4, 6)

    def compute():
        x, y = odd.to(DEVICE), usual.to(DEVICE)
        lists = torch._foreach_sqrt([x.abs(), y])
        results = [x.exp(), (x * 2).sigmoid(), F.gelu(x), F.softmax(x, -1), y.tanh(), y[:1].softmax(-1), *lists]
        for row in columns.to(DEVICE).transpose(1, 2).unbind():
            results += [row.logsumexp(1), row.softmax(1), row.sum(1), (row * 2).sum(1)]
        return [(result.cpu(), result.stride()) for result in results]

    assert_same_at_once(compute, at_least=9)


@pytest.mark.own_schedule("counts what runs at once")
def test_kernels_of_networks_have_the_bits_of_graphs():
    def compute():
        torch.manual_seed(0)
        images = torch.randn(2, 3, 8, 8).to(DEVICE)
        weight = torch.randn(4, 3, 3, 3).to(DEVICE).requires_grad_()
        scale, index = torch.rand(4).to(DEVICE), torch.tensor([3, 0, 3]).to(DEVICE)
        y = F.conv2d(images, weight, padding=1)
        (gradient,) = torch.autograd.grad(y.square().sum(), weight)
        y = y.detach()
        means, variances = torch.zeros(4).to(DEVICE), torch.ones(4).to(DEVICE)
        results = [y, gradient, F.max_pool2d(y, 2), F.avg_pool2d(y, 2), F.interpolate(y, scale_factor=2)]
        results += [F.batch_norm(y, means, variances, scale, scale, training=True), means, variances]
        results += [F.layer_norm(y, (8,), y[0, 0, 0], y[0, 0, 1]), torch.cdist(y[0, 0], y[0, 1])]
        rows = y.view(8, 64)
        results += [rows[index], rows[:, index], rows[None, index], rows.clone().index_put_((index,), rows[:3] * 2)]
        return [(result.cpu(), result.stride()) for result in results]

    assert_same_at_once(compute, at_least=13)


@pytest.mark.own_schedule("counts what runs at once")
def test_libraries_have_the_same_threads_at_once_as_in_graphs(two_threads):
    """Whose bits depend on these."""
    generator = torch.Generator().manual_seed(0)
    cases = [
        [torch.randn(1, heads, n, size, generator=generator) for n in (rows, columns, columns)]
        for heads, rows, columns, size in ((1, 5, 5, 64), (1, 9, 9, 32), (1, 3, 70, 64), (3, 20, 20, 64))
    ]
    signals = [torch.randn(size, generator=generator) for size in ((25, 32), (8, 600), (100, 70))]
    layer = torch.nn.TransformerEncoderLayer(32, 4, 48, batch_first=True).eval()
    attention = torch.nn.MultiheadAttention(32, 4, batch_first=True).eval()

    def compute():
        results = []
        for case in cases:
            q, k, v = (x.to(DEVICE).requires_grad_() for x in case)
            y = F.scaled_dot_product_attention(q, k, v)
            results += [y, *torch.autograd.grad(y.square().sum(), (q, k, v))]
        results += [torch.view_as_real(torch.fft.rfft(x.to(DEVICE))) for x in signals]
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            table = signals[2].to(DEVICE, dtype).requires_grad_()
            y = table.softmax(0)
            results += [y, *torch.autograd.grad(y[3].square().sum(), table), table.log_softmax(0)]
        x = signals[0].to(DEVICE).view(1, 25, 32)
        with torch.no_grad():
            results += [layer.to(DEVICE)(x), attention.to(DEVICE)(x, x, x)[0]]
        return [(result.detach().cpu(), result.stride()) for result in results]

    assert_same_at_once(compute, at_least=12)


@pytest.mark.own_schedule("counts what runs at once")
def test_at_once_errors_are_raised_at_the_line(functions, at_once):
    x = torch.ones(3, device=DEVICE)
    with pytest.raises(RuntimeError, match="inconsistent tensor size"):
        x.dot(torch.ones(4, device=DEVICE))
    with pytest.raises(IndexError, match="Dimension out of range"):
        x.sum(1)
    too_large = (
        lambda: x.fill_(1e300),
        lambda: torch.add(x, x, alpha=1e300),
        lambda: x.addcmul_(x, x, value=1e300),
        lambda: F.softplus(x, 1e300),
        lambda: x.masked_fill(x > 0, 1e39),
        lambda: x.masked_fill_(x > 0, 1e39),
    )
    for call in too_large:
        with pytest.raises(RuntimeError, match="value cannot be converted to type float without overflow"):
            call()
    assert (x + 1).tolist() == [2.0, 2.0, 2.0]


def test_small_calls_on_whatever_lies_otherwise_give_eagers_results():
    def compute(x, y, column, truths, counts):
        scalar = x[0, 0]
        y[1:-1, 1:-1] += x[2:, 1:-1]
        y[:, 0].mul_(0.5)
        y.t()[2:4].add_(1)
        y[3] = 7
        y[truths] = -1
        x.diagonal().sub_(2)
        counts[1:] = 5
        spread = [x + y[0], x - column, x * scalar, column / y[0], scalar - x.t(), x[:, ::2] * y[:, 1::2]]
        compared = [x > y[0], x == column, truths & (x > 0), ~truths, truths | truths[0], counts > 3]
        chosen = [torch.where(truths, x, column), x.masked_fill(truths[0], 3), x.clamp(min=0), x[:1] + column]
        integers = [counts + 1, counts * counts, counts[:, None] - counts, counts.clamp(0, 3), -counts, 7 - counts]
        joined = [torch.cat([x, y]), torch.cat([x, column], 1), torch.stack([x, y], 1), torch.stack([scalar, y[0, 0]])]
        converted = [truths.float(), counts.double(), x.double(), x.double().float(), truths.long(), counts.float()]
        return [*spread, *compared, *chosen, *integers, *joined, *converted, y.clamp_(-2, 2)]

    torch.manual_seed(0)
    x, y, column = torch.randn(6, 8), torch.randn(6, 8), torch.randn(6, 1)
    before = ran_at_once()
    with config.changed({"run_at_once": "always"}):
        for dtype in (torch.float32, torch.float64):
            inputs = (x.to(dtype), y.to(dtype), column.to(dtype), x > 0, torch.arange(4))
            both(compute, *inputs, fallbacks=None)
    assert ran_at_once() - before > 80


def test_dimensions_of_one_element_keep_what_strides_they_have():
    def compute(x, index):
        odd = x.as_strided((3, 1, 2, 2), (4, 1, 2, 1))
        return odd[index], torch.nn.functional.hardtanh(odd), torch.nn.functional.relu6(x.view(4, 5)[:1, 1:]), odd * 2

    with config.changed({"run_at_once": "always"}):
        both(compute, torch.randn(20), torch.tensor([0]), fallbacks=None)


def test_what_is_made_of_numbers_is_made_at_once():
    def make(device):
        options = [{}, {"dtype": torch.float64}, {"dtype": torch.int64}, {"dtype": torch.bool}]
        filled = [partial(fill, size) for size in ((2, 3), (0,), ()) for fill in (torch.zeros, torch.ones)]
        results = [make(device=device, **dtype) for make in filled for dtype in options]
        results += [torch.full((2, 3), 1.5, device=device), torch.full((3,), 2, device=device)]
        results += [torch.arange(*bounds, device=device) for bounds in ((5,), (2, 7), (1, 4.5, 0.5))]
        return [*results, torch.eye(3, device=device), torch.scalar_tensor(2.5, device=device)]

    before = ran_at_once()
    with config.changed({"run_at_once": "always"}):
        made = make(DEVICE)
    assert ran_at_once() - before >= 24
    for result, expected in zip(made, make("cpu"), strict=True):
        assert result.device.type == DEVICE and result.dtype == expected.dtype and result.stride() == expected.stride()
        assert torch.equal(result.cpu(), expected)


@pytest.mark.parametrize("always", [False, True])
def test_copies_to_and_from_the_cpu_keep_bits_and_strides(always):
    torch.manual_seed(0)
    whole = torch.randn(6, 8)
    with config.changed({"run_at_once": "always" if always else "never"}):
        views = (whole, whole.t(), whole[:, 1:3], whole[2], whole[1:4, ::3], whole[:0])
        for x in (*views, whole.to(torch.bfloat16), whole > 0):
            there = x.to(DEVICE)
            assert there.stride() == x.to(copy=True).stride()
            back = there.cpu()
            assert torch.equal(back, x) and back.stride() == there.stride()
            assert there.tolist() == x.tolist()
            target = torch.zeros_like(x)
            assert torch.equal(target.copy_(there), x)
        there = whole.to(DEVICE)
        assert torch.equal(there[1:3].cpu(), whole[1:3])
        assert torch.equal(there[1:3].t().cpu(), whole[1:3].t())
        assert torch.equal(torch.conj(there + 1j).cpu(), torch.conj(whole + 1j))
        there[2].copy_(whole[3])
        assert torch.equal(there.cpu()[2], whole[3])


@pytest.mark.own_schedule("what is pending may have been computed in another")
@pytest.mark.parametrize("shape", ((5, 3), (5, 3, 2, 2)))
def test_running_statistics_change_for_later_readers_only(shape):
    """The schema of batch norm does not say that it writes them."""

    def compute(x, mean, var):
        F.batch_norm(x, mean, var, training=True, momentum=0.5)
        mean.tolist()
        before = (mean * 10, var.clone(), mean[1:] + 1)
        with config.changed({"run_at_once": "always"}):
            F.batch_norm(x, mean, var, training=True, momentum=0.5)
            kept = mean.clone()
            after = F.batch_norm(x, mean, var, training=False)
            F.batch_norm(x, mean, var, training=True, momentum=0.5)
        return (*before, kept, after, mean, var)

    torch.manual_seed(0)
    both(compute, torch.randn(shape), torch.zeros(3), torch.ones(3), fallbacks=None)


INDEX = torch.tensor([4, -1, 0, 2, 2])

INDEXING = {
    "rows": lambda x: x[INDEX.to(x.device)],
    "columns": lambda x: x[:, INDEX.to(x.device)],
    "the last dimension": lambda x: x[..., INDEX.to(x.device) - 1],
    "pairs": lambda x: x[INDEX.to(x.device), INDEX.to(x.device).flip(0)],
    "matrices of numbers": lambda x: x[INDEX.view(5, 1).to(x.device)],
    "numbers with gaps": lambda x: x[INDEX.repeat(2, 1).t().to(x.device)[:, 1]],
    "broadcast": lambda x: x[INDEX.view(5, 1).to(x.device), INDEX.to(x.device)],
    "of a transposed one": lambda x: x.transpose(0, 1)[INDEX.to(x.device)],
    "written": lambda x: x.index_put_((INDEX.to(x.device),), x.new_tensor(7)),
    "written, from others": lambda x: x.index_put_((INDEX.flip(0).to(x.device),), x[INDEX.to(x.device)]),
    "columns written": lambda x: x.__setitem__((slice(None), INDEX.to(x.device)), 1),
    "written by a mask": lambda x: x.masked_fill_(x > 1, 0).index_put_((x < -1,), x.new_tensor(2)),
}


@pytest.mark.parametrize("name", INDEXING)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_indices_name_is_eagers(name, dtype):
    with config.changed({"run_at_once": "always"}):
        both(INDEXING[name], (torch.arange(5 * 5 * 6) - 70).view(5, 5, 6).to(dtype))


@pytest.mark.parametrize("number", [5, -6])
def test_indices_out_of_range_raise_as_eagers(number):
    x, index = torch.randn(5, 3), torch.tensor([0, number])
    for take in (lambda x, i: x[i], lambda x, i: x[:2].t()[:, i - 3], lambda x, i: x.index_put_((i,), x[:2])):
        with config.changed({"run_at_once": "always"}):
            error = error_of(take, x.to(DEVICE), index.to(DEVICE))
        assert_same_error(error, error_of(take, x, index))


@pytest.mark.own_schedule("counts what runs at once")
def test_numbers_index_at_once_without_a_fallback():
    x, index = torch.randn(6, 4, device=DEVICE), INDEX.to(DEVICE)
    with config.changed({"run_at_once": "always"}), work() as done:
        before = ran_at_once()
        x[index]
        x[index] = 0.5
    assert done.fallbacks == 0, done.fallback_ops
    assert ran_at_once() - before == 3  # the number is one, too


def put(op, *others, into=lambda x: torch.full_like(x, 9)):
    """Puts what the op makes of x and the others into a tensor, which is to be returned."""

    def call(x):
        out = into(x)
        version = out._version
        result = op(x, *(other(x) if callable(other) else other for other in others), out=out)
        return result is out, result, x, out._version - version

    return call


GIVEN = {
    "add": put(torch.add, lambda x: x.flip(0)),
    "of a number": put(torch.mul, 0.1),
    "broadcast": put(torch.sub, lambda x: x[0]),
    "truths": put(torch.le, 0, into=lambda x: torch.zeros_like(x, dtype=torch.bool)),
    "power": put(torch.pow, 2),
    "function": put(torch.exp),
    "product": put(torch.mm, lambda x: x.t(), into=lambda x: x.new_zeros(4, 4)),
    "sums": put(torch.sum, 1, into=lambda x: x.new_zeros(4)),
    "a part": put(torch.neg, into=lambda x: x.new_zeros(8, 6)[2:6, :5]),
    "transposed": put(torch.neg, into=lambda x: x.new_zeros(5, 4).t()),
    "another dtype": put(torch.add, 1, into=lambda x: x.double()),
    "resized": put(torch.add, 1, into=lambda x: x.new_zeros(0)),
    "what is read": put(torch.mul, lambda x: x, into=lambda x: x),
    "the second": lambda x: put(torch.sub, y := x * 2, into=lambda _: y)(x),
    "what overlaps": lambda x: put(torch.neg, into=lambda _: x[1:])(x[:-1]),
    "a row": put(torch.mul, 2, into=lambda x: x[1]),
    "its own factor": lambda x: put(torch.mm, x[:4, :4], into=lambda y: y)(x[:4, :4].clone()),
    "a truth for a number": put(torch.add, 1, into=lambda x: x > 0),
}


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("run_at_once", ["always", "never"])
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_given_tensors_are_written_as_eagers(name, run_at_once):
    def call(device):
        return GIVEN[name](torch.linspace(-2, 2, 20).view(4, 5).to(device))

    with config.changed({"run_at_once": run_at_once}), work() as done:
        if expected := error_of(call, "cpu"):
            assert_same_error(error_of(call, DEVICE), expected)
            return
        (is_out, *actual), (_, *expected) = call(DEVICE), call("cpu")
    assert done.fallbacks == 0, done.fallback_ops
    assert is_out
    assert actual.pop() == expected.pop()
    for result, other in zip(actual, expected, strict=True):
        assert (result.dtype, result.shape, result.stride()) == (other.dtype, other.shape, other.stride())
        torch.testing.assert_close(result.cpu(), other, rtol=1e-6 if name == "function" else 0, atol=0)


CONVERTED = {
    "as it is": lambda x: x.to(x.device, copy=True),
    "another dtype": lambda x: x.to(torch.float64),
    "truths": lambda x: x.bool(),
    "transposed": lambda x: x.transpose(0, 2).long(),
    "with gaps": lambda x: x[:, ::2].to(torch.float16),
    "expanded": lambda x: x[:1].expand(4, 5, 3).double(),
    "contiguous": lambda x: x.transpose(0, 1).to(torch.float64, memory_format=torch.contiguous_format),
    "one element": lambda x: x[1, 1, 1].to(torch.int8),
    "none": lambda x: x[:0].to(torch.float64),
    "differentiated": lambda x: torch.autograd.grad(x.requires_grad_().to(torch.float64).square().sum(), x)[0],
}


@pytest.mark.parametrize("name", CONVERTED)
@pytest.mark.parametrize("run_at_once", ["always", "never"])
def test_copies_lie_as_eagers(name, run_at_once):
    with config.changed({"run_at_once": run_at_once}):
        both(CONVERTED[name], torch.arange(60.0).view(4, 5, 3))


@pytest.mark.parametrize("dtype", [None, torch.float64])
def test_copies_on_the_cpu_lie_as_eagers(dtype):
    x = torch.arange(60.0).view(4, 5, 3)
    for view in (lambda x: x, lambda x: x.transpose(0, 1), lambda x: x[:, ::2], lambda x: x[:1].expand(2, 5, 3)):
        copy, expected = view(x.to(DEVICE)).to("cpu", dtype), view(x).to("cpu", dtype, copy=True)
        assert copy.device.type == "cpu"
        assert copy.dtype == expected.dtype
        assert copy.stride() == expected.stride()
        assert torch.equal(copy, expected)
