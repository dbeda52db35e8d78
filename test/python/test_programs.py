"""The programs of bench/ compute on the device what they compute on the CPU."""

import math

import programs  # noqa: F401  (registers them)
import pytest
import torch
from helpers import assert_same
from registry import CASES

from torch_lazyplug import config

pytestmark = pytest.mark.torchscript

# Some read every tenth loss only.
STEPS = 10


def results(case, device):
    torch.manual_seed(0)
    step = case.make(device)
    return [step() for _ in range(STEPS)]


def numbers(tree):
    if isinstance(tree, (list, tuple)):
        return [number for part in tree for number in numbers(part)]
    return [tree]


@pytest.mark.parametrize("fusion", [1, 3])
@pytest.mark.parametrize("name", CASES)
def test_program(name, fusion, device):
    """To the bit, if functions are the CPU's; nearly, if they are the device's own."""
    case = CASES[name]
    rtol, atol = (case.rtol, 0) if fusion == 1 else (max(case.rtol, 1e-4), 1e-6)
    with config.changed({"fusion": fusion}):
        actual = results(case, device)
    expected = results(case, "cpu")
    if case.random:
        assert all(math.isfinite(number) for number in numbers(actual))
    else:
        assert_same(actual, expected, rtol=rtol, atol=atol)
