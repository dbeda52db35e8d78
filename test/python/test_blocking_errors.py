"""In blocking mode, errors that depend on values are raised at their own line, as in eager."""

import pytest
import torch
from composed import same_on_both
from helpers import DEVICE

pytestmark = pytest.mark.usefixtures("blocking")


def values(device):
    return torch.linspace(-2, 2, 6).reshape(2, 3).to(device)


def index(device, number=9):
    return torch.tensor([number], device=device)


RAISING = {
    "index": lambda d: values(d)[index(d)],
    "index_put_": lambda d: values(d).index_put_((index(d),), torch.ones(1, device=d)),
    "gather": lambda d: torch.gather(values(d), 1, index(d)[None]),
    "scatter_": lambda d: values(d).scatter_(1, index(d)[None], 1.0),
    "index_select": lambda d: torch.index_select(values(d), 0, index(d)),
    "index_add_": lambda d: values(d).index_add_(0, index(d), torch.ones(1, 3, device=d)),
    "index_copy_": lambda d: values(d).index_copy_(0, index(d), torch.ones(1, 3, device=d)),
    "index_fill_": lambda d: values(d).index_fill_(0, index(d), 1.0),
    "take": lambda d: torch.take(values(d), index(d)),
    "embedding": lambda d: torch.nn.functional.embedding(index(d), values(d)),
    "cross_entropy": lambda d: torch.nn.functional.cross_entropy(values(d), torch.tensor([0, 9], device=d)),
    "inverse": lambda d: torch.linalg.inv(torch.zeros(2, 2, device=d)),
    "cholesky": lambda d: torch.linalg.cholesky(-torch.eye(2, device=d)),
    "solve": lambda d: torch.linalg.solve(torch.zeros(2, 2, device=d), torch.ones(2, device=d)),
    "division": lambda d: index(d) // torch.tensor([0], device=d),
    "multinomial": lambda d: torch.multinomial(torch.tensor([-1.0, 2.0], device=d), 1),
    "bernoulli": lambda d: torch.bernoulli(torch.tensor([3.0], device=d)),
    "normal": lambda d: torch.normal(torch.zeros(2, device=d), torch.tensor([-1.0, 1.0], device=d)),
    "repeat_interleave": lambda d: torch.repeat_interleave(index(d, -1)),
    "histc": lambda d: torch.histc(torch.tensor([float("nan")], device=d)),
}


@pytest.mark.parametrize("name", RAISING)
def test_raises_at_its_line(name):
    def call(device):
        with pytest.raises(Exception) as raised:  # noqa: PT011  (any kind: its kind is what is compared)
            RAISING[name](device)
        raise raised.value

    same_on_both(call)


def test_classes_are_checked_by_who_writes_them():
    """PyTorch looks at one_hot's classes on devices that it knows only, so the message is not of one_hot."""
    with pytest.raises(RuntimeError, match="Class values must be smaller than num_classes|index 9 is out of bounds"):
        torch.nn.functional.one_hot(index(DEVICE), 3)
