"""Integers are counted as on CUDA. The CPU's kernel counts none: the reference is counted by hand."""

from collections import Counter

import pytest
import torch
from helpers import DEVICE, IS_SCHEDULED, both, work

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]

pytestmark = pytest.mark.lazy_only


def counted(values, bins, low=0, high=0):
    """By exact arithmetic of Python's integers."""
    if low == high and values:
        low, high = min(values), max(values)
    if low == high:
        low, high = low - 1, high + 1
    found = Counter(min((v - low) * bins // (high - low), bins - 1) for v in values if low <= v <= high)
    return [found[i] for i in range(bins)]


def numbers(dtype, *shape):
    torch.manual_seed(3)
    return torch.randint(0, 100, shape, dtype=dtype)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("bounds", [(0, 99), (10, 57), (-3, 12), (0, 0), (7, 7), (90, 200)])
@pytest.mark.parametrize("bins", [1, 7, 100])
def test_counts(dtype, bounds, bins):
    x = numbers(dtype, 5, 20)
    with work() as done:
        counts = torch.histc(x.to(DEVICE), bins, *bounds).cpu()
    assert counts.dtype == dtype
    assert counts.tolist() == counted(x.flatten().tolist(), bins, *bounds)
    assert done.fallbacks == 0, done.fallback_ops
    assert done.flushes == 1 or IS_SCHEDULED


@pytest.mark.parametrize("values", [[], [5], [5, 5, 5], [-(2**40), 0, 2**40]])
def test_bounds_from_the_data(values):
    counts = torch.histc(torch.tensor(values, dtype=torch.int64, device=DEVICE), bins=4)
    assert counts.tolist() == counted(values, 4)


def test_experts_are_counted_as_by_bincount():
    experts = numbers(torch.int64, 300) % 8
    counts = torch.histc(experts.int().to(DEVICE), bins=8, min=0, max=7)
    assert counts.dtype == torch.int32
    assert torch.equal(counts.cpu().long(), experts.bincount(minlength=8))


@pytest.mark.own_schedule("counts graphs")
def test_other_numbers_compile_nothing():
    x = numbers(torch.int32, 50).to(DEVICE)
    torch.histc(x, 10, 0, 50).cpu()
    with work() as done:
        counts = torch.histc(x, 10, 5, 90).cpu()
    assert counts.tolist() == counted(x.tolist(), 10, 5, 90)
    assert done.compiles == 0


def test_out():
    x = numbers(torch.int16, 50).to(DEVICE)
    out = torch.empty(10, dtype=torch.int16, device=DEVICE)
    assert torch.histc(x, 10, 0, 99, out=out) is out
    assert out.tolist() == counted(x.tolist(), 10, 0, 99)
    with pytest.warns(UserWarning, match="was resized"):
        torch.histc(x, 4, 0, 99, out=out)
    assert out.tolist() == counted(x.tolist(), 4, 0, 99)


def test_errors():
    x = numbers(torch.int32, 5).to(DEVICE)
    with pytest.raises(RuntimeError, match="bins must be > 0"):
        torch.histc(x, 0)
    with pytest.raises(RuntimeError, match="max must be larger than min"):
        torch.histc(x, 5, 3, 2)


@pytest.mark.parametrize("bounds", [(0, 99), (0, 0)])
def test_floats_are_counted_by_the_cpu(bounds):
    def compute(x):
        return torch.histc(x, 7, *bounds), torch.histc(x, 7, *bounds, out=torch.empty(7, device=x.device))

    both(compute, numbers(torch.float32, 5, 40))
