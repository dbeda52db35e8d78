"""Programs that read and write another part of their data each time: one graph, whatever the part."""

import pytest
import torch
import torch.nn.functional as F
from helpers import DEVICE, IS_LAZY, assert_same, work
from torch import nn

from torch_lazyplug import config, debug, metrics

pytestmark = pytest.mark.torchscript

WARM_UP = 6  # steps
STEPS = 30


def table(device):
    return torch.linspace(-1, 1, 60 * 8).view(60, 8).to(device)


def make_batches(device):
    data, labels = table(device), (torch.arange(60) % 3).to(device)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def step(i):
        part = slice(i * 2 % 50, i * 2 % 50 + 10)
        loss = F.cross_entropy(model(data[part]), labels[part])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def make_crops(device):
    images = torch.linspace(0, 1, 2 * 3 * 12 * 12).view(2, 3, 12, 12).to(device)
    kernel = torch.linspace(-1, 1, 3 * 3 * 3 * 3).view(3, 3, 3, 3).to(device)

    def step(i):
        top, left = i % 5, i * 3 % 4
        crop = images[:, :, top : top + 8, left : left + 8]
        return (F.conv2d(crop, kernel) * crop[:, :, 1:-1, 1:-1]).sum()

    return step


def make_history(device):
    history, state = torch.zeros(64, 8, device=device), table(device)[0].clone()

    def step(i):
        state.mul_(0.9).add_(i)
        history[i] = state
        history[i + 1 :].zero_() if i == 0 else None
        return (history[i] - history[max(i - 3, 0)]).sum()

    return step


def make_one_hot(device):
    weights = table(device)

    def step(i):
        state = torch.zeros(6, 10, device=device)
        state[i % 6, i * 3 % 10] = 1.0
        return (state.view(-1) * weights[:, i % 8]).sum()

    return step


def make_computed(device):
    data = table(device)

    def step(i):
        return (data * 2 + 1)[i : i + 4].square().sum()

    return step


def make_shifted(device):
    data = table(device)

    def step(i):
        return (torch.roll(data, (i, 2 * i), (0, 1)) * data + torch.tril(data, i - 9) + torch.triu(data, -i)).sum()

    return step


def make_swapped(device):
    data = table(device).clone()

    def step(i):
        row = data[i].clone()
        data[i] = data[i + 1]
        data[i + 1] = row
        return (data[i + 1] * data[i + 7]).sum()

    return step


MAKERS = {
    maker.__name__.removeprefix("make_"): maker
    for maker in (
        make_batches,
        make_crops,
        make_history,
        make_one_hot,
        make_computed,
        make_shifted,
        make_swapped,
    )
}


def all_storms():
    return metrics.counter_value("CompileStorm") or 0


@pytest.mark.own_schedule("counts graphs, and each cut makes others")
@pytest.mark.parametrize("fusion", [1, 3])
@pytest.mark.parametrize("name", MAKERS)
def test_no_part_is_another_program(name, fusion, device):
    with config.changed({"fusion": fusion, "run_at_once": "never"}):
        step = MAKERS[name](device)
        actual = [step(i).item() for i in range(WARM_UP)]
        storms = all_storms()
        with work() as done:
            actual += [step(i).item() for i in range(WARM_UP, STEPS)]
    if IS_LAZY:
        assert done.compiles == 0
        assert done.fallbacks == 0, done.fallback_ops
        assert done.recorded > STEPS - WARM_UP
        assert all_storms() == storms
    step = MAKERS[name]("cpu")
    expected = [step(i).item() for i in range(STEPS)]
    assert_same(actual, expected, rtol=0 if fusion == 1 else 1e-4, atol=0 if fusion == 1 else 1e-6)


@pytest.mark.own_schedule("looks at what is recorded together")
def test_a_part_is_computed_once(device):
    """It begins at one input of the graph, wherever it is read."""
    data = table(device)

    def step(i):
        part = data[i : i + 4]
        return torch.digamma(part).sum() + torch.digamma(part).mean()

    for i in range(3):
        step(i).item()
    with work() as done:
        actual = step(9).item()
    if IS_LAZY:
        assert done.executed < done.recorded
    rows = table("cpu")[9:13]
    torch.testing.assert_close(actual, (rows.digamma().sum() + rows.digamma().mean()).item())


@pytest.mark.own_schedule("counts graphs, and each cut makes others")
def test_parts_that_coincide_by_chance_are_no_other_program(device):
    """Such as samples that are drawn twice."""
    data = table(device)

    def step(i, j, k):
        first = torch.stack([data[i], data[j]])
        return (torch.digamma(first[0]) - torch.digamma(first[1]) * data[k].norm()).sum().item()

    places = [(3, 5, 7), (3, 3, 7), (7, 5, 7), (5, 5, 5), (6, 4, 6), (0, 0, 1)]
    with config.changed({"run_at_once": "never"}):
        actual = [step(*places[0]) for _ in range(WARM_UP)][-1:]
        with work() as done:
            actual += [step(*place) for place in places[1:]]
    if IS_LAZY:
        assert done.compiles == 0
    data = table("cpu")
    assert_same(actual, [step(*place) for place in places], rtol=1e-5, atol=1e-6)


def test_what_is_empty_may_begin_behind_its_storage(device):
    data = torch.ones(1, 2, device=device)
    with config.changed({"run_at_once": "never"}):
        part = data[1:, -1:]
        assert part.storage_offset() == 3
        part.fill_(2)
        assert (part.digamma().sum() + data.sum()).item() == 2


@pytest.mark.own_schedule("looks at what is pending")
@pytest.mark.skipif(not IS_LAZY, reason="texts of graphs are the device's")
def test_texts_tell_which_views_move():
    data = table(DEVICE)
    assert "%0[Float[8] strides=[1] at=24]" in debug.get_tensors_text([data[3] * 2])
    assert "at=" not in debug.get_tensors_text([data.t() * 2])
