"""Random programs do on the device what they do on the CPU. More of them: `make fuzz N=100000 SEED=1`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import DEVICE

TESTS = Path(__file__).resolve().parents[1]
PROGRAMS = 1000


def fuzz(*options, directory):
    command = [sys.executable, "-m", "fuzz", "--device", DEVICE, "--save", str(directory), *options]
    return subprocess.run(
        command, cwd=TESTS, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True
    )


@pytest.mark.parametrize("mode", ("normal", "blocking"))
def test_random_programs(mode, tmp_path):
    """A process of its own, because the workers are forked before the device is used."""
    options = ["--blocking"] if mode == "blocking" else []
    done = fuzz("-n", str(PROGRAMS), "--seed", "1", *options, directory=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_programs_are_reproducible():
    """A seed means the same program in every process, or a failure could not be found again."""
    command = [sys.executable, "-m", "fuzz", "--show", "--seed", "7"]
    texts = {subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=True).stdout for _ in range(2)}
    assert len(texts) == 1
    assert len(texts.pop().splitlines()) > 5
