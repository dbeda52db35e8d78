"""Kernels run late, but what they warn of appears while the line runs, each time."""

import warnings

import pytest
import torch
from helpers import DEVICE, finish_pending, run_fresh

WARNING = {
    "bytes_as_mask": lambda d: torch.ones(9, 3, device=d).index_put_(
        (torch.zeros(9, dtype=torch.uint8, device=d),), torch.ones(0, 3, device=d), accumulate=True
    ),
    "range_beyond_floats": lambda d: torch.empty(2001, device=d, dtype=torch.float16).random_(0, 2**13 + 5),
    "resized_out": lambda d: torch.add(torch.ones(7, device=d), 1, out=torch.ones(3, device=d)),
    "too_few_degrees_of_freedom": lambda d: torch.ones(1, 11, device=d).var(0),
    "casts_away_imaginary_part": lambda d: torch.ones(13, device=d).copy_(torch.ones(13, dtype=torch.cfloat, device=d)),
}


def warnings_of(function, *args):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function(*args)
    # Where they come from does not matter, and neither how sizes are printed.
    return sorted(str(warning.message).split("(Triggered")[0].split("since it had shape")[0] for warning in caught)


@pytest.fixture
def every_warning():
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)


@pytest.mark.parametrize("name", WARNING)
def test_warns_while_the_line_runs(name, every_warning):
    expected = warnings_of(WARNING[name], "cpu")
    finish_pending()
    assert expected
    for _ in range(3):  # also when its results are known, and its place in a loop is
        assert warnings_of(WARNING[name], DEVICE) == expected
    assert warnings_of(finish_pending) == []


def test_warns_of_complex_half(every_warning):
    assert warnings_of(lambda: torch.empty(3, dtype=torch.complex32, device=DEVICE)) == warnings_of(
        lambda: torch.empty(3, dtype=torch.complex32)
    )


def test_what_is_warned_of_once_in_a_process_is_not_lost_in_a_trial():
    shown = run_fresh("""
        import warnings
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cholesky(torch.eye(150, device="lazy"))
        print(*[str(warning.message)[:30] for warning in caught])
    """)
    assert shown == "torch.cholesky is deprecated i\n"
