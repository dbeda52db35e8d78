"""The example's own code, trained on the device and on the CPU; and two thousand steps in constant memory."""

from argparse import Namespace

import pytest
import torch
import torch.nn.functional as F
import train_digits
from helpers import DEVICE, finish_pending, live_nodes, resident_bytes, work

EPOCHS = 4
MEGABYTE = 2**20


@pytest.fixture(scope="module")
def histories():
    args = Namespace(epochs=EPOCHS, batch_size=64, seed=0)
    digits = train_digits.load_data(args.seed)
    model = train_digits.make_model(args.seed)
    result = []
    for device in ("cpu", DEVICE):
        training = train_digits.Training(model, digits, device, args)
        result.append([training.run_epoch(number) for number in range(1, EPOCHS + 1)])
    return result


def test_losses_equal_the_cpus(histories):
    cpu, lazy = histories
    for expected, actual in zip(cpu, lazy, strict=True):
        assert train_digits.loss_difference(expected, actual) <= train_digits.MAX_LOSS_DIFFERENCE


def test_it_learns(histories):
    _, lazy = histories
    assert lazy[-1].loss < 0.7 * lazy[0].loss
    assert lazy[-1].accuracy >= train_digits.MIN_ACCURACY


def test_nothing_falls_back(histories):
    assert [epoch.work.fallbacks for epoch in histories[1]] == [0] * EPOCHS


@pytest.mark.lazy_only
def test_no_compiles_after_the_second_epoch(histories):
    """The schedule changes the learning rate and the momentum in every single step."""
    compiles = [epoch.work.compiles for epoch in histories[1]]
    assert sum(compiles[:2]) > 0
    assert compiles[2:] == [0] * (EPOCHS - 2), compiles
    assert all(epoch.work.cache_hits > 0 for epoch in histories[1][2:])


def test_the_schedule_changes_every_step():
    """What the test above relies on."""
    args = Namespace(epochs=1, batch_size=64, seed=0)
    training = train_digits.Training(train_digits.make_model(0), train_digits.load_data(0), "cpu", args)
    rates = []
    for _ in range(len(training.loader)):
        rates.append(training.optimizer.param_groups[0]["lr"])
        training.optimizer.step()
        training.schedule.step()
    assert len(set(rates)) == len(rates)


def test_example_finds_faults():
    good = [train_digits.Epoch(1.0, 0.99, 1.0, train_digits.Statistics())] * (train_digits.WARM_UP_EPOCHS + 1)
    assert train_digits.find_faults(good, good) == []
    for bad in (
        train_digits.Epoch(1.01, 0.99, 1.0, train_digits.Statistics()),
        train_digits.Epoch(float("nan"), 0.99, 1.0, train_digits.Statistics()),
        train_digits.Epoch(1.0, 0.9, 1.0, train_digits.Statistics()),
        train_digits.Epoch(1.0, 0.99, 1.0, train_digits.Statistics(compiles=1)),
        train_digits.Epoch(1.0, 0.99, 1.0, train_digits.Statistics(fallbacks=1)),
    ):
        assert len(train_digits.find_faults(good, [*good[:-1], bad])) == 1


def test_two_thousand_steps_in_constant_memory():
    """The loss is read once, at the end; `mark_step` is never called."""
    steps, batch_size, window = 2000, 8, 250
    images, labels = (part.to(DEVICE) for part in train_digits.load_data(0).train.tensors)
    model = train_digits.make_model(0).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    nodes, memory = [], []
    with work() as done:
        for step in range(steps):
            start = step % 64 * batch_size
            scores = model(images[start : start + batch_size])
            loss = F.cross_entropy(scores, labels[start : start + batch_size])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            nodes.append(live_nodes())
            memory.append(resident_bytes())
        final = loss.item()

    assert final < 0.5
    assert done.fallbacks == 0, done.fallback_ops
    # The first half is warm-up: graphs compile, caches and allocators reach their size.
    early, late = slice(steps // 2, steps // 2 + window), slice(steps - window, steps)
    assert max(nodes[late]) <= 1.2 * max(nodes[early]) + 100
    assert max(memory[late]) - max(memory[early]) < 8 * MEGABYTE


@pytest.mark.lazy_only
def test_compiles_stay_flat_without_reading():
    model = train_digits.make_model(0).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    images, labels = (part[:8].to(DEVICE) for part in train_digits.load_data(0).train.tensors)

    def run(steps):
        with work() as done:
            for _ in range(steps):
                optimizer.zero_grad()
                F.cross_entropy(model(images), labels).backward()
                optimizer.step()
            finish_pending()
        return done

    run(100)
    assert run(100).compiles <= 2  # it begins before the place of a cut, and ends after one: shorter pieces, new once
    assert run(100).compiles == 0
