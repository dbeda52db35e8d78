"""torch.compile: whole graphs, results equal to those without it."""

import warnings

import pytest
import torch
import torch._dynamo
from helpers import DEVICE, assert_same, assert_same_sharing, run_fresh
from torch import nn
from torch._dynamo.utils import counters
from torch.utils._pytree import tree_map_only

pytestmark = pytest.mark.lazy_only

BACKENDS = ("eager", "aot_eager")


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    counters.clear()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.compile: Inductor generates no code")
        yield


def compiled_as_eager(function, *inputs, backend, graphs=1):
    """Runs the function with and without torch.compile; there must be no graph breaks."""
    torch.manual_seed(0)
    expected = function(*inputs)
    torch.manual_seed(0)
    actual = torch.compile(function, backend=backend, fullgraph=True)(*inputs)
    assert not counters["graph_break"]
    assert counters["stats"]["unique_graphs"] == graphs
    return actual, expected


def pointwise(x):
    return (x * 2 + 1).relu().sum(-1)


def views_and_writes(x):
    y = x.clone()
    y[0] += 1
    y.t()[1].mul_(3)
    return y, y.view(-1)


def random(x):
    return nn.functional.dropout(x, 0.5) + torch.rand_like(x) + torch.rand(4, device=x.device)


def factories(x):
    return torch.arange(4, device=x.device) + torch.zeros(3, 4, device="lazy") + x.new_ones(4)


def moves(x):
    return x.to("cpu").double(), x.cpu().to("lazy"), x.is_lazy, x.device.type


FUNCTIONS = (pointwise, views_and_writes, random, factories, moves)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions(function, backend):
    x = torch.randn(3, 4, device=DEVICE)
    actual, expected = compiled_as_eager(function, x, backend=backend)
    assert_same_sharing(actual, expected)
    assert_same(actual, tree_map_only(torch.Tensor, torch.Tensor.cpu, expected))


# Streams, events and queries -----------------------------------------------------------------------------------------

stream, event = torch.lazy.Stream(), torch.lazy.Event()


def in_stream(x):
    with torch.lazy.stream(stream):
        y = x * 2
    return y + 1


def in_stream_itself(x):
    with stream:
        y = x * 2
    return y + 1


def current_stream(x):
    torch.lazy.current_stream().wait_stream(stream)
    return x + torch.accelerator.current_device_index()


def own_event(x):
    made_here = torch.lazy.Event()
    made_here.record()
    y = x * 2
    made_here.wait()
    return y


def outer_event(x):
    y = x * 2
    event.record(stream)
    stream.wait_event(event)
    event.synchronize()
    return y


def queries(x):
    torch.lazy.synchronize()
    torch.accelerator.synchronize()
    if torch.lazy.is_available() and torch.lazy.is_bf16_supported():
        x = x + torch.lazy.current_device() + torch.lazy.device_count() + torch.lazy.get_device_capability()[0]
    return x + torch.lazy.get_device_properties().major


DEVICE_FUNCTIONS = (in_stream, in_stream_itself, current_stream, own_event, outer_event, queries)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", DEVICE_FUNCTIONS)
def test_streams_events_and_queries_break_no_graph(function, backend):
    actual, expected = compiled_as_eager(function, torch.randn(3, 4, device=DEVICE), backend=backend)
    assert torch.equal(actual, expected)
    assert torch.lazy.current_stream() == torch.lazy.default_stream()


# Training ------------------------------------------------------------------------------------------------------------


def make_convnet():
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    return nn.Sequential(*net, nn.Dropout(0.2), nn.Linear(36, 5)), torch.randn(4, 1, 8, 8)


def make_transformer():
    return nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), torch.randn(2, 5, 16)


def make_lstm():
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.LSTMCell(6, 8)

        def forward(self, x):
            state = None
            for step in x.unbind(1):
                state = self.cell(step, state)
            return state[0]

    return Last(), torch.randn(2, 3, 6)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", [make_convnet, make_transformer, make_lstm])
def test_training(make, backend):
    losses = [train(make, lambda model: model), train(make, lambda model: torch.compile(model, backend=backend))]
    assert losses[0] == losses[1]
    assert not counters["graph_break"]
    assert counters["stats"]["unique_graphs"] == 1


def train(make, wrap):
    torch.manual_seed(0)
    model, x = make()
    model, x = model.to(DEVICE), x.to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    step, losses = wrap(model), []
    torch.manual_seed(1)
    for _ in range(3):
        optimizer.zero_grad()
        loss = step(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_explain_sees_one_graph():
    model, x = make_transformer()
    explanation = torch._dynamo.explain(model.to(DEVICE))(x.to(DEVICE))
    assert (explanation.graph_count, explanation.graph_break_count) == (1, 0)


def test_reading_a_value_breaks_the_graph_as_elsewhere():
    def function(x):
        return x + 1 if x.sum() > 0 else x - 1

    x = torch.ones(2, device=DEVICE)
    assert torch.compile(function, backend="eager")(x).tolist() == [2, 2]
    assert torch._dynamo.explain(function)(x).graph_break_count == 1


def test_dynamic_shapes():
    function = torch.compile(pointwise, backend="aot_eager", dynamic=True, fullgraph=True)
    for size in (3, 5, 9):
        x = torch.randn(size, 4, device=DEVICE)
        assert torch.equal(function(x), pointwise(x))
    assert counters["stats"]["unique_graphs"] == 1


def test_checkpointing_inside_a_compiled_function():
    from torch.utils.checkpoint import checkpoint

    def function(x):
        return checkpoint(lambda t: nn.functional.dropout(t.sin(), 0.5), x, use_reentrant=False).sum()

    x = torch.ones(64, device=DEVICE, requires_grad=True)
    torch.compile(function, backend="aot_eager", fullgraph=True)(x).backward()
    kept = (x.grad != 0).sum().item()
    assert 0 < kept < 64
    assert torch.allclose(x.grad[x.grad != 0].cpu(), 2 * torch.ones(kept).cos())


def test_export():
    program = torch.export.export(nn.Linear(3, 2).to(DEVICE), (torch.ones(1, 3, device=DEVICE),))
    x = torch.randn(1, 3, device=DEVICE)
    assert program.module()(x).device == x.device


# Inductor and what importing costs -----------------------------------------------------------------------------------


def test_the_default_backend_says_what_runs_instead():
    results = run_fresh(
        """
        import warnings
        function = torch.compile(lambda x: x + 1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            results = [function(torch.ones(size, device="lazy")).tolist() for size in (2, 3)]
        assert results == [[2, 2], [2, 2, 2]]
        print(*(warning.message for warning in caught if "Inductor" in str(warning.message)))
        """
    )
    assert results.count("Inductor generates no code for the lazy device") == 1


def test_training_with_the_default_backend():
    losses = [train(make_convnet, lambda model: model), train(make_convnet, torch.compile)]
    assert losses[0] == losses[1]


def test_the_backend_of_the_device():
    assert "lazy" in torch._dynamo.list_backends(exclude_tags=())
    actual, expected = compiled_as_eager(pointwise, torch.randn(3, 4, device=DEVICE), backend="lazy")
    assert torch.equal(actual, expected)


def test_graphs_for_the_cpu_still_go_to_inductor(monkeypatch):
    from torch._inductor import compile_fx

    def compile_for_others(model, *args, **kwargs):
        seen.append(model)
        return model

    seen = []
    monkeypatch.setattr(compile_fx.compile_fx.__closure__[0], "cell_contents", compile_for_others)
    torch.compile(lambda x: x + 1)(torch.ones(2))
    assert len(seen) == 1


def test_importing_torch_does_not_import_dynamo():
    modules = run_fresh("import sys; print([name for name in sys.modules if name.startswith('torch._dynamo')])")
    assert modules.strip() == "[]"


def test_the_device_is_registered_however_dynamo_is_imported():
    run_fresh(
        """
        import torch._dynamo.device_interface as interfaces
        for device in ("lazy", "lazy:0", "lazy:1"):
            assert interfaces.get_interface_for_device(device).is_available()
        """,
        devices=2,
    )


def test_flattened_convolutions_of_channels_last():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 2))
    x = torch.randn(2, 3, 8, 8)
    expected = model(x)
    model = model.to(DEVICE).to(memory_format=torch.channels_last)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    result = compiled(x.to(DEVICE).to(memory_format=torch.channels_last))
    result.sum().backward()
    torch.testing.assert_close(result.cpu(), expected)
