"""torch.use_deterministic_algorithms: memory without contents is filled, as in eager."""

import pytest
import torch
from helpers import DEVICE, work

DTYPES = [torch.float32, torch.float16, torch.complex64, torch.int64, torch.uint8, torch.bool]


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def assert_equal(actual, expected):
    assert torch.equal(torch.nan_to_num(actual.cpu(), 7), torch.nan_to_num(expected, 7))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "make",
    [
        lambda dtype, d: torch.empty(3, 2, dtype=dtype, device=d),
        lambda dtype, d: torch.empty_strided((2, 3), (1, 2), dtype=dtype, device=d),
        lambda dtype, d: torch.ones(2, dtype=dtype, device=d).new_empty(4),
        lambda dtype, d: torch.ones(2, dtype=dtype, device=d).resize_(5),
        lambda dtype, d: torch.ones(4, dtype=dtype, device=d)[1:3].resize_(2, 2),
        lambda dtype, d: torch.ones(4, dtype=dtype, device=d).resize_(2),
    ],
)
def test_memory_without_contents_is_filled(make, dtype, deterministic):
    with work() as done:
        actual = make(dtype, DEVICE)
        assert_equal(actual, make(dtype, "cpu"))
    assert done.fallbacks == 0


def test_nothing_is_written_without_that_setting():
    with work() as done:
        torch.empty(3, device=DEVICE)
    assert done.recorded == 0
