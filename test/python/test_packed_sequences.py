"""Packed sequences: the data is on the device, lengths and batch sizes stay on the CPU."""

import pytest
import torch
from helpers import DEVICE, assert_same, work
from torch import nn
from torch.nn.utils import rnn

LENGTHS = [5, 2, 4]


def packed(device, lengths=LENGTHS, **options):
    torch.manual_seed(0)
    padded = torch.rand(5, len(LENGTHS), 2).to(device).requires_grad_()
    return padded, rnn.pack_padded_sequence(padded, lengths, **options)


@pytest.mark.parametrize("lengths", [LENGTHS, torch.tensor(LENGTHS)], ids=["list", "tensor"])
def test_packs_and_pads_like_eager(lengths):
    with work() as done:
        padded, sequence = packed(DEVICE, lengths, enforce_sorted=False)
        again, sizes = rnn.pad_packed_sequence(sequence)
        again.sum().backward()
    assert sequence.data.device.type == "lazy" and sequence.batch_sizes.device.type == "cpu"
    expected_padded, expected = packed("cpu", lengths, enforce_sorted=False)
    expected_again, expected_sizes = rnn.pad_packed_sequence(expected)
    expected_again.sum().backward()
    assert_same(sequence.data, expected.data)
    assert_same(again, expected_again)
    assert_same(padded.grad, expected_padded.grad)
    assert torch.equal(sequence.batch_sizes, expected.batch_sizes) and torch.equal(sizes, expected_sizes)
    assert done.fallbacks == 0


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_recurrent_networks_take_them(kind):
    torch.manual_seed(1)
    network = kind(2, 3, num_layers=2, bidirectional=True)
    expected = _train(network, "cpu")
    network.zero_grad()
    for actual, wanted in zip(_train(network, DEVICE), expected, strict=True):
        assert_same(actual, wanted, rtol=1.3e-6, atol=1e-7)


def _train(network, device):
    """The output and all gradients."""
    network = network.to(device)
    padded, sequence = packed(device, enforce_sorted=False)
    output, _ = network(sequence)
    output.data.square().sum().backward()
    results = [output.data, padded.grad, *(p.grad for p in network.parameters())]
    return [result.detach().cpu().clone() for result in results]


def test_lengths_on_the_device_are_refused_like_eager():
    with pytest.raises(RuntimeError, match="CPU"):
        packed(DEVICE, torch.tensor([5, 4, 2], device=DEVICE))
