"""Pooling and upsampling have kernels of their own: the bits and gradients of the CPU's, wherever they run."""

import pytest
import torch
import torch.nn.functional as F
from helpers import DEVICE, assert_same, finish_pending, work

from torch_lazyplug import config

IMAGES = {
    "random": lambda: torch.randn(2, 3, 13, 18),
    "ties": lambda: torch.randn(2, 3, 13, 18).round(),
    "nan": lambda: torch.randn(2, 3, 13, 18).masked_fill(torch.rand(2, 3, 13, 18) < 0.2, float("nan")),
    "infinite": lambda: torch.full((2, 3, 13, 18), float("-inf")),
    "one_plane": lambda: torch.randn(3, 8, 8),
    "channels_last": lambda: torch.randn(2, 3, 13, 18).to(memory_format=torch.channels_last),
    "a_view": lambda: torch.randn(2, 3, 18, 13).transpose(2, 3),
    "double": lambda: torch.randn(2, 3, 13, 18).double(),
}
POOLS = {
    "halves": {"kernel_size": 2},
    "overlap": {"kernel_size": 3, "stride": 2, "padding": 1},
    "apart": {"kernel_size": (2, 1), "stride": (3, 2)},
    "dilated": {"kernel_size": 2, "stride": 1, "dilation": (2, 3)},
    "ceil": {"kernel_size": 3, "stride": 2, "ceil_mode": True},
}


@pytest.mark.parametrize("at_once", ["never", "always"])
@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("image", IMAGES)
def test_values_and_places_are_the_cpus(image, pool, at_once):
    x = IMAGES[image]()
    expected = F.max_pool2d(x, **POOLS[pool], return_indices=True)
    with config.changed({"run_at_once": at_once}), work() as done:
        moved = x.to(DEVICE)
        actual = F.max_pool2d(moved, **POOLS[pool], return_indices=True)
        alone = F.max_pool2d(moved, **POOLS[pool])
        finish_pending()
    assert done.fallback_ops == {}
    for result, cpus in zip((*actual, alone), (*expected, expected[0]), strict=True):
        assert_same(result.cpu(), cpus)


@pytest.mark.parametrize("pool", POOLS)
def test_gradients_are_the_cpus(pool):
    x = IMAGES["ties"]()
    gradients = []
    for device in ("cpu", DEVICE):
        leaf = x.detach().clone().to(device).requires_grad_()
        y = F.max_pool2d(leaf, **POOLS[pool])
        y.backward(torch.linspace(-1, 1, y.numel(), device=device).view_as(y))
        gradients.append(leaf.grad.cpu())
    assert_same(gradients[1], gradients[0])


@pytest.mark.parametrize("length", [1, 7, 64])
def test_pooling_of_sequences(length):
    x = torch.randn(2, 3, length)
    assert_same(F.max_pool1d(x.to(DEVICE), 3, 1, 1).cpu(), F.max_pool1d(x, 3, 1, 1))
    assert_same(F.adaptive_max_pool1d(x.to(DEVICE), 1).cpu(), F.adaptive_max_pool1d(x, 1))


@pytest.mark.parametrize("at_once", ["never", "always"])
@pytest.mark.parametrize("size", [{"scale_factor": 2}, {"scale_factor": (1.5, 0.7)}, {"size": (7, 50)}], ids=str)
@pytest.mark.parametrize("image", IMAGES)
def test_upsampling_is_the_cpus(image, size, at_once):
    x = IMAGES[image]() if image != "one_plane" else torch.randn(1, 1, 8, 8)
    with config.changed({"run_at_once": at_once}), work() as done:
        y = F.interpolate(x.to(DEVICE), **size)
        finish_pending()
    assert done.fallback_ops == {}
    assert_same(y.cpu(), F.interpolate(x, **size))


@pytest.mark.parametrize("at_once", ["never", "always"])
@pytest.mark.parametrize("counts_padding", [False, True])
@pytest.mark.parametrize("pool", ["halves", "overlap", "apart", "ceil"])
@pytest.mark.parametrize("image", IMAGES)
def test_means_are_the_cpus(image, pool, counts_padding, at_once):
    x = IMAGES[image]()
    with config.changed({"run_at_once": at_once}), work() as done:
        y = F.avg_pool2d(x.to(DEVICE), **POOLS[pool], count_include_pad=counts_padding)
        finish_pending()
    assert done.fallback_ops == {}
    assert_same(y.cpu(), F.avg_pool2d(x, **POOLS[pool], count_include_pad=counts_padding))


def test_a_vectors_pool_is_no_view_unless_it_is_differentiated():
    def pool(x, weight):
        with torch.no_grad():
            y = F.max_pool1d(x, 2)
        is_view = y._is_view()
        y.mul_(weight)
        y.sum().backward()
        return is_view, weight.grad.cpu()

    for device in ("cpu", DEVICE):
        x = torch.arange(12.0).view(1, 2, 6).to(device)
        is_view, gradient = pool(x, torch.ones(1, device=device, requires_grad=True))
        assert not is_view and gradient.item() == 36
