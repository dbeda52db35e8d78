"""LSTM layers run as on the CPU, where oneDNN computes a whole layer at a time."""

import copy

import pytest
import torch
from helpers import DEVICE, work

from torch_lazyplug import metrics

SETTINGS = {
    "plain": {},
    "batch_first": {"batch_first": True},
    "deep": {"num_layers": 3},
    "bidirectional": {"num_layers": 2, "bidirectional": True},
    "no_bias": {"bias": False},
    "projections": {"proj_size": 3},
    "double": {"dtype": torch.float64},
}


def layers_run():
    return metrics.counter_value("lazy::mkldnn_rnn_layer") or 0


def run(lstm, x, state=None):
    x = x.detach().requires_grad_()
    output, (hidden, cell) = lstm(x, state)
    (output.square().sum() + hidden.sum() - cell.sum()).backward()
    return output, hidden, cell, x.grad, *(p.grad for p in lstm.parameters())


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("with_state", [False, True])
def test_training(name, with_state):
    torch.manual_seed(0)
    settings = SETTINGS[name]
    lstm = torch.nn.LSTM(6, 5, **settings)
    x = torch.randn(4, 4, 6, dtype=settings.get("dtype"))
    directions = lstm.num_layers * (2 if lstm.bidirectional else 1)
    sizes = [lstm.proj_size or 5, 5]
    state = tuple(torch.randn(directions, 4, size, dtype=x.dtype) for size in sizes) if with_state else None
    before = layers_run()
    with work() as done:
        lazy_state = tuple(part.to(DEVICE) for part in state) if state else None
        actual = run(copy.deepcopy(lstm).to(DEVICE), x.to(DEVICE), lazy_state)
        actual = [tensor.cpu() for tensor in actual]
    assert done.fallbacks == 0, done.fallback_ops
    whole_layers = name not in ("projections", "double")
    assert layers_run() - before == (directions if whole_layers else 0)
    expected = run(lstm, x, state)
    for a, e in zip(actual, expected, strict=True):
        assert torch.equal(a, e) if whole_layers else torch.allclose(a, e, rtol=1e-6, atol=1e-7), (a, e)


@pytest.mark.parametrize("size", [5, 64])
@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_inference_rounds_as_on_the_cpu(size, mode):
    """Without gradients oneDNN may round differently."""
    lstm = torch.nn.LSTM(6, size, num_layers=2)
    lazy = copy.deepcopy(lstm).to(DEVICE)
    for x in (torch.randn(7, 6), torch.randn(7, 8, 6)):  # not in a batch, and in one
        with mode():
            assert torch.equal(lazy(x.to(DEVICE))[0].cpu(), lstm(x)[0])


def test_training_after_the_same_call_without_gradients():
    lstm = torch.nn.LSTM(3, 7)
    lazy = copy.deepcopy(lstm).to(DEVICE)
    x = torch.randn(4, 2, 3)
    with torch.no_grad():
        assert torch.equal(lazy(x.to(DEVICE))[0].cpu(), lstm(x)[0])
    assert torch.equal(run(lazy, x.to(DEVICE))[0].cpu(), run(lstm, x)[0])


def test_dropout_between_layers_is_reproducible():
    lstm = torch.nn.LSTM(6, 5, num_layers=2, dropout=0.5).to(DEVICE)
    x = torch.randn(4, 4, 6, device=DEVICE)
    outputs = []
    for _ in range(2):
        torch.manual_seed(3)
        outputs.append(lstm(x)[0].cpu())
    assert torch.equal(*outputs)
    assert not torch.equal(outputs[0], lstm.eval()(x)[0].cpu())


def test_second_derivatives():
    lstm = torch.nn.LSTM(3, 2)
    lazy = copy.deepcopy(lstm).to(DEVICE)

    def second(module, x):
        x = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(module(x)[0].pow(2).sum(), x, create_graph=True)
        return torch.autograd.grad(gradient.pow(2).sum(), x)[0]

    x = torch.randn(4, 2, 3)
    assert torch.allclose(second(lazy, x.to(DEVICE)).cpu(), second(lstm, x), atol=1e-6)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
def test_forward_gradients_are_refused_as_on_the_cpu(mode):
    for device in ("cpu", DEVICE):
        model = torch.nn.LSTM(4, 5).to(device)
        x = torch.randn(2, 3, 4).to(device)
        with mode(), torch.autograd.forward_ad.dual_level(), pytest.raises(NotImplementedError, match="forward AD"):
            model(torch.autograd.forward_ad.make_dual(x, x))
