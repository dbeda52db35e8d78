"""Random programs do on the device what they do on the CPU. More of them: `make fuzz N=100000 SEED=1`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import DEVICE

TESTS = Path(__file__).resolve().parents[1]
# options, how many programs
CAMPAIGNS = {
    "normal": ([], 1000),
    "blocking": (["--blocking"], 1000),
    "scrambled": (["--schedule", "random", "--scramble"], 300),
    "training": (["--training", "--schedule", "random"], 100),
    "mix": (["--mix"], 100),
}


def fuzz(*options):
    command = [sys.executable, "-m", "fuzz", *map(str, options)]
    return subprocess.run(
        command, cwd=TESTS, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True
    )


@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_random_programs(campaign, tmp_path):
    """A process of its own, because the workers are forked before the device is used."""
    options, count = CAMPAIGNS[campaign]
    done = fuzz("--device", DEVICE, "--save", tmp_path, "-n", count, "--seed", 1, *options)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("kind", ([], ["--training"], ["--mix"]), ids=lambda options: "".join(options) or "short")
def test_programs_are_reproducible(kind):
    """A seed means the same program in every process, or a failure could not be found again."""
    texts = {fuzz("--show", "--seed", 7, *kind).stdout for _ in range(2)}
    assert len(texts) == 1
    assert len(texts.pop().splitlines()) > 5
