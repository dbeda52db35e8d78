"""The programs of bench/ compute on the device what they compute on the CPU."""

import math

import programs  # noqa: F401  (registers them)
import pytest
import torch
from helpers import assert_same
from registry import CASES

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


@pytest.mark.parametrize("name", CASES)
def test_program(name, device):
    case = CASES[name]
    actual, expected = results(case, device), results(case, "cpu")
    if case.random:
        assert all(math.isfinite(number) for number in numbers(actual))
    else:
        assert_same(actual, expected, rtol=case.rtol)
