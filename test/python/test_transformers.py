"""Four transformers, whole training steps: losses and every gradient as on the CPU, without a fallback."""

import copy

import pytest
import torch
from helpers import DEVICE, IS_SCHEDULED, assert_same, finish_pending, work
from models import TRANSFORMERS, make_batch, make_transformer

pytestmark = pytest.mark.torchscript

STEPS = 5
TIED = {
    "gpt2": ("lm_head.weight", "transformer.wte.weight"),
    "bert": ("cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
    "llama": ("lm_head.weight", "model.embed_tokens.weight"),
}


def train_step(model, optimizer, batch):
    optimizer.zero_grad()
    loss = model(**{name: tensor.to(model.device) for name, tensor in batch.items()}).loss
    loss.backward()
    optimizer.step()
    return loss.detach()


def train_both(name, rtol=0, atol=0):
    """For some steps."""
    reference = make_transformer(name)
    model = copy.deepcopy(reference).to(DEVICE)
    reference_optimizer = torch.optim.AdamW(reference.parameters())
    optimizer = torch.optim.AdamW(model.parameters())
    compiles = []
    for step in range(STEPS):
        batch = make_batch(name, seed=step)
        expected = train_step(reference, reference_optimizer, batch)
        with work() as done:
            loss = train_step(model, optimizer, batch)
            finish_pending()
        assert_same(loss, expected, f"step {step}: loss", rtol, atol)
        for (path, p), q in zip(reference.named_parameters(), model.parameters(), strict=True):
            assert_same(q.grad, p.grad, f"step {step}: gradient of {path}", rtol, atol)
        assert done.fallbacks == 0, done.fallback_ops
        compiles.append(done.compiles)
    assert compiles[2:] == [0] * (STEPS - 2) or IS_SCHEDULED, compiles


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_training_equals_cpu(name):
    train_both(name)


@pytest.mark.lazy_only
@pytest.mark.usefixtures("functions")
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_training_with_functions_of_the_devices_own(name):
    train_both(name, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_inference_equals_cpu(name):
    reference = make_transformer(name).eval()
    model = copy.deepcopy(reference).to(DEVICE)
    batch = make_batch(name)
    with torch.no_grad():
        expected = reference(**batch).logits
        with work() as done:
            actual = model(**{key: tensor.to(DEVICE) for key, tensor in batch.items()}).logits
            finish_pending()
    torch.testing.assert_close(actual.cpu(), expected)
    assert done.fallbacks == 0, done.fallback_ops


@pytest.mark.parametrize("name", TIED)
def test_tied_weights_stay_tied(name):
    model = make_transformer(name).to(DEVICE)
    one, other = (model.get_parameter(path) for path in TIED[name])
    assert one is other
    assert one.device.type == torch.device(DEVICE).type
    count = len(list(model.parameters()))
    assert count == len(list(make_transformer(name).parameters()))


def test_moving_keeps_the_parameter_objects():
    """An optimizer made before `.to(device)` must go on training the model, as it does with other devices."""
    model = torch.nn.Linear(3, 2)
    before = list(model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model.to(DEVICE)
    assert all(p is q for p, q in zip(model.parameters(), before, strict=True))
    start = model.weight.detach().cpu().clone()
    model(torch.ones(1, 3, device=DEVICE)).sum().backward()
    optimizer.step()
    torch.testing.assert_close(model.weight.detach().cpu(), start - 1)


def test_tied_weights_share_the_gradient():
    model = make_transformer("gpt2")
    expected = copy.deepcopy(model)
    model.to(DEVICE)
    batch = make_batch("gpt2")
    for one in (model, expected):
        one(**{key: tensor.to(one.device) for key, tensor in batch.items()}).loss.backward()
    assert model.lm_head.weight.grad is model.transformer.wte.weight.grad
    torch.testing.assert_close(model.lm_head.weight.grad.cpu(), expected.lm_head.weight.grad)
