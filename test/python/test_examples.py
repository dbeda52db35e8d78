"""Every program in examples/ runs. `train_digits.py` has tests of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

# What the output must contain.
EXPECTED = {
    "custom_op.py": "ran on the CPU at once",
    "find_problems.py": "called a synchronizing LAZY operation: reading a value",
    "load_data.py": "epoch 1: total error 0.0",
    "save_and_load.py": "loaded to cpu",
    "use_amp.py": "torch.bfloat16: scores in torch.bfloat16",
    "use_compile.py": "1 graph, 0 graph breaks",
    "use_streams.py": "the device took",
    "watch_memory.py": "training goes on",
}

pytestmark = pytest.mark.lazy_only


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_example(name):
    done = subprocess.run([sys.executable, str(EXAMPLES / name)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert EXPECTED[name] in done.stdout, done.stdout


def test_every_example_is_run():
    assert {path.name for path in EXAMPLES.glob("*.py")} == {*EXPECTED, "train_digits.py"}
