"""Common layers and optimizers, a few training steps each: losses, gradients and buffers as on the CPU."""

import pytest
import torch
import torch.nn.functional as F
from helpers import DEVICE, finish_pending, train_both, work
from torch import nn

pytestmark = pytest.mark.torchscript

STEPS = 4


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.recurrent = kind(5, 6, num_layers=2, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.recurrent(x)[0][:, -1])


class CellLoop(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(5, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        state = None
        for step in x.unbind(1):
            state = self.cell(step, state)
        return self.head(state[0])


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.norm(x + self.attention(x, x, x)[0]).mean(1))


class TextClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8, padding_idx=0)
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens):
        return self.head(self.encoder(self.embedding(tokens)).mean(1))


def convolutional():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2),
        nn.GroupNorm(2, 6),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 3),
    )


def autoencoder():
    return nn.Sequential(
        nn.Conv1d(2, 4, 3, padding=1), nn.Tanh(), nn.ConvTranspose1d(4, 4, 2, stride=2), nn.Flatten(), nn.Linear(64, 3)
    )


def normalized():
    return nn.Sequential(
        nn.Linear(5, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ELU(), nn.Linear(8, 3)
    )


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)), (5,)),
    "normalized": (normalized, (5,)),
    "convolutional": (convolutional, (2, 8, 8)),
    "autoencoder": (autoencoder, (2, 8)),
    "lstm": (lambda: Recurrent(nn.LSTM), (4, 5)),
    "gru": (lambda: Recurrent(nn.GRU), (4, 5)),
    "rnn": (lambda: Recurrent(nn.RNN), (4, 5)),
    "lstm_cell": (CellLoop, (4, 5)),
    "attention": (Attention, (4, 8)),
    "text": (TextClassifier, None),
}

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-2),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=1e-2, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2),
    "adamw_loop": lambda p: torch.optim.AdamW(p, lr=1e-2, foreach=False),
    "adamw_foreach": lambda p: torch.optim.AdamW(p, lr=1e-2, foreach=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-2, momentum=0.5),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2),
}


def batches(shape, count=STEPS):
    for _ in range(count):
        x = torch.randint(20, (6, 7)) if shape is None else torch.randn(6, *shape)
        yield x, torch.randint(3, (6,))


def cross_entropy(model, x, y):
    return F.cross_entropy(model(x), y)


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    make, shape = MODELS[name]
    # On the CPU, and only there, PyTorch multiplies all steps of a sequence by the input weights at once. SGD does not
    # magnify the rounding, as dividing by a tiny gradient's own size does.
    tolerances = {"rtol": 1.3e-6, "atol": 1e-7} if name in ("gru", "rnn") else {}
    done = train_both(make(), batches(shape), OPTIMIZERS["momentum"], cross_entropy, **tolerances)
    assert done.fallbacks == 0, done.fallback_ops


@pytest.mark.smoke
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name):
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))
    done = train_both(model, batches((5,), 6), OPTIMIZERS[name], cross_entropy)
    assert done.fallbacks == 0, done.fallback_ops


@pytest.mark.lazy_only
@pytest.mark.usefixtures("functions")
@pytest.mark.parametrize("name", MODELS)
def test_models_with_functions_of_the_devices_own(name):
    make, shape = MODELS[name]
    done = train_both(make(), batches(shape), OPTIMIZERS["momentum"], cross_entropy, rtol=1e-5, atol=1e-6)
    assert done.fallbacks == 0, done.fallback_ops


@pytest.mark.lazy_only
@pytest.mark.usefixtures("functions")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_with_functions_of_the_devices_own(name):
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))
    done = train_both(model, batches((5,), 6), OPTIMIZERS[name], cross_entropy, rtol=1e-4, atol=1e-5)
    assert done.fallbacks == 0, done.fallback_ops


LOSSES = {
    "mse": lambda scores, y: F.mse_loss(scores, F.one_hot(y, 3).float()),
    "l1": lambda scores, y: F.l1_loss(scores, F.one_hot(y, 3).float()),
    "huber": lambda scores, y: F.smooth_l1_loss(scores, F.one_hot(y, 3).float()),
    "bce": lambda scores, y: F.binary_cross_entropy_with_logits(scores, F.one_hot(y, 3).float()),
    "nll": lambda scores, y: F.nll_loss(scores.log_softmax(1), y),
    "kl": lambda scores, y: F.kl_div(scores.log_softmax(1), F.one_hot(y, 3).float(), reduction="batchmean"),
    "smoothed": lambda scores, y: F.cross_entropy(scores, y, label_smoothing=0.1),
    "weighted": lambda scores, y: F.cross_entropy(scores, y, weight=torch.arange(1.0, 4.0, device=y.device)),
    "ignored": lambda scores, y: F.cross_entropy(scores, y, ignore_index=1),
    "unreduced": lambda scores, y: F.cross_entropy(scores, y, reduction="none").square().sum(),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name):
    model = nn.Linear(5, 3)
    train_both(model, batches((5,), 2), OPTIMIZERS["sgd"], lambda m, x, y: LOSSES[name](m(x), y))


def test_batch_norm_buffers_in_evaluation():
    model = convolutional()
    train_both(model, batches((2, 8, 8)), OPTIMIZERS["sgd"], cross_entropy)
    model.eval()
    twin = convolutional().to(DEVICE)
    twin.load_state_dict(model.state_dict())
    twin.eval()
    x = torch.randn(3, 2, 8, 8)
    torch.testing.assert_close(twin(x.to(DEVICE)).detach().cpu(), model(x).detach())


def test_gradient_accumulation_and_clipping():
    def loss_of_parts(model, x, y):
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
        first = F.cross_entropy(model(x[:3]), y[:3])
        first.backward()
        return F.cross_entropy(model(x[3:]), y[3:])

    done = train_both(
        nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)), batches((5,)), OPTIMIZERS["adam"], loss_of_parts
    )
    assert done.fallbacks == 0, done.fallback_ops


@pytest.mark.lazy_only
@pytest.mark.own_schedule("counts graphs")
def test_reading_the_loss_each_step_compiles_no_more():
    model = convolutional().to(DEVICE)
    optimizer = OPTIMIZERS["adamw"](model.parameters())
    compiles = []
    for x, y in batches((2, 8, 8), 6):
        with work() as done:
            optimizer.zero_grad()
            loss = cross_entropy(model, x.to(DEVICE), y.to(DEVICE))
            loss.backward()
            optimizer.step()
            loss.item()
            finish_pending()
        compiles.append(done.compiles)
    assert compiles[0] > 0
    assert compiles[3:] == [0, 0, 0], compiles
