"""Gradients of group norms keep the formats that they have on the CPU, for which autograd's formula asks by name."""

import pytest
import torch
import torch.nn.functional as F
from helpers import DEVICE, both, finish_pending, work
from torch import nn
from torch.utils.checkpoint import checkpoint

from torch_lazyplug import config

FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
CUTS = {"as it is": ("", 0), "cut": ("random:1", 0), "scrambled": ("", 5), "cut and scrambled": ("random:1", 5)}


@pytest.fixture(params=CUTS.values(), ids=CUTS)
def cuts(request):
    for flag, value in zip(("schedule", "scramble"), request.param, strict=True):
        config.set(flag, value)
    yield
    finish_pending()
    config.set("schedule", "")
    config.set("scramble", 0)


def formatted(tensor, last):
    return tensor.contiguous(memory_format=FORMATS[tensor.dim()] if last else torch.contiguous_format)


def norm(device, groups, channels):
    torch.manual_seed(5)
    layer = nn.GroupNorm(groups, channels)
    nn.init.normal_(layer.weight)
    return layer.to(device)


@pytest.mark.usefixtures("cuts")
@pytest.mark.parametrize("gradient_last", [False, True])
@pytest.mark.parametrize("input_last", [False, True])
@pytest.mark.parametrize("shape", [(2, 6, 5, 7), (2, 6, 3, 4, 5), (3, 4, 1, 1), (2, 1, 3, 3), (2, 6, 20, 30)])
def test_the_gradient_lies_like_the_input(shape, input_last, gradient_last):
    def gradients(x, g):
        layer = norm(x.device, 1 if shape[1] == 1 else 2, shape[1])
        return torch.autograd.grad(layer(x), [x, *layer.parameters()], g)

    x, g = formatted(torch.randn(shape), input_last), formatted(torch.randn(shape), gradient_last)
    both(gradients, x.requires_grad_(), g)


@pytest.mark.usefixtures("cuts")
@pytest.mark.parametrize("dim", [4, 5])
def test_module_hooks_see_the_same_strides(dim):
    def gradients(x):
        seen = []
        torch.manual_seed(3)
        convolution = (nn.Conv2d if dim == 4 else nn.Conv3d)(4, 8, 2).to(memory_format=FORMATS[dim])
        net = nn.Sequential(convolution, nn.GroupNorm(2, 8), nn.SiLU()).to(x.device)
        for layer in net:
            layer.register_full_backward_hook(lambda layer, i, o: seen.extend(t for t in (*i, *o) if t is not None))
        net(x).square().sum().backward()
        return seen, [p.grad for p in net.parameters()]

    both(gradients, torch.randn(2, 4, *[5] * (dim - 2)).requires_grad_())


@pytest.mark.usefixtures("cuts")
def test_a_batch_norm_before_it_reads_no_mixed_layouts():
    """Its input lies in several formats at once."""

    def gradients(x, scale):
        first, second = nn.BatchNorm2d(2).to(x.device), norm(x.device, 1, 2)
        (second(first(x.permute(1, 3, 2, 0))) * scale).sum().backward()
        return [p.grad for layer in (first, second) for p in layer.parameters()]

    both(gradients, torch.randn(1, 2, 2, 2), torch.randn(2, 2, 2, 1))


@pytest.mark.parametrize("last", [False, True])
def test_gradients_of_parameters_alone(last):
    """For a channels-last input, the CPU's kernel crashes if it is not asked for the input's."""
    x, g = formatted(torch.randn(2, 4, 3, 5), last), formatted(torch.randn(2, 4, 3, 5), last)

    def gradients(device, requires_grad):
        layer = norm(device, 2, 4)
        layer(x.detach().to(device).requires_grad_(requires_grad)).backward(g.to(device))
        return [p.grad.cpu() for p in layer.parameters()]

    for actual, expected in zip(gradients(DEVICE, False), gradients("cpu", True), strict=True):
        assert torch.equal(actual, expected)


class Squared(nn.Module):
    """Asks for contiguous tensors itself, without gradients: to be recomputed while a derivative reads its input."""

    def forward(self, h):
        with torch.no_grad():
            factor = h.contiguous().view(-1).square().mean()
        return h * factor


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_what_is_recomputed_is_contiguous_if_it_asks(use_reentrant):
    def gradients(x):
        layer, before, after = norm(x.device, 2, 4), Squared(), Squared()
        block = lambda h: F.silu(layer(after(layer(before(h)).relu())))  # noqa: E731
        checkpoint(block, x, use_reentrant=use_reentrant).sin().sum().backward()
        return x.grad, [p.grad for p in layer.parameters()]

    both(gradients, formatted(torch.randn(2, 4, 3, 5), True).requires_grad_())


def test_hooks_of_saved_tensors_see_contiguous_tensors():
    def gradients(x):
        layer, seen = norm(x.device, 2, 4), []

        def unpack(saved):
            seen.append(saved.contiguous())
            return saved

        with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved.clone(), unpack):
            h = layer(x)
        h.sin().sum().backward()
        return x.grad, seen

    both(gradients, formatted(torch.randn(2, 4, 3, 5), True).requires_grad_())


def test_second_derivatives():
    def gradients(x):
        layer = norm(x.device, 2, 4)
        (first,) = torch.autograd.grad(layer(x).sin().sum(), x, create_graph=True)
        return first.detach(), torch.autograd.grad(first.square().sum(), [x, layer.weight])

    both(gradients, formatted(torch.randn(2, 4, 3, 5), True).requires_grad_(), rtol=1e-4, atol=1e-5)


TRANSFORMS = {
    "grad": lambda f, x: torch.func.grad(f)(x),
    # PyTorch's formula refuses channels-last tensors, on the CPU too.
    "jvp": lambda f, x: torch.func.jvp(f, (x.contiguous(),), (x.contiguous().cos(),)),
    "vmap": lambda f, x: torch.func.vmap(torch.func.grad(f))(torch.stack([x, 2 * x])),
    "vjp": lambda f, x: torch.func.vjp(f, x)[1](torch.ones((), device=x.device)),
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_functional_transforms(transform):
    def transformed(x, weight):
        return transform(lambda x: F.group_norm(x, 2, weight).sin().sum(), x)

    both(transformed, formatted(torch.randn(2, 4, 3, 5), True), torch.randn(4), rtol=1e-4, atol=1e-5)


def test_fake_tensors_lie_alike():
    def strides(device):
        x = torch.empty(2, 4, 3, 5, device=device).to(memory_format=torch.channels_last).requires_grad_()
        F.group_norm(x, 2).sin().sum().backward()
        return x.grad.stride()

    with torch._subclasses.FakeTensorMode():
        faked = strides(DEVICE)
    assert faked == strides(DEVICE) == strides("cpu")


def test_a_compiled_gradient_lies_alike():
    def gradient(x):
        compiled = torch.compile(lambda x: F.group_norm(x, 2).sin().sum(), backend="aot_eager")
        compiled(x).backward()
        return x.grad

    both(gradient, formatted(torch.randn(2, 4, 3, 5), True).requires_grad_(), rtol=1e-5, atol=1e-6)


@pytest.mark.lazy_only
@pytest.mark.own_schedule("counts ops")
def test_copies_that_nobody_reads_are_not_run():
    x = formatted(torch.randn(2, 4, 3, 5), True).to(DEVICE).requires_grad_()
    with work() as done:
        F.group_norm(x, 2).sum().backward()
        x.grad.cpu()
        finish_pending()
    assert done.fallbacks == 0
    assert 0 < done.executed <= done.recorded - 1
    assert torch.equal(x.contiguous().view(-1).cpu(), x.detach().cpu().contiguous().view(-1))


def test_contiguous_refuses_what_the_cpu_refuses():
    for device in ("cpu", DEVICE):
        with pytest.raises(RuntimeError, match="preserve memory format is unsupported by the contiguous operator"):
            torch.randn(3, 4, device=device).t().contiguous(memory_format=torch.preserve_format)
