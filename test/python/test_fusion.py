"""Neighbouring pointwise ops share a kernel: the same bits as PyTorch's kernels, one by one, whatever is in a group."""

import pytest
import torch
import torch.nn.functional as F
from helpers import DEVICE, assert_same, groups, work

import torch_lazyplug
from torch_lazyplug import config

pytestmark = pytest.mark.usefixtures("fresh_groups")


def inputs(shape=(5, 33), dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator, dtype=dtype) for _ in range(3)]


def chain(a, b, c):
    x = torch.where(a > b, a * 1.5 - c, -b)
    x = (x + b[0]).relu() / (c.abs() + 1)
    return x.sqrt() * (a != c)


def on_device(function, *tensors):
    return function(*(t.to(DEVICE) for t in tensors)).cpu()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(5, 33), (3, 4, 700), (2, 2), (300, 1000)])
@pytest.mark.own_schedule("counts groups")
def test_a_chain_is_one_group(shape, dtype):
    tensors = inputs(shape, dtype)
    with work() as done:
        actual = on_device(chain, *tensors)
    assert torch.equal(actual, chain(*tensors))
    assert groups() == (1, 13)
    assert (done.compiles, done.fallbacks) == (1, 0)


def bounded(a, b, c):
    """Bounds, slopes, masks, and numbers that become integers."""
    inside = (a > -1) & (a.clamp(max=1) < 1) | ~(b != b)
    x = F.leaky_relu(a.clamp(-0.5, 1.5), 0.1).masked_fill(inside ^ (c > 0), -2.5)
    x = F.hardtanh(x * 3) + (b * 2).round() - b.floor() + c.ceil() * c.trunc()
    x = x.clamp_(min=-4).masked_fill_(b.logical_not(), 7)
    return x * (inside.logical_not() | (c == 0).logical_or(inside))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(5, 33), (300, 1000)])
@pytest.mark.own_schedule("counts groups")
def test_bounds_and_masks_are_in_groups(shape, dtype):
    tensors = inputs(shape, dtype)
    for tensor in tensors:  # half-way between integers, and what is no ordinary number
        tensor[0, :7] = torch.tensor([0.5, 1.5, -0.5, -0.0, torch.nan, torch.inf, -torch.inf])
    with work() as done:
        actual = on_device(bounded, *tensors)
    assert_same(actual, bounded(*tensors))
    assert groups()[0] == 1 and groups()[1] >= 25, groups()
    assert (done.compiles, done.fallbacks) == (1, 0)


def narrow(a, b, c):
    """Rounded after each step, with numbers that the dtype has and numbers that it has not."""
    x = (a * 0.3 + b - 0.7) / (c.abs() + 1)
    x = torch.where(x > 0.1, x * b, 0.3 - x).clamp(-2.3, 2.7).masked_fill(a == b, 0.1)
    wide = x.float() * 1.1 + c
    y = F.leaky_relu(x - b, 0.1).add_(wide.to(a.dtype)).mul_(a)
    return torch.addcmul(y, b, c, value=0.3) * (x <= c) + y.floor() ** 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(5, 33), (300, 1000)])
@pytest.mark.parametrize("assemble_after", [-1, 0])
@pytest.mark.own_schedule("counts groups")
def test_narrow_floats_are_in_groups(shape, dtype, assemble_after):
    tensors = inputs(shape, dtype)
    for tensor in tensors:
        tensor[0, :7] = torch.tensor([0.0, -0.0, torch.nan, torch.inf, -torch.inf, 6e4, 1e-7])
    before = config.get("assemble_after")
    config.set("assemble_after", assemble_after)
    with work() as done:
        actual = on_device(narrow, *tensors)
    config.set("assemble_after", before)
    # The signs of NaN are nobody's.
    assert_same(actual.nan_to_num(0.5), narrow(*tensors).nan_to_num(0.5))
    assert groups() == (1, 27)
    assert (done.compiles, done.fallbacks) == (1, 0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_what_the_cpu_rounds_in_between_is_the_cpus(dtype):
    a, b, _ = (tensor.abs() + 0.1 for tensor in inputs((40, 50), dtype))

    def program(a, b):
        x = torch.add(a, b, alpha=0.37)
        return x - torch.sub(b, a, alpha=1.7), (x**3).rsqrt() + x**-2, torch.rsub(x, 0.3, alpha=1.3)

    for actual, expected in zip(program(a.to(DEVICE), b.to(DEVICE)), program(a, b), strict=True):
        assert torch.equal(actual.cpu(), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.own_schedule("counts groups")
def test_bounds_are_rounded_before_they_are_compared_with(dtype):
    """A zero is not less than a bound that is zero itself in the tensors' dtype."""
    least = 1e-42 if dtype is torch.bfloat16 else 1e-8
    x = torch.tensor([-0.0, 0.0, 1.0, -1.0]).to(dtype)

    def program(x):
        y = x * 1
        bounds = [y.clamp(min=least), y.clamp(max=-least), F.hardtanh(y, least, 5), y.clamp(-2, 1 + 1e-4)]
        return torch.stack([1 / bound for bound in bounds])

    assert torch.equal(on_device(program, x), program(x))
    assert groups()[0] == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
@pytest.mark.own_schedule("counts groups")
def test_each_overload_rounds_its_number_as_the_cpu_does(name, dtype):
    a, b, _ = inputs((40, 50), dtype)
    number, of_op = 1 / 0.9, getattr(torch.ops.aten, name)

    def program(a, b):
        new = of_op.Scalar(a * b, number) * b, of_op.Tensor(a * b, torch.tensor(number, dtype=dtype)) * b
        in_place = [getattr(torch.ops.aten, name + "_").Scalar(a * b, number), getattr(a * b, name + "_")(number)]
        return *new, *in_place, getattr(torch, name)(a * b, number) * b

    for actual, expected in zip(program(a.to(DEVICE), b.to(DEVICE)), program(a, b), strict=True):
        assert torch.equal(actual.cpu(), expected)
    assert groups()[0] >= 1


INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def whole(a, b, c):
    x = ((a * 7 + b) & 63) | (c ^ 5)
    x = torch.where((x > 10) & (b <= 3), torch.maximum(x, a), -x).clamp(-100, 90)
    alive = (a == 3) | ((b == 2) & (c != 1))
    return (x * alive + ~b) ** 2 - torch.sub(a, c, alpha=3).relu().masked_fill(alive, 11)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("shape", [(5, 33), (300, 1000)])
@pytest.mark.own_schedule("counts groups")
def test_integers_are_in_groups(shape, dtype):
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randint(0, 6, shape, generator=generator).to(dtype) for _ in range(3)]
    tensors[0][0, :2] = torch.tensor([torch.iinfo(dtype).min, torch.iinfo(dtype).max], dtype=dtype)
    with work() as done:
        actual = on_device(signless if dtype == torch.uint8 else whole, *tensors)
    assert torch.equal(actual, (signless if dtype == torch.uint8 else whole)(*tensors))
    assert groups()[0] == 1 and groups()[1] >= 9, groups()
    assert (done.compiles, done.fallbacks) == (1, 0)


def signless(a, b, c):
    return torch.where(a > b, (a * 7 + b) & 63, ~c - b) + (a == 3) * torch.minimum(b, c).clamp(max=200)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_what_has_no_memory_is_not_computed(dtype):
    with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
        ((torch.ones(1 << 50, dtype=dtype, device=DEVICE) + 1) * 2)[:4].cpu()


@pytest.mark.own_schedule("counts groups")
def test_large_integers_are_exact():
    a = torch.tensor([[1, -3, 2**40 + 1, 2**62]])

    def program(a):
        return (a * 6364136223846793005 + 1442695040888963407) ^ (2**53 + 1)

    assert torch.equal(program(a.to(DEVICE)).cpu(), program(a))
    assert groups() == (1, 3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bool, torch.int64])
@pytest.mark.own_schedule("counts groups")
def test_results_of_other_dtypes_take_the_memory_of_what_dies(dtype):
    """They are written after all of a tile has been read."""
    a, b, c = (tensor.to(dtype) for tensor in inputs((300, 1000)))

    def program(a, b, c):
        x = a.clone()
        x.copy_((x.float() > 0) & (b != 0) if dtype == torch.bool else x + b)
        return x.logical_xor_(c) if dtype == torch.bool else x.mul_(c)

    assert torch.equal(on_device(program, a, b, c), program(a, b, c))


@pytest.mark.own_schedule("counts groups")
def test_truths_alone_are_no_group():
    """Bytes are faster for them than numbers."""
    a, b, _ = (tensor > 0 for tensor in inputs())
    assert torch.equal(on_device(lambda a, b: (a & b) | ~a, a, b), (a & b) | ~a)
    assert groups() == (0, 0)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.int64, torch.float32, torch.float64])
def test_truths_are_compared_with_numbers_as_such(dtype):
    """Not as numbers of the group's dtype, of which others may be zero or one."""
    numbers = (0, 1, 2, -1, 256, 257, 2**31, 2**32, 2**32 + 1, -(2**63), 0.5, 1 + 1e-9, 1e-46, 1e300, True)
    x, truths = torch.tensor([0, 1, 2]).to(dtype), torch.tensor([True, False, True])

    def compute(x, truths):
        results = [x + x]
        for number in numbers:
            results += [(x > 0) == number, (x > 1) & (truths < number), truths >= number, truths.clone().ne_(number)]
            results.append((results[0] * results[0]).masked_fill(truths == number, 3))
        return results

    for wanted, got in zip(compute(x, truths), compute(x.to(DEVICE), truths.to(DEVICE)), strict=True):
        assert_same(got.cpu(), wanted)


@pytest.mark.own_schedule("counts groups")
def test_comparisons_of_truths_with_integers_are_in_groups():
    x = inputs()[0]

    def masked(x):
        return (x * 2).masked_fill((x > 0) == 0, 5)

    assert torch.equal(on_device(masked, x), masked(x))
    assert groups() == (1, 4)


@pytest.mark.own_schedule("counts groups")
def test_masked_fill_of_truths_is_the_cpus():
    """The number becomes a truth, too."""
    a, b, _ = inputs()

    def program(a, b):
        x = (a > 0).masked_fill_(b > 0, 2.0)
        return x ^ (a != b), x & (a < b)

    for actual, expected in zip(program(a.to(DEVICE), b.to(DEVICE)), program(a, b), strict=True):
        assert torch.equal(actual.cpu(), expected)


@pytest.mark.parametrize("fusion", [0, 1, 2])
@pytest.mark.own_schedule("counts groups")
def test_groups_can_be_switched_off_and_tested_alone(fusion):
    config.set("fusion", fusion)
    a, b, _ = inputs()
    assert torch.equal(on_device(lambda a, b: (a @ b.t() + 1).exp().neg(), a, b), (a @ b.t() + 1).exp().neg())
    assert groups() == ((2, 2) if fusion == 2 else (0, 0))
    assert torch.equal(on_device(lambda a, b: (a + b).neg(), a, b), (a + b).neg())
    assert groups() == {0: (0, 0), 1: (1, 2), 2: (3, 4)}[fusion]


@pytest.mark.own_schedule("counts groups")
def test_inputs_lie_and_promote_as_they_like():
    a, _, _ = inputs((6, 8))

    def program(a):
        columns = a.t()[::2, 1:5]
        integers = (a[:4, :4] * 3).to(torch.int64)
        mask = integers > 1
        return (columns * integers + a[0, :4]) * mask - integers / 3 + torch.tensor(2.5, device=a.device)

    actual = program(a.to(DEVICE))
    expected = program(a)
    assert actual.stride() == expected.stride() and actual.dtype == expected.dtype
    assert torch.equal(actual.cpu(), expected)
    assert groups()[1] > 3


def test_what_is_written_is_computed_in_the_dtype_of_all_operands():
    a = torch.full((4, 4), 5.0).sqrt()

    def program(a):
        x = a + 0
        return x.addcdiv_(x, torch.full((4, 4), 1.5, dtype=torch.float64, device=a.device), value=-2) + 0

    config.set("fusion", 2)
    assert torch.equal(on_device(program, a), program(a))
    assert groups()[0] > 0


@pytest.mark.own_schedule("counts groups")
def test_what_is_written_in_place_keeps_its_memory():
    a, b, _ = inputs()
    x, y = a.to(DEVICE), b.to(DEVICE)
    for _ in range(3):
        x.mul_(0.5).add_(y).clone()
        torch_lazyplug.mark_step(wait=True)
    address = x.data_ptr()
    x.mul_(0.5).add_(y)
    torch_lazyplug.mark_step(wait=True)
    assert x.data_ptr() == address
    for _ in range(4):
        a.mul_(0.5).add_(b)
    assert torch.equal(x.cpu(), a)
    assert groups()[0] > 0


@pytest.mark.parametrize("fusion", [1, 2])
@pytest.mark.own_schedule("counts groups")
def test_views_are_read_while_their_base_is_written(fusion):
    def program(a):
        x = a + 1
        x.mul_(x)  # the same elements at the same time
        first = x.as_strided(x.shape, (0,), 0)
        x.mul_(first)  # the first element, which the CPU has written by then
        return x - 1

    config.set("fusion", fusion)
    a = torch.tensor([0.5, -4.0, -4.0])
    assert torch.equal(on_device(program, a), program(a))
    assert groups()[0] > 0


def test_old_values_survive_writes():
    a, b, _ = inputs()

    def program(a, b):
        x = a * 2
        before = x + b
        x.mul_(b)
        after = x - before
        x.zero_()
        return torch.stack([before, after, x + b])

    assert torch.equal(on_device(program, a, b), program(a, b))


@pytest.mark.own_schedule("a failure that is known when an op is recorded is raised there")
@pytest.mark.parametrize("in_place", [False, True])
def test_a_failed_input_spoils_what_depends_on_it(in_place):
    good = torch.ones(2, 2).to(DEVICE)
    target = torch.full((2, 2), 5.0).to(DEVICE)
    torch_lazyplug.mark_step(wait=True)
    bad = good.index_select(0, torch.tensor([0, 9]).to(DEVICE))
    doubled = good * 2
    spoiled = target.add_(bad) if in_place else target + bad
    again = spoiled + doubled
    other = doubled + good
    assert torch.equal(other.cpu(), torch.full((2, 2), 3.0))
    assert torch.equal(doubled.cpu(), torch.full((2, 2), 2.0))
    with pytest.raises(IndexError, match="out of range"):
        again.cpu()
    if in_place:
        assert torch.equal(target.cpu(), torch.full((2, 2), 5.0))  # as if the line had raised
    else:
        with pytest.raises(IndexError, match="out of range"):
            spoiled.cpu()


@pytest.mark.parametrize("alpha", [0, 0.0, 2, -(2**63)])
def test_signs_of_zeros_are_those_of_the_cpu(alpha):
    a, b = torch.tensor([1.0, -0.0, 0.0]), torch.tensor([-0.0, -0.0, 0.0])

    def program(a, b):
        difference = a.sub(b, alpha=alpha).neg()
        lists = torch._foreach_sub([a, b], [b, a], alpha=alpha)
        return torch.stack([difference, *lists, -a * 0, a - a])

    actual = on_device(program, a, b)
    assert torch.equal(actual.view(torch.int32), program(a, b).view(torch.int32))


def test_training_has_the_same_bits_without_groups():
    def train(fusion):
        config.set("fusion", fusion)
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 2)
        )
        model.to(DEVICE)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, foreach=False)
        x, y = torch.randn(8, 6).to(DEVICE), torch.randn(8, 2).to(DEVICE)
        losses = []
        for _ in range(5):
            optimizer.zero_grad()
            residual = model(x) - y
            loss = (residual * residual / 2).mean() + 0.01 * sum((p * p).sum() for p in model.parameters())
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return torch.stack(losses).cpu(), [p.detach().cpu() for p in model.parameters()]

    losses, parameters = train(0)
    assert groups() == (0, 0)
    for fusion in (1, 2):
        again, others = train(fusion)
        assert torch.equal(again, losses)
        assert all(torch.equal(a, b) for a, b in zip(others, parameters, strict=True))
    assert groups()[0] > 0


def rms_norm(x, weight, bias):
    variance = x.pow(2).mean(-1, keepdim=True)
    return weight * (x * torch.rsqrt(variance + 1e-6)) + bias


def fused_rms_norm(x, weight, bias):
    """PyTorch's own, which adds to the mean in place."""
    return F.rms_norm(x, x.shape[-1:], weight, 1e-6) + bias


def standardised(x, weight, bias):
    centred = x - x.mean(-1, keepdim=True)
    return centred / ((centred * centred).sum(-1, keepdim=True) + 1e-6).sqrt() * weight + bias


@pytest.mark.parametrize("function", [rms_norm, fused_rms_norm, standardised])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(300, 64), (7, 9, 130), (1, 512), (2, 1023)])
@pytest.mark.own_schedule("counts groups")
def test_sums_of_rows_are_in_groups(function, dtype, shape):
    tensors = inputs(shape, dtype)
    weight, bias = tensors[1][..., :1, :].reshape(-1, shape[-1])[0], tensors[2].reshape(-1, shape[-1])[0]
    with work() as done:
        actual = on_device(function, tensors[0], weight, bias)
    assert torch.equal(actual, function(tensors[0], weight, bias))
    fits = shape[-1] * tensors[0].element_size() < 2500
    assert groups() == (1, 9 if function is standardised else 7) or not fits
    assert (done.compiles, done.fallbacks) == (1, 0)


def layer_norm_by_hand(a, b):
    return b[0] * (a - a.mean(-1, keepdim=True)) / (a.std(-1, keepdim=True) + 1e-6) + b[-1]


NORMALIZED = {
    "normalize": (lambda a, b: F.normalize(a, dim=-1), (1, 3)),
    "by hand": (lambda a, b: a / a.norm(dim=1)[:, None] * b, (1, 3)),
    "standard scores": (lambda a, b: (a - a.mean(1).unsqueeze(1)) / b, (1, 3)),
    "a layer norm by hand": (layer_norm_by_hand, (1, 7)),
}


@pytest.mark.parametrize("name", NORMALIZED)
@pytest.mark.parametrize("shape", [(300, 64), (5, 1000), (1, 300), (40, 65)])
@pytest.mark.own_schedule("counts groups")
def test_rows_by_their_norms_are_one_group(name, shape):
    function, expected = NORMALIZED[name]
    a, b, _ = inputs(shape)
    config.set("fusion", 3)  # variances are functions of the device's own
    with work() as done:
        actual = on_device(function, a, b)
    tolerance = 1e-6 if function is layer_norm_by_hand else 0
    torch.testing.assert_close(actual, function(a, b), rtol=tolerance, atol=tolerance)
    assert groups() == expected
    assert (done.compiles, done.fallbacks) == (1, 0)


def test_norms_of_all_orders_are_what_they_are():
    """The same trace, but for a number that says what is added up."""
    x = inputs((40, 64))[0]
    for order in (2, 1, 2.0, 3, torch.inf, 0, 2):
        expected = x * x.norm(order, dim=-1, keepdim=True)
        assert torch.equal(on_device(lambda x, n=order: x * x.norm(n, dim=-1, keepdim=True), x), expected), order


def totals(a, b):
    products = a * b + 1
    return products.sum(), (a - b).square().mean(), products


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(8,), (5, 33), (3, 4, 700), (300, 1000)])
@pytest.mark.own_schedule("counts groups")
def test_sums_of_everything_are_in_groups(shape, dtype, threads):
    a, b, _ = inputs(shape, dtype)
    with work() as done:
        actual = [t.cpu() for t in totals(a.to(DEVICE), b.to(DEVICE))]
    assert_same(actual, list(totals(a, b)))
    assert groups()[1] == 6
    assert (done.compiles, done.fallbacks) == (1, 0)


def test_sums_that_are_read_on_or_of_other_dtypes():
    def program(a):
        doubled = a * 2
        scaled = doubled / doubled.sum()
        return scaled, scaled.sum(dtype=torch.float64), (a > 0).sum(), doubled.t().sum(), doubled[1:].mean()

    a, _, _ = inputs((40, 50))
    assert_same([t.cpu() for t in program(a.to(DEVICE))], list(program(a)))


@pytest.mark.own_schedule("counts nodes in groups")
def test_gradients_of_norms_have_the_same_bits():
    x, weight, bias = inputs((40, 128))
    weight, bias = weight[0].clone(), bias[0].clone()

    def gradients(device):
        leaves = [t.detach().to(device).requires_grad_() for t in (x, weight, bias)]
        rms_norm(*leaves).square().sum().backward()
        return [leaf.grad.cpu() for leaf in leaves]

    expected, actual = gradients("cpu"), gradients(DEVICE)
    assert all(map(torch.equal, actual, expected))
    assert groups()[1] >= 14


def test_each_exponent_is_a_call_of_its_own():
    """The same trace, but for a number that says which instruction it is."""
    x = inputs()[0]
    for exponent in (2, 3, 2, 5, 3, -1, 2.5, 2):
        assert torch.equal(on_device(lambda x, e=exponent: x.abs().pow(e) + 1, x), x.abs().pow(exponent) + 1), exponent


def written_between(x, c):
    mean = x.mean(-1, keepdim=True)
    before = x - mean
    mean.mul_(3).add_(1)
    return before * mean.exp_() + mean.view(-1)


OF_ROWS = {
    "one for each row": lambda x, c: (x * x).sum(-1, keepdim=True) * c,
    "one for all": lambda x, c: (x * x).sum(-1, keepdim=True) * c[0],
    "also beside each element": lambda x, c: (x * c + 1).mean(-1, keepdim=True) - c,
    "spread again": lambda x, c: x - (x * c).mean(-1, keepdim=True) / (c.abs() + 1),
    "a mask": lambda x, c: torch.where(c > 0, x.square().sum(-1, keepdim=True), c),
    "without the dimension": lambda x, c: x.square().sum(-1) * c[:, 0],
    "looks like a column": lambda x, c: x * (x + 1).mean(-1),
    "written": lambda x, c: (x * c) * (x * x).mean(-1, keepdim=True).add_(1e-6).rsqrt_(),
    "written where something else is": lambda x, c: x.sum(-1, keepdim=True).add_(c).clamp_(min=c) * x,
    "written between two that read it": written_between,
    "dimensions come and go": lambda x, c: x - x.mean(-1)[:, None] + x.sum(-1).view(64, 1).expand(64, 64) * c,
    "expanded": lambda x, c: x / x.norm(dim=-1, keepdim=True).clamp_min(1e-3).expand_as(x) - c,
    "a view that lies otherwise": lambda x, c: x * x.mean(-1).expand(64, 64) + x.mean(-1, keepdim=True).t(),
    "a view of some": lambda x, c: x[:, :32] * x.sum(-1)[32:].repeat(2)[:, None] + x.sum(-1)[1:2],
    "norms": lambda x, c: x * x.norm(dim=-1, keepdim=True) + x.norm(dim=-1)[:, None] * c,
    "other norms": lambda x, c: x * x.norm(1, dim=-1, keepdim=True) + x.norm(3, dim=-1, keepdim=True),
    "forgotten": lambda x, c: x * x.sum(-1, keepdim=True).zero_() + x.mean(-1, keepdim=True).fill_(2),
    "logsumexp": lambda x, c: x - x.logsumexp(-1, keepdim=True) * c,
}


@pytest.mark.parametrize("name", OF_ROWS)
@pytest.mark.parametrize("fusion", [0, 1, 2, 3])
def test_what_is_one_for_each_row_goes_with_other_operands(name, fusion):
    config.set("fusion", fusion)
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    c = torch.randn(64, 1, generator=torch.Generator().manual_seed(1))
    expected = OF_ROWS[name](x, c)
    actual = on_device(OF_ROWS[name], x, c)
    if name == "logsumexp":
        torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6)
    else:
        assert torch.equal(actual, expected)
