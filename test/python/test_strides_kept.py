"""What a kernel reads lies as its signature promised, whatever strides the kernels before it returned, and wherever the
trace was cut."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from helpers import DEVICE, both, finish_pending, work

from torch_lazyplug import config, metrics

CHUNKS = (1, 2, 3, 5, 16, 64)
new_widths = itertools.count(5)


@pytest.fixture(params=["cut by reads", *(f"every:{n}" for n in CHUNKS), "random:1"])
def schedule(request):
    config.set("schedule", "never" if request.param == "cut by reads" else request.param)
    yield
    finish_pending()
    config.set("schedule", "")


@pytest.fixture
def scrambled():
    config.set("scramble", 7)
    yield
    finish_pending()
    config.set("scramble", 0)


def channels_last(*sizes):
    return torch.randn(*sizes).to(memory_format=torch.channels_last)


def test_group_norm_gradient_after_channels_last_convolution(schedule):
    def gradient(x, w, t):
        h = torch.conv2d(x, w, padding=1).detach().requires_grad_()
        (F.group_norm(h, 4) * t).sum().backward()
        return h.grad

    both(gradient, torch.randn(2, 16, 32, 32), channels_last(16, 16, 3, 3), torch.randn(2, 16, 32, 32))


def test_attention_after_channels_last_convolution(schedule):
    def attend(x, w):
        h = torch.conv2d(x, w).flatten(2).transpose(1, 2)
        q, k, v = h.unflatten(2, (3, 4, 16)).permute(2, 0, 3, 1, 4)
        loss = F.scaled_dot_product_attention(q, k, v).square().mean()
        loss.backward()
        return loss.detach()

    x, w = channels_last(2, 32, 16, 16).requires_grad_(), (0.1 * channels_last(192, 32, 1, 1)).requires_grad_()
    both(attend, x, w, rtol=1e-4, atol=1e-6)


def test_gradient_of_slogdet(schedule):
    def gradient(x):
        x.slogdet().logabsdet.sum().backward()
        return x.grad

    both(gradient, (torch.randn(4, 20, 20) + 20 * torch.eye(20)).requires_grad_(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("training", [True, False])
def test_gradient_that_is_not_asked_for(training, schedule):
    """Its Meta kernel returns one for the input, whatever it is asked for."""

    def gradients(x, weight, bias):
        mean, variance = torch.zeros_like(weight), torch.ones_like(weight)
        h = F.batch_norm(x, mean, variance, weight, bias, training)
        (h * x).sum().backward()
        return weight.grad, bias.grad

    both(gradients, torch.randn(4, 4, 32, 32), torch.randn(4).requires_grad_(), torch.randn(4).requires_grad_())


def train(device, schedule_text):
    """Losses and gradients of a few steps of a network of convolutions, some of them channels-last."""
    torch.manual_seed(3)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(4, 8, 3, padding=1),
        torch.nn.GroupNorm(2, 8),
        torch.nn.SiLU(),
        torch.nn.Conv2d(8, 8, 3, stride=2, padding=1).to(memory_format=torch.channels_last),
        torch.nn.BatchNorm2d(8),
        torch.nn.Upsample(scale_factor=2.0),
        torch.nn.GroupNorm(4, 8),
        torch.nn.Conv2d(8, 16, 3, padding=1),
        torch.nn.PixelShuffle(2),
        torch.nn.MaxPool2d(2),
    )
    net, x = net.to(device), torch.randn(2, 4, 16, 16).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    config.set("schedule", schedule_text)
    seen = []
    try:
        for _ in range(4):
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            seen += [loss.detach(), *(p.grad.clone() for p in net.parameters())]
            optimizer.step()
        return [t.cpu() for t in seen]
    finally:
        finish_pending()
        config.set("schedule", "")


def test_no_schedule_changes_a_bit_of_a_training():
    train(DEVICE, "never")  # kernels may have something to teach
    expected = train(DEVICE, "never")
    for actual, reference in zip(expected, train("cpu", "never"), strict=True):
        torch.testing.assert_close(actual, reference, rtol=1e-3, atol=1e-5)
    for text in [f"every:{n}" for n in CHUNKS] + [f"random:{seed}" for seed in range(4)]:
        for step, (actual, reference) in enumerate(zip(train(DEVICE, text), expected, strict=True)):
            assert torch.equal(actual, reference), f"{text}: result {step}"


def test_scrambled_strides_change_no_result(scrambled, schedule):
    def run(x, w, t):
        h = F.gelu(torch.conv2d(x, w, padding=1))
        h = F.layer_norm(F.group_norm(h, 4) * t, (32,))
        values, indices = h.max(1)
        parts = h.split(4, 1)
        h = torch.cat([parts[1], parts[0] * 2], 1).add_(1)
        (h.square().mean() + values.sum()).backward()
        return h.detach(), indices

    with work() as done:
        x, w, t = torch.randn(2, 16, 32, 32), channels_last(16, 16, 3, 3), torch.randn(2, 16, 32, 32)
        arranged = metrics.counter_value("ResultArranged") or 0
        both(run, x.requires_grad_(), w.requires_grad_(), t, rtol=1e-4, atol=1e-4)
        finish_pending()
        assert metrics.counter_value("ResultArranged") > arranged, "the setting does something"
    assert done.fallbacks == 0


@pytest.fixture(scope="module")
def mistaken():
    """An op whose Meta kernel is wrong: the CPU's transposes the memory."""
    with torch.library._scoped_library("strides_kept", "DEF") as library:
        library.define("mistaken(Tensor x) -> Tensor")
        library.impl("mistaken", lambda x: (2 * x).t().contiguous().t(), "CPU")
        library.impl("mistaken", lambda x: torch.empty_like(x), "Meta")
        yield torch.ops.strides_kept.mistaken.default


@pytest.fixture
def recorded_whatever_its_sizes():
    before = config.get("max_size_variants")
    config.set("max_size_variants", 0)
    yield
    config.set("max_size_variants", before)


@pytest.mark.usefixtures("recorded_whatever_its_sizes")
def test_strides_are_learned_when_the_program_waits_and_not_before(mistaken, schedule):
    width = next(new_widths)
    x = torch.randn(3, width)
    for attempt in range(3):
        y = mistaken(x.to(DEVICE))
        z = y + 1
        assert y.stride() == ((width, 1) if attempt == 0 else (1, 3))
        again = mistaken(x.to(DEVICE))  # in the same step: whether the first has run by now does not matter
        assert again.stride() == y.stride()
        assert z.stride() == y.stride()
        torch.testing.assert_close(z.cpu(), 2 * x + 1)
        torch.testing.assert_close(again.cpu(), 2 * x)


@pytest.mark.parametrize("text", ["sometimes", "every:0", "every:", "random:x", "random:1.5", "never:1"])
def test_no_such_schedule(text):
    with pytest.raises(ValueError, match=r"schedule is .* must be never, every:<n> or random:<seed>"):
        config.set("schedule", text)
