"""Graphs as TorchScript: they say all that is needed to run them, on PyTorch's own interpreter as well as here.

With the marker `torchscript` all graphs of a test are verified so; the tests of models are.
"""

import pytest
import torch

import torch_lazyplug
from torch_lazyplug import computation, debug, metrics

pytestmark = [pytest.mark.lazy_only, pytest.mark.own_schedule("looks at a graph that is pending as a whole")]


def run_text(text, inputs):
    function = torch._C._create_function_from_graph("graph", torch._C.parse_ir(text))
    return function(*inputs)


def lazy(*values):
    return torch.tensor(values, dtype=torch.float32, device="lazy")


@pytest.mark.parametrize(
    "compute",
    [
        lambda x, y: x.mul_(2).add_(y, alpha=0.5),
        lambda x, y: torch.cat([x[1:], y]).sort(descending=True).values,
        lambda x, y: (x.view(1, 3).t() @ y.view(1, 3)).sum(0, dtype=torch.float64),
        lambda x, y: torch.where(x > 1, x, y).to(torch.bfloat16),
        lambda x, y: torch.nn.functional.layer_norm(x, (3,), y),
        lambda x, y: torch.rand_like(x) + y,
    ],
)
def test_text_runs_on_pytorchs_interpreter(compute):
    result = compute(lazy(1, 2, 3), lazy(4, 5, 6))
    _, inputs = computation.get_tensors_ts_device_data_node([result])
    text = debug.get_tensors_backend([result])
    elsewhere = run_text(text, [value.clone() if torch.is_tensor(value) else value for value in inputs])
    torch.testing.assert_close(elsewhere, result.cpu(), rtol=0, atol=0)


@pytest.mark.torchscript
def test_the_marker_has_graphs_verified():
    before = metrics.counter_value("TorchScriptVerified") or 0
    x = lazy(1, 2, 3)
    assert (x * 2).tolist() == [2, 4, 6]
    assert metrics.counter_value("TorchScriptVerified") == before + 1


@pytest.mark.torchscript
def test_what_fails_is_not_verified():
    before = metrics.counter_value("TorchScriptVerified") or 0
    x = lazy(1, 2, 3).repeat(5000)
    index = torch.full((9000,), 20000, device="lazy")
    with pytest.raises(IndexError):
        x.index_select(0, index).sum().item()
    torch_lazyplug.mark_step()
    assert (metrics.counter_value("TorchScriptVerified") or 0) == before
