"""Recurrent networks are computed as on the CPU: the same ops, so the same bits, and gradients of gradients.

Unless functions are the package's own: then cells are one op each."""

import copy

import pytest
import torch
from helpers import DEVICE, assert_all_at_once, assert_same_error, error_of, run_in_bfloat16, work
from torch import nn
from torch.nn.utils import rnn

from torch_lazyplug import config, metrics

pytestmark = pytest.mark.torchscript

KINDS = {
    "tanh": nn.RNN,
    "relu": lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k),
    "gru": nn.GRU,
    "lstm": nn.LSTM,
}
SETTINGS = {
    "plain": {},
    "batch_first": {"batch_first": True},
    "deep": {"num_layers": 3},
    "bidirectional": {"num_layers": 2, "bidirectional": True},
    "no_bias": {"bias": False},
    "double": {"dtype": torch.float64},
}
CASES = [(kind, name) for kind in KINDS for name in SETTINGS] + [("lstm", "projections")]
LENGTHS = [3, 5, 1, 5]


def settings_of(name):
    return SETTINGS.get(name, {"proj_size": 3})


def results(network, x, packed=False, state=None):
    """The output, the states, and all gradients."""
    x = x.detach().requires_grad_()
    inputs = rnn.pack_padded_sequence(x, LENGTHS, network.batch_first, enforce_sorted=False) if packed else x
    output, last = network(inputs, state)
    output = output.data if packed else output
    states = last if isinstance(last, tuple) else (last,)
    (output.square().sum() + sum(s.sin().sum() for s in states)).backward()
    return [output, *states, x.grad, *(p.grad for p in network.parameters())]


def both(network, *arguments, **options):
    with work() as done:
        lazy = copy.deepcopy(network).to(DEVICE)
        actual = results(lazy, *(a.to(DEVICE) for a in arguments), **options)
        actual = [tensor.cpu() for tensor in actual]
    assert done.fallbacks == 0, done.fallback_ops
    return actual, results(network, *arguments, **options)


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_training_gives_the_same_bits(kind, name, packed):
    torch.manual_seed(0)
    network = KINDS[kind](6, 5, **settings_of(name))
    dtype = next(network.parameters()).dtype
    shape = (4, 5, 6) if network.batch_first else (5, 4, 6)
    actual, expected = both(network, torch.randn(shape, dtype=dtype), packed=packed)
    for a, e in zip(actual, expected, strict=True):
        assert a.stride() == e.stride() and torch.equal(a, e)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_inference_gives_the_same_bits(kind, mode):
    torch.manual_seed(0)
    network = KINDS[kind](6, 5, num_layers=2, dropout=0.5).eval()
    x = torch.randn(5, 6)  # not in a batch
    with mode():
        actual, _ = copy.deepcopy(network).to(DEVICE)(x.to(DEVICE))
        assert torch.equal(actual.cpu(), network(x)[0])


@pytest.mark.parametrize("size", [5, 24, 64])
@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_cells_give_the_same_bits(cell, size):
    torch.manual_seed(0)
    network, x = cell(6, size), torch.randn(3, 6)

    def train(network, x):
        x = x.detach().requires_grad_()
        state = network(x)
        state = network(x, state)
        (state[0].square().sum() if isinstance(state, tuple) else state.square().sum()).backward()
        return [x.grad.cpu(), *(p.grad.cpu() for p in network.parameters())]

    actual = train(copy.deepcopy(network).to(DEVICE), x.to(DEVICE))
    for a, e in zip(actual, train(network, x), strict=True):
        assert torch.equal(a, e)


WRITES = {
    "a function": lambda state: state.tanh_(),
    "a number": lambda state: state.mul_(0.5),
    "a mask": lambda state: state.masked_fill_(torch.arange(3, device=state.device)[:, None] == 1, 0),
    "a row": lambda state: state[1].zero_(),
    "a slice": lambda state: state[:, 2:].neg_(),
}


@pytest.mark.parametrize("at_once", ["never", "always"])
@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell])
def test_new_states_of_cells_may_be_written(cell, name, at_once):
    torch.manual_seed(0)
    network, x = cell(6, 5), torch.randn(3, 6)

    def train(network, x):
        x = x.detach().requires_grad_()
        state = None
        for _ in range(3):
            state = network(x, state)
            parts = state if isinstance(state, tuple) else (state,)
            parts[-1].retain_grad()
            WRITES[name](parts[-1])
        sum(part.square().sum() for part in parts).backward()
        return [x.grad.cpu(), *(p.grad.cpu() for p in network.parameters()), *(part.detach().cpu() for part in parts)]

    expected = train(network, x)
    with config.changed({"run_at_once": at_once}), work() as done:
        actual = train(copy.deepcopy(network).to(DEVICE), x.to(DEVICE))
    assert done.fallbacks == 0
    for a, e in zip(actual, expected, strict=True):
        assert torch.equal(a, e)


def test_second_gradients_of_a_cell_whose_state_is_written():
    torch.manual_seed(0)
    network, x = nn.LSTMCell(4, 3, dtype=torch.float64), torch.randn(2, 4, dtype=torch.float64)

    def penalty(network, x):
        x = x.detach().requires_grad_()
        hidden, cell = network(x)
        cell.mul_(0.5)
        (grad,) = torch.autograd.grad((hidden * cell).sum(), x, create_graph=True)
        grad.square().sum().backward()
        return [p.grad.cpu() for p in network.parameters()]

    actual = penalty(copy.deepcopy(network).to(DEVICE), x.to(DEVICE))
    for a, e in zip(actual, penalty(network, x), strict=True):
        torch.testing.assert_close(a, e, rtol=1e-12, atol=1e-13)  # summed in another order


@pytest.mark.parametrize("kind", ["tanh", "gru"])
def test_the_inputs_of_all_steps_are_multiplied_at_once(kind):
    network, x = KINDS[kind](6, 5).to(DEVICE), torch.randn(7, 2, 6, device=DEVICE)
    count = lambda: sum(metrics.counter_value(f"lazy::{op}") or 0 for op in ("mm", "addmm"))  # noqa: E731
    before = count()
    network(x)
    assert count() - before == 1 + 7


@pytest.mark.parametrize("kind", ["tanh", "gru"])
def test_gradients_of_gradients(kind):
    torch.manual_seed(0)
    network = KINDS[kind](4, 3, dtype=torch.float64)
    x = torch.randn(3, 2, 4, dtype=torch.float64)

    def penalty(network, x):
        x = x.detach().requires_grad_()
        (grad,) = torch.autograd.grad(network(x)[0].sum(), x, create_graph=True)
        grad.square().sum().backward()
        return [p.grad.cpu() for p in network.parameters() if p.grad is not None]

    actual = penalty(copy.deepcopy(network).to(DEVICE), x.to(DEVICE))
    for a, e in zip(actual, penalty(network, x), strict=True):
        torch.testing.assert_close(a, e, rtol=1e-12, atol=1e-13)  # summed in another order


def test_dropout_between_layers():
    network, x = nn.GRU(6, 5, num_layers=2, dropout=0.9).to(DEVICE), torch.randn(4, 2, 6, device=DEVICE)
    outputs = [network(x)[0] for _ in range(2)]
    assert not torch.equal(*outputs)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_autocast_computes_in_bfloat16(kind):
    torch.manual_seed(0)
    network, x = KINDS[kind](6, 5), torch.randn(4, 2, 6)
    expected = run_in_bfloat16(network, x)[0]
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        actual = copy.deepcopy(network).to(DEVICE)(x.to(DEVICE))[0]
    assert actual.dtype == expected.dtype
    assert torch.equal(actual.cpu(), expected)


@pytest.mark.parametrize(
    "change",
    [
        lambda gru, x, h: (gru, x.cpu(), h),
        lambda gru, x, h: (gru, x, h.double()),
        lambda gru, x, h: (gru, x[:0], h),
        lambda gru, x, h: (gru.double(), x, h),
    ],
    ids=["elsewhere", "state_of_another_dtype", "no_steps", "weights_of_another_dtype"],
)
def test_what_pytorch_refuses(change):
    """With its own messages, but for the names of the devices."""

    def message(device):
        other = "cpu" if device == DEVICE else "meta"
        gru, x, h = nn.GRU(6, 5).to(device), torch.zeros(4, 2, 6, device=device), torch.zeros(1, 2, 5, device=device)
        x.cpu = lambda: torch.zeros(4, 2, 6, device=other)
        gru, x, h = change(gru, x, h)
        with pytest.raises((RuntimeError, ValueError)) as caught:
            torch.gru(x, h, list(gru.parameters()), True, 1, 0.0, False, False, False)
        return (
            str(caught.value)
            .splitlines()[0]
            .replace(f"{device}:0", device)
            .replace(other, "other")
            .replace(device, "here")
        )

    assert message(DEVICE) == message("cpu")


# ---- with functions of this package's own, a cell is one op ----


@pytest.fixture
def functions():
    """Nothing of them without the vector instructions that PyTorch uses."""
    if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        pytest.skip("there are no functions of our own")
    with config.changed({"fusion": 3}):
        yield


def counts():
    names = ("lstm_cell", "lstm_cell_backward", "gru_cell", "gru_cell_backward", "sigmoid", "tanh")
    return {name: metrics.counter_value(f"lazy::{name}") or 0 for name in names}


@pytest.mark.usefixtures("functions")
@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize(("kind", "name"), [("gru", "plain"), ("gru", "bidirectional"), ("lstm", "projections")])
def test_a_cell_is_one_op(kind, name, packed):
    torch.manual_seed(0)
    network = KINDS[kind](6, 40, **settings_of(name))
    before = counts()
    actual, expected = both(network, torch.randn(5, 4, 6), packed=packed)
    done = {name: n - before[name] for name, n in counts().items()}
    layers = 4 if name == "bidirectional" else 1
    assert done[f"{kind}_cell"] == done[f"{kind}_cell_backward"] == 5 * layers
    assert done["sigmoid"] == done["tanh"] == 0
    for a, e in zip(actual, expected, strict=True):
        assert a.stride() == e.stride()
        torch.testing.assert_close(a, e, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("functions")
@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell])
def test_cells_have_the_same_bits_at_once(kind):
    torch.manual_seed(0)
    network, x = kind(6, 40).to(DEVICE), torch.randn(3, 6, device=DEVICE)

    def train():
        network.zero_grad()
        state = network(x, network(x))
        (state[0] if isinstance(state, tuple) else state).square().sum().backward()
        return [p.grad.cpu() for p in network.parameters()]

    recorded = train()
    with config.changed({"run_at_once": "always"}), work() as done:
        at_once = train()
    assert done.fallbacks == 0
    for a, b in zip(recorded, at_once, strict=True):
        assert torch.equal(a, b)


@pytest.mark.usefixtures("functions")
def test_gradients_that_fused_cells_lack():
    """Forward ones, those of batches, and gradients of gradients."""
    torch.manual_seed(0)
    network, x = nn.GRU(4, 3), torch.randn(3, 2, 4)

    def forward(network, x):
        return torch.func.jvp(lambda x: network(x)[0], (x,), (torch.ones_like(x),))[1]

    def jacobian(network, x):
        return torch.func.jacrev(lambda x: network(x)[0])(x)

    def second(network, x):
        x = x.detach().requires_grad_()
        (grad,) = torch.autograd.grad(network(x)[0].sum(), x, create_graph=True)
        return torch.autograd.grad(grad.square().sum(), x)[0]

    lazy = copy.deepcopy(network).to(DEVICE)
    for derive in (forward, jacobian, second):
        torch.testing.assert_close(derive(lazy, x.to(DEVICE)).cpu(), derive(network, x), rtol=1e-5, atol=1e-6)


# The CPU multiplies integers in another way before it refuses them in a GRU's cell.
@pytest.mark.parametrize(
    "cell, case",
    [("lstm_cell", "bias of another dtype"), ("gru_cell", "bias of another dtype"), ("lstm_cell", "integers")],
)
def test_cells_refuse_dtypes_as_on_the_cpu(cell, case):
    gates = 4 if cell == "lstm_cell" else 3

    def call(device):
        def ones(*sizes, dtype=torch.long if case == "integers" else torch.float32):
            return torch.ones(*sizes, device=device, dtype=dtype)

        state = (ones(3, 2), ones(3, 2)) if cell == "lstm_cell" else ones(3, 2)
        biases = () if case == "integers" else (ones(2 * gates, dtype=torch.half), ones(2 * gates))
        return getattr(torch, cell)(ones(3, 4), state, ones(2 * gates, 4), ones(2 * gates, 2), *biases)

    assert_same_error(error_of(call, DEVICE), error_of(call, "cpu"))


@pytest.mark.lazy_only
@pytest.mark.parametrize("kind", [nn.GRU, nn.RNN])
def test_gradients_under_vmap_are_those_of_all_samples_at_once(kind):
    def gradients(device, samples):
        torch.manual_seed(0)
        model = kind(4, 3).to(device)
        x = torch.randn(6, 5, 4).to(device).requires_grad_()
        y = model(x)[0]
        vectors = torch.randn(samples, *y.shape).to(device)
        return torch.vmap(lambda v: torch.autograd.grad(y, [x, *model.parameters()], v))(vectors)

    assert_all_at_once(gradients)
