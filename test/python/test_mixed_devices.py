"""Tensors of two devices in one call: what is allowed, and what is said otherwise."""

import pytest
import torch
import torch.nn.functional as F
from helpers import DEVICE, work


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.ones(2, device=DEVICE) + torch.ones(2),
        lambda: torch.ones(2).add_(torch.ones(2, device=DEVICE)),
        lambda: torch.ones((), dtype=torch.float64).add_(torch.ones((), device=DEVICE)),
        lambda: torch.cat([torch.ones(2, device=DEVICE), torch.ones(2)]),
        lambda: F.embedding(torch.tensor([1]), torch.ones(3, 2, device=DEVICE)),
        lambda: torch.nonzero(torch.ones(2, device=DEVICE), out=torch.empty(0, dtype=torch.int64)),
        lambda: torch.masked_select(torch.ones(2, device=DEVICE), torch.ones(2, device=DEVICE) > 0, out=torch.ones(2)),
        lambda: torch.masked_select(torch.ones(2, device=DEVICE), torch.ones(2) > 0),
        lambda: torch.equal(torch.ones(2, device=DEVICE), torch.ones(2)),
        lambda: torch.bincount(torch.ones(2, dtype=torch.int64, device=DEVICE), torch.ones(2)),
        lambda: torch.linalg.lstsq(torch.eye(2, device=DEVICE), torch.ones(2, 1)),
        lambda: torch.nn.Conv2d(1, 1, 2)(torch.ones(1, 1, 4, 4, device=DEVICE)),
        lambda: F.conv2d(torch.ones(1, 1, 4, 4), torch.ones(1, 1, 2, 2, device=DEVICE)),
        lambda: F.conv_transpose1d(*torch.ones(2, 1, 1, 2, device=DEVICE), torch.ones(1)),
    ],
)
def test_two_devices_are_refused(call):
    with pytest.raises(RuntimeError, match="two devices|same device"):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: torch.block_diag(torch.ones(2, device=DEVICE), torch.ones(2)), "block_diag: input tensors must all"),
        (
            lambda: F.embedding(torch.tensor([1.0]), torch.ones(3, 2, device=DEVICE)),
            "'indices' to have.*scalar types: Long",
        ),
    ],
)
def test_ops_made_of_others_say_it_in_their_own_words(call, message):
    with pytest.raises(RuntimeError, match=message):
        call()


@pytest.mark.smoke
def test_numbers_on_the_cpu_mix():
    with work() as done:
        x = torch.ones(2, device=DEVICE) * torch.tensor(3.0)
        assert x.tolist() == [3, 3]
    assert done.fallbacks == 0


@pytest.mark.parametrize("in_place", (False, True))
def test_index_fill_takes_indices_from_the_cpu(in_place):
    x, index = torch.ones(3, 4, device=DEVICE), torch.tensor([2, 0])
    with work() as done:
        filled = x.index_fill_(1, index, 5.0) if in_place else x.index_fill(1, index, 5.0)
    assert filled.device == x.device
    assert filled.tolist() == torch.ones(3, 4).index_fill(1, index, 5.0).tolist()
    assert not done.fallbacks


def test_a_mask_of_one_number_may_be_on_the_cpu():
    assert torch.ones(2, device=DEVICE).masked_select(torch.tensor(True)).tolist() == [1, 1]


def test_ctc_loss_takes_targets_and_lengths_from_the_cpu():
    scores, targets = torch.randn(20, 2, 5).log_softmax(2), torch.tensor([[1, 2, 3], [4, 1, 0]])
    lengths = torch.tensor([20, 18]), torch.tensor([3, 2])
    expected = F.ctc_loss(scores, targets, *lengths)
    assert torch.equal(F.ctc_loss(scores.to(DEVICE), targets, *lengths).cpu(), expected)


@pytest.mark.parametrize("read", [lambda x, i: x[i], lambda x, i: x[:, i, None], lambda x, i: x[i.cpu(), i]])
def test_indices_of_the_device_do_not_read_a_tensor_of_the_cpu(read):
    with pytest.raises(RuntimeError, match=r"indices should be either on cpu or on the same device .* \(cpu\)"):
        read(torch.ones(3, 3), torch.tensor([0, 2], device=DEVICE))


def test_indices_of_the_device_write_a_tensor_of_the_cpu():
    def written(x, device):
        rows = torch.tensor([0, 2, 0], device=device)
        x[rows] = 5.0
        x[:, rows] = torch.tensor(2.0, device=device)
        x[(torch.arange(4) > 2).to(device)] = -1.0
        return x.index_put((rows,), torch.ones(3, 4), accumulate=True)

    x, expected = torch.ones(4, 4), torch.ones(4, 4)
    result = written(x, DEVICE)
    assert torch.equal(result, written(expected, "cpu")) and result.is_cpu
    assert torch.equal(x, expected)


def test_values_of_the_device_are_not_written_to_a_tensor_of_the_cpu():
    with pytest.raises(RuntimeError, match="two devices"):
        torch.ones(3).index_put_((torch.tensor([0, 1], device=DEVICE),), torch.ones(2, device=DEVICE))
