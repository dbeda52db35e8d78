"""Steps that read a result: they run in pieces while they are recorded, and the same pieces each time."""

import pytest
import torch
from helpers import DEVICE, work

import torch_lazyplug
from torch_lazyplug import config, metrics

pytestmark = pytest.mark.own_schedule("counts cuts")


@pytest.fixture(autouse=True)
def fresh():
    torch_lazyplug.wait_device_ops()
    metrics.reset()
    yield
    torch_lazyplug.wait_device_ops()


def make_step(device, read):
    """A training step of work enough for several pieces; `read` gets its loss, the first thing to be computed."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(256, 256), torch.nn.GELU()] * 4
    model = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.randn(64, 256, generator=torch.Generator().manual_seed(1)).to(device)

    def step():
        optimizer.zero_grad()
        loss = model(data).square().mean()
        loss.backward()
        optimizer.step()
        return read(loss)

    return step


def test_pieces_are_the_same_in_each_step():
    lazy, cpu = make_step(DEVICE, torch.Tensor.item), make_step("cpu", torch.Tensor.item)
    for _ in range(12):  # the first step is longer: the pieces are cut as for the longest of the last eight
        assert lazy() == cpu()
    cuts = []
    with work() as done:
        for _ in range(12):
            before = metrics.counter_value("TraceCut")
            assert lazy() == cpu()
            cuts.append(metrics.counter_value("TraceCut") - before)
    assert min(cuts) == max(cuts) > 1
    assert done.compiles == 0
    assert done.fallbacks == 0


def test_whole_step_is_predicted_though_its_pieces_repeat():
    step = make_step(DEVICE, torch.Tensor.item)
    for _ in range(5):
        step()
    with work() as done:
        before = metrics.counter_value("Predicted")
        for _ in range(3):
            step()
    assert metrics.counter_value("Predicted") - before == done.recorded


@pytest.mark.parametrize("pause", [False, True])
def test_pieces_do_not_depend_on_how_far_the_worker_is(pause):
    def read(loss):
        if pause:
            torch_lazyplug.wait_device_ops()  # all is computed, and so nothing is pending
        return loss.item()

    step = make_step(DEVICE, read)
    for _ in range(5):
        step()
    with work() as done:
        for _ in range(5):
            step()
    assert done.compiles == 0


def test_short_step_is_not_cut():
    x = torch.ones(4, device=DEVICE)
    cuts = []
    for _ in range(12):  # at first, as long a step as the longest of the last eight is expected
        y = x
        for _ in range(30):
            y = y + x
        assert y[0].item() == 31
        cuts.append(metrics.counter_value("TraceCut"))
    assert cuts[-1] - cuts[-4] == 3


def test_reading_several_results_cuts_once():
    x = torch.randn(512, 512, device=DEVICE)

    def step():
        parts = []
        y = x
        for _ in range(40):
            y = torch.tanh(y + x)
            parts.append(y.sum())
        return parts

    for _ in range(3):
        [part.item() for part in step()]
    parts = step()
    before = metrics.counter_value("TraceCut")
    [part.item() for part in parts]
    assert metrics.counter_value("TraceCut") == before + 1


def test_least_length_of_a_piece_is_a_setting():
    before = config.get("chunk_nodes")
    step = make_step(DEVICE, torch.Tensor.item)
    try:
        config.set("chunk_nodes", 10_000)
        for _ in range(3):
            step()
        cut = metrics.counter_value("TraceCut")
        step()
        assert metrics.counter_value("TraceCut") == cut + 1
    finally:
        config.set("chunk_nodes", before)
