"""What a program does for the first time when it has long begun is run, but not compiled."""

import pytest
import torch
from helpers import IS_LAZY, work

from torch_lazyplug import config, debug, ir_cache

WARM_UP = 60  # steps


@pytest.fixture(autouse=True)
def as_in_programs():
    ir_cache.reset()
    with config.changed({"compile": "auto", "run_at_once": "never"}):
        yield


class Training:
    """Of a small network, with what graphs hold: views, writes, random numbers, lists of tensors."""

    def __init__(self, device):
        torch.manual_seed(0)
        self.device = device
        self.model = torch.nn.Sequential(
            torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Tanh(), torch.nn.Linear(8, 3)
        ).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), foreach=True)
        self.data = torch.randn(64, 6).to(device)
        self.labels = (torch.arange(64) % 3).to(device)

    def step(self, first, length):
        rows = self.data[first : first + length]
        loss = torch.nn.functional.cross_entropy(self.model(rows), self.labels[first : first + length])
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.item()


def losses(device, lengths, before=()):
    training = Training(device)
    for length in [16] * WARM_UP + list(before):
        training.step(1, length)
    with work() as done:
        actual = [training.step(7, length) for length in lengths]
    actual += [parameter.detach().cpu() for parameter in training.model.parameters()]
    return actual, done


@pytest.mark.own_schedule("counts graphs")
def test_single_sizes_are_not_compiled(device):
    lengths = [16, 11, 16, 12, 16, 13, 16]
    actual, done = losses(device, lengths)
    expected, _ = losses("cpu", lengths)
    torch.testing.assert_close(actual, expected)
    if IS_LAZY:
        assert done.compiles == 0
        assert done.uncompiled > 0
        assert done.fallbacks == 0, done.fallback_ops


@pytest.mark.own_schedule("counts graphs")
def test_another_phase_is_compiled_soon(device):
    _, done = losses(device, [11] * 60)
    if IS_LAZY:
        assert done.compiles > 0
        assert done.uncompiled >= 3 * done.compiles
    _, done = losses(device, [12] * 5, before=[12] * 60)
    if IS_LAZY:
        assert (done.compiles, done.uncompiled) == (0, 0)


@pytest.mark.lazy_only
@pytest.mark.own_schedule("one of the two is run as it is recorded")
@pytest.mark.parametrize("fusion", [1, 3])
def test_bits_are_those_of_graphs(fusion, device):
    with config.changed({"fusion": fusion, "compile": "always"}):
        compiled, _ = losses(device, [16, 11, 12])
    with config.changed({"fusion": fusion, "compile": "never"}):
        interpreted, done = losses(device, [16, 11, 12])
    assert done.compiles == 0
    torch.testing.assert_close(interpreted, compiled, rtol=0, atol=0)


@pytest.mark.lazy_only
@pytest.mark.own_schedule("counts graphs")
def test_who_asks_for_no_new_graph_is_told_of_rare_ones(device):
    training = Training(device)
    for _ in range(WARM_UP):
        training.step(1, 16)
    with debug.no_recompile():
        training.step(2, 16)
    with pytest.raises(debug.RecompileError, match="differs in its"), debug.no_recompile():
        training.step(1, 11)


@pytest.mark.lazy_only
def test_failure_spoils_what_needs_it_only(device):
    with config.changed({"compile": "never"}):
        table = torch.randn(4, 3).to(device)
        good = table * 2
        bad = torch.nn.functional.embedding(torch.tensor([9], device=device), table)
        written = torch.zeros(1, 3, device=device)
        written += bad
        after = good + 1
        with pytest.raises(IndexError, match="index out of range"):
            written.cpu()
        torch.testing.assert_close(after.cpu(), table.cpu() * 2 + 1, rtol=0, atol=0)
