"""CTC loss: the lengths are numbers on the host, which change with every batch; they are inputs of the graph."""

import pytest
import torch
import torch.nn.functional as F
from helpers import DEVICE, assert_same_error, both, work

TIME, BATCH, CLASSES, WIDTH = 12, 3, 7, 4


def batch(generator, time=TIME):
    inputs = torch.randint(time // 2, time + 1, (BATCH,), generator=generator)
    targets = torch.randint(1, WIDTH, (BATCH,), generator=generator)
    targets[0] = WIDTH  # the longest decides the shape of what the gradient needs
    return inputs.tolist(), targets.tolist()


def scores(time=TIME):
    return torch.randn(time, BATCH, CLASSES), torch.randint(1, CLASSES, (BATCH, WIDTH))


def loss_and_gradient(x, targets, lengths, **options):
    x = x.detach().requires_grad_()
    loss = F.ctc_loss(x.log_softmax(2), targets, *lengths, **options)
    loss.sum().backward()
    return loss.detach(), x.grad


LENGTHS = {
    "lists": lambda lengths: lengths,
    "tensors": lambda lengths: [torch.tensor(part) for part in lengths],
    "on the device": lambda lengths: [torch.tensor(part, device=DEVICE) for part in lengths],
}


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
@pytest.mark.parametrize("reduction", ("mean", "none"))
@pytest.mark.parametrize("kind", LENGTHS)
def test_is_recorded_with_its_gradient(kind, reduction, dtype):
    x, targets = scores()
    lengths = LENGTHS[kind](batch(torch.Generator()))
    both(lambda x, targets: loss_and_gradient(x, targets, lengths, reduction=reduction), x.to(dtype), targets)


def test_targets_may_be_concatenated():
    x, targets = scores()
    inputs, lengths = batch(torch.Generator())
    both(lambda x, targets: loss_and_gradient(x, targets, (inputs, lengths)), x, targets.flatten()[: sum(lengths)])


def test_what_is_impossible_has_no_gradient_if_infinity_is_zero():
    x, targets = scores(time=2)
    lengths = [2] * BATCH, [WIDTH] * BATCH
    loss, gradient = both(lambda *tensors: loss_and_gradient(*tensors, lengths, zero_infinity=True), x, targets)
    assert not loss.any() and not gradient.any()


@pytest.mark.parametrize("time", (TIME, 600), ids=("small", "large"))
@pytest.mark.own_schedule("counts graphs")
def test_other_lengths_of_the_same_shapes_compile_nothing(time):
    x, targets = scores(time)
    generator = torch.Generator()

    def train(steps):
        for _ in range(steps):
            lengths = batch(generator, time)
            both(lambda *tensors, lengths=lengths: loss_and_gradient(*tensors, lengths), x, targets)

    train(1)
    with work() as done:
        train(20)
    assert done.compiles == 0
    assert done.fallbacks == 0


BAD = {
    "longer than time": ([TIME + 1] * BATCH, [2] * BATCH),
    "longer than the targets": ([TIME] * BATCH, [WIDTH + 1] * BATCH),
    "negative": ([TIME, -1, TIME], [2] * BATCH),
    "too few": ([TIME], [2] * BATCH),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_lengths_raise_at_the_line(name):
    x, targets = scores()
    F.ctc_loss(x.to(DEVICE), targets, [TIME] * BATCH, [2] * BATCH)
    with pytest.raises(RuntimeError) as expected:
        F.ctc_loss(x, targets, *BAD[name])
    with pytest.raises(RuntimeError) as actual:
        F.ctc_loss(x.to(DEVICE), targets, *BAD[name])
    assert_same_error(actual.value, expected.value)
