"""Concatenations of rows are in groups, with what makes nothing but their parts, and have the CPU's bits."""

import pytest
import torch
from helpers import DEVICE, groups, work

from torch_lazyplug import config


@pytest.fixture(autouse=True)
def functions_are_the_cpus(fresh_groups):
    config.set("fusion", 1)


def draw(*sizes, dtype=torch.float32, seed=0):
    """With some zeros, negative zeros, infinities and NaN."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(sizes, generator=generator, dtype=torch.float64)
    odd = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-42], dtype=torch.float64)
    places = torch.rand(sizes, generator=generator)
    return torch.where(places < 0.1, odd[(places * 60).long().clamp(max=5)], x).to(dtype)


def check(function, *tensors):
    """The CPU's bits, strides and dtypes."""
    expected = function(*(t.clone() for t in tensors))
    actual = function(*(t.to(DEVICE) for t in tensors))
    expected, actual = (r if isinstance(r, tuple) else (r,) for r in (expected, actual))
    for of_cpu, of_device in zip(expected, actual, strict=True):
        assert of_device.stride() == of_cpu.stride()
        assert of_device.dtype == of_cpu.dtype
        of_device = of_device.cpu()
        same = of_device == of_cpu
        assert ((same & (of_device.signbit() == of_cpu.signbit())) | (of_device.isnan() & of_cpu.isnan())).all()


def rotate(x):
    left, right = x.chunk(2, -1)
    return torch.cat((-right, left), -1)


def rope(x, cos, sin):
    return x * cos + rotate(x) * sin


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(256, 512), (2, 3, 5, 128), (7, 130), (1, 160), (30, 96)])
@pytest.mark.own_schedule("counts groups")
def test_rotary_embeddings_are_one_group(shape, dtype):
    x, cos, sin = (draw(*shape, dtype=dtype, seed=i) for i in range(3))
    with work() as done:
        check(rope, x, cos, sin)
    is_long = shape[-1] >= 2 * 64  # shorter parts take longer than by themselves
    assert groups() == ((1, 5) if is_long else (1, 3))
    assert (done.compiles, done.fallbacks) == (1, 0)


@pytest.mark.own_schedule("counts groups")
def test_two_at_a_time():
    """Of which the parts were in one group before."""

    def both(q, k, cos, sin):
        return rope(q, cos, sin), rope(k, cos, sin)

    check(both, draw(4, 8, 128), draw(4, 8, 128, seed=1), draw(8, 128, seed=2), draw(8, 128, seed=3))
    num_groups, num_nodes = groups()
    assert num_nodes == 10
    assert num_groups <= 2


PROGRAMS = {
    "three parts": lambda x, y: torch.cat((x[:, :70] * 2, y[:, 70:250] + x[:, 70:250], -y[:, 250:]), -1) * y,
    "functions": lambda x, y: torch.cat((x[:, :150].exp(), y[:, :250].abs().sqrt()), 1) + 1,
    "the same part twice": lambda x, y: torch.cat((x[:, :200], x[:, :200]), -1) * y,
    "what is made is read twice": lambda x, y: torch.cat((n := -x[:, :200], n), -1) * y,
    "somebody else reads a part": lambda x, y: (torch.cat((n := -x[:, :200], y[:, 200:]), -1) * y, n),
    "somebody else reads all of it": lambda x, y: ((c := torch.cat((-x[:, :200], y[:, 200:]), -1)), c * y),
    "part of a part": lambda x, y: torch.cat(((n := x[:, :300] + 1)[:, :200], n[:, 100:]), -1) * y,
    "rows of the same": lambda x, y: torch.cat((x[:1, :200] + y[:, :1], -y[:, 200:]), -1) * y,
    "a column": lambda x, y: torch.cat((x[:, :1] * 2, y[:, :399]), -1) * y,
    "expanded": lambda x, y: torch.cat((x[:1, :200].expand(12, 200), y[:, :1].expand(12, 200)), -1) * y,
    "numbers": lambda x, y: torch.cat((torch.ones_like(x[:, :200]), -y[:, 200:]), -1) * y,
    "reversed": lambda x, y: torch.cat((x.t()[:200].t() * 2, y.flip(-1)[:, :200]), -1) * y,
    "torn": lambda x, y: torch.cat((x.view(400, 12).t()[:, :200], y[:, 200:]), -1) * y,
    "joined again": lambda x, y: torch.cat((torch.cat((-x[:, :100], y[:, :100]), -1) * 2, x[:, 200:]), -1) * y,
    "rows are summed up": lambda x, y: torch.cat((-x[:, :200], y[:, 200:]), -1).square().sum(-1, keepdim=True) * y,
    "halves meet": lambda x, y: torch.cat((x[:, :200] * y[:, 200:], x[:, 200:] * y[:, :200]), -1) - y,
    "with itself": lambda x, y: (x * y).add_(torch.cat(((x * y)[:, 200:], -y[:, :200]), -1)),
    "other dtypes": lambda x, y: torch.cat((x[:, :200].double(), y[:, 200:]), -1) * y,
    "other dimensions": lambda x, y: torch.cat((-x[:6], y[6:]), 0) * y,
    "nothing": lambda x, y: torch.cat((x[:, :0], -y), -1) * y,
    "one": lambda x, y: torch.cat((-y,), -1) * y,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_parts_may_be_anything(name):
    check(PROGRAMS[name], draw(12, 400), draw(12, 400, seed=1))


def test_parts_are_read_before_they_are_written():
    def program(x, y):
        left = -x[:, :200]
        x.mul_(2)
        joined = torch.cat((left, x[:, 200:]), -1)
        x.add_(1)
        return joined * y, x

    check(program, draw(12, 400), draw(12, 400, seed=1))


def test_gradients():
    def gradients(device):
        leaves = [draw(5, 8, 128, seed=i).nan_to_num(0, 1, -1).to(device).requires_grad_() for i in range(3)]
        rope(*leaves).square().sum().backward()
        return tuple(leaf.grad.cpu() for leaf in leaves)

    for actual, expected in zip(gradients(DEVICE), gradients("cpu"), strict=True):
        assert torch.equal(actual, expected)


def test_sizes_may_be_any():
    generator = torch.Generator().manual_seed(0)
    for seed in range(25):
        num_parts = int(torch.randint(2, 5, (), generator=generator))
        widths = torch.randint(1, 300, (num_parts,), generator=generator).tolist()
        parts = [draw(6, width, seed=seed) for width in widths]
        row = draw(sum(widths), seed=seed + 100)
        check(lambda r, *p: torch.cat([-p[0], *p[1:]], -1) * r, row, *parts)
