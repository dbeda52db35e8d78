"""Memory that is written and read as different dtypes, op by op, so that each meets memory."""

import pytest
import torch
from helpers import STATES, both

pytestmark = pytest.mark.usefixtures("blocking")


@pytest.mark.parametrize("state", STATES)
def test_bytes_of_booleans_survive_an_empty_write(state):
    def write(flags):
        data = flags.view(torch.uint8)
        data.fill_(3)
        flags[1:2] = 0
        return data

    both(write, torch.tensor([True]), state=state)


@pytest.mark.parametrize("state", STATES)
def test_bytes_of_booleans_survive_writes_elsewhere(state):
    def write(flags, index):
        data = flags.view(torch.int8)
        data[index] = 2
        flags[:1].logical_not_()
        return data

    both(write, torch.zeros(3, dtype=torch.bool), torch.tensor([2, -1]), state=state)


def test_bytes_of_booleans_survive_a_write_that_fails():
    def write(flags, index):
        data = flags.view(torch.int8)
        data[index] = 2
        with pytest.raises(NotImplementedError, match="ceil"):
            flags.ceil_().tolist()
        return data.sum()

    both(write, torch.zeros(3, dtype=torch.bool), torch.tensor([2, -1]))
