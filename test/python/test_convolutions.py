"""Convolutions of random forms, and their gradients, have the CPU's bits, whoever computes them."""

import random

import pytest
import torch
import torch.nn.functional as F

from torch_lazyplug import metrics

HAS_KERNELS = torch.backends.cpu.get_cpu_capability() == "AVX512"


def draw_form(draw):
    """Sizes of images and filters, stride, padding and dilation; of one or two dimensions."""
    while True:
        dims = draw.choice((1, 2, 2))
        images = [draw.choice((1, 2, 3, 7, 8)), draw.choice((1, 2, 3, 8, 15, 16, 17, 24, 33, 48))]
        sizes = [draw.choice((1, 2, 3, 4, 5, 7, 8, 9, 12, 14, 16, 17, 28, 33)) for _ in range(dims)]
        channels = draw.choice((1, 2, 5, 6, 12, 13, 16, 20, 40, 70))
        windows = [draw.choice((1, 1, 2, 3, 3, 4, 5, 7)) for _ in range(dims)]
        stride, padding, dilation = (
            [draw.choice(choices) for _ in range(dims)] for choices in ((1, 1, 2, 3), (0, 1, 1, 2, 3), (1, 1, 2))
        )
        reach = [(w - 1) * d + 1 for w, d in zip(windows, dilation, strict=True)]
        if all(s + 2 * p >= r for s, p, r in zip(sizes, padding, reach, strict=True)):
            return images + sizes, [channels, images[1], *windows], (stride, padding, dilation)


def run(device, tensors, gradient, arguments):
    images, filters, bias = (None if t is None else t.clone().to(device).requires_grad_() for t in tensors)
    convolve = F.conv1d if images.dim() == 3 else F.conv2d
    result = convolve(images, filters, bias, *arguments)
    result.backward(gradient.to(device))
    return [result.detach(), images.grad, filters.grad, None if bias is None else bias.grad]


@pytest.mark.parametrize("seed", range(4))
def test_random_forms(seed):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    before = metrics.counter_value("OwnConvolutions") or 0
    for _ in range(40):
        image_sizes, filter_sizes, arguments = draw_form(draw)
        has_bias = draw.random() < 0.6
        for _ in range(3):  # the second time, it is found out whose bits are whose
            bias = torch.randn(filter_sizes[0]) if has_bias else None
            tensors = (torch.randn(image_sizes), torch.randn(filter_sizes), bias)
            convolve = F.conv1d if len(image_sizes) == 3 else F.conv2d
            gradient = torch.randn(convolve(*tensors, *arguments).shape)
            expected = run("cpu", tensors, gradient, arguments)
            for of_cpu, of_device in zip(expected, run("lazy", tensors, gradient, arguments), strict=True):
                if of_cpu is not None:
                    form = (image_sizes, filter_sizes, arguments, has_bias)
                    assert torch.equal(of_device.cpu(), of_cpu), form
                    assert of_device.stride() == of_cpu.stride(), form
    if HAS_KERNELS:
        assert metrics.counter_value("OwnConvolutions") - before > 100


@pytest.mark.parametrize("seed", range(2))
def test_signs_of_zeros(seed):
    """Of sums of zeros, of one product and of many, with biases that are zeros, too."""
    draw = random.Random(seed)
    for _ in range(40):
        image_sizes, filter_sizes, arguments = draw_form(draw)
        if draw.random() < 0.5:  # one product each, at most
            image_sizes[1] = filter_sizes[1] = 1
            filter_sizes[2:] = [1] * (len(filter_sizes) - 2)
        has_bias = draw.random() < 0.5
        for sign in (1.0, -1.0, 1.0):
            bias = torch.full(filter_sizes[:1], draw.choice((0.0, -0.0))) if has_bias else None
            tensors = (torch.zeros(image_sizes) * sign, torch.full(filter_sizes, -sign), bias)
            convolve = F.conv1d if len(image_sizes) == 3 else F.conv2d
            gradient = torch.zeros(convolve(*tensors, *arguments).shape) * sign
            expected = run("cpu", tensors, gradient, arguments)
            for of_cpu, of_device in zip(expected, run("lazy", tensors, gradient, arguments), strict=True):
                if of_cpu is not None:
                    form = (image_sizes, filter_sizes, arguments, has_bias, sign)
                    assert torch.equal(of_device.cpu().signbit(), of_cpu.signbit()), form


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("make", [torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.ConvTranspose2d, torch.nn.Conv3d])
def test_traces_hold_them(make, grad):
    torch.manual_seed(0)
    model = torch.nn.Sequential(make(2, 3, 3), torch.nn.ReLU()).requires_grad_(grad).to("lazy")
    example, other = torch.rand(2, 1, 2, *[5] * model[0].weight[0][0].dim()).to("lazy")
    traced = torch.jit.trace(model, example)
    assert [node.kind() for node in traced.inlined_graph.nodes() if "conv" in node.kind()] == ["aten::_convolution"]
    assert torch.equal(traced(other), model(other))
    if grad:
        expected = torch.autograd.grad(model(other).sum(), list(model.parameters()))
        assert all(map(torch.equal, torch.autograd.grad(traced(other).sum(), list(model.parameters())), expected))


@pytest.mark.parametrize("numbers", [{"stride": 0}, {"stride": (1, 0)}, {"stride": -1}, {"groups": 0}])
@pytest.mark.parametrize("size", [8, 200])
def test_numbers_that_cannot_be_divided_by_raise(numbers, size):
    errors = []
    for device in ("cpu", "lazy"):
        with pytest.raises(RuntimeError) as error:
            F.conv2d(torch.ones(1, 2, size, size, device=device), torch.ones(3, 2, 3, 3, device=device), **numbers)
        errors.append(str(error.value))
    assert errors[0] == errors[1]


@pytest.mark.parametrize("device", ["cpu", "lazy"])
def test_windows_that_do_not_move_raise(device):
    x = torch.ones(1, 8, 25, device=device)
    with pytest.raises(RuntimeError, match="stride should be greater than zero"):
        F.fold(x, (6, 6), 2, stride=0)
    with pytest.raises(RuntimeError, match="kernel size should be greater than zero"):
        F.fold(x, (6, 6), 0)
    with pytest.raises(RuntimeError, match="stride should be greater than zero"):
        F.unfold(x[None], 2, stride=0)


def test_other_libraries_are_noticed():
    """Of many images, PyTorch has NNPACK compute some, if oneDNN may not."""
    images, filters = torch.randn(17, 4, 9, 9), torch.randn(8, 4, 3, 3)
    results = []
    with torch.backends.mkldnn.flags(enabled=False):
        for enabled in (False, True, False):
            with torch.backends.nnpack.flags(enabled=enabled):
                expected = F.conv2d(images, filters, padding=1)
                for _ in range(3):
                    ours = F.conv2d(images.to("lazy"), filters.to("lazy"), padding=1)
                    assert torch.equal(ours.cpu(), expected)
                results.append(expected)
    assert torch.equal(results[0], results[1]) != torch.backends.nnpack.is_available()
