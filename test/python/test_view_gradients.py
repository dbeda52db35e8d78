"""Gradients through views and through writes into them."""

import pytest
from helpers import DEVICE, STATES, both
from matrix_cases import matrix


@pytest.mark.parametrize("state", STATES)
def test_gradients_through_views_and_writes(state):
    def compute(x):
        y = x * 2
        y[1:3, ::2] *= x[0, ::2]
        y.t()[1] = x[:, 5] ** 2
        left, right = y.split(3, dim=1)
        (left * right.flip(1)).sum().backward()
        return y, left

    both(compute, matrix().requires_grad_(), state=state)


@pytest.mark.parametrize("state", STATES)
def test_gradients_of_overlapping_reads(state):
    def compute(x):
        (x.unfold(1, 3, 1).prod(-1) + x.as_strided((4, 4), (6, 1), 1)).sum().backward()

    both(compute, matrix().requires_grad_(), state=state)


def test_writing_what_backward_needs_is_an_error():
    x = matrix().to(DEVICE).requires_grad_()
    y = x.exp()
    y[0] = 0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_version_counter():
    x = matrix().to(DEVICE)
    start = x._version
    x[0].add_(1)
    x.detach().add_(1)
    assert x._version == start + 2
