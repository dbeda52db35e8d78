"""What docs/ shows of the device is what it prints."""

from pathlib import Path

import pytest
import torch

import torch_lazyplug

ARCHITECTURE = Path(__file__).resolve().parents[2] / "docs" / "architecture.md"

pytestmark = pytest.mark.lazy_only


@pytest.mark.own_schedule("another would have cut the trace")
def test_the_journey_of_one_statement():
    z, x = torch.zeros(3, 4, device="lazy"), torch.ones(3, device="lazy")
    torch.lazy.synchronize()
    z[:, 0] += x
    listing, _ = torch_lazyplug.debug.get_tensors_text([z.sum()]).split("return")
    assert f"```\n{listing}```" in ARCHITECTURE.read_text()
