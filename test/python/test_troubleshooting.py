"""The scripts of examples/troubleshooting name line and remedy, and docs/troubleshooting.md has each of them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import torch_lazyplug

pytestmark = pytest.mark.lazy_only

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "examples" / "troubleshooting"

# What each says, and the source of the line that it must name.
EXPECTED = {
    "reading_every_step": (["the last step took", "torch.where"], "if loss > 1000"),
    "last_batch": (["differs in its shape", "Float[6, 64]", "Float[32, 64]", "smaller batch"], 'batch.to("lazy")'),
    "growing_size": (["differs in its shape", "Float[3, 8]", "Float[2, 8]", "at its full size"], "torch.cat"),
    "number_of_another_type": (["differs in its dtype", "Long[]", "Double[]", "1 and 1.0"], "x * scale"),
    "running_on_the_cpu": (["aten::index.Tensor", "depends on data", "fallback=error forbids"], "[x > 3]"),
    "late_error": (
        ["index out of range", "aten::index_select(Float[4, 3]", "raises the same on the CPU: python ", "recorded at"],
        "table.index_select",
    ),
    "growing_memory": (["memory grows by", "tensor.detach()"], "loss = model(x)"),
    "wrong_number": (["shop::discount"], "torch.ops.shop.discount"),
    "not_a_number": (["aten.log.default", "makes NaN", "float32[3] from -1 to 1"], "y.log()"),
}


def run(script, folder):
    """As a user would, without the test run's schedules. Leaves files in the folder."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("LAZYPLUG_")}
    env["TMPDIR"] = str(folder)
    env["PYTHONPATH"] = str(Path(torch_lazyplug.__file__).resolve().parents[1])
    done = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_script_has_expectations():
    assert {script.stem for script in SCRIPTS.glob("*.py")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_scripts_name_the_line_and_the_remedy(name, tmp_path):
    script = SCRIPTS / f"{name}.py"
    parts, source = EXPECTED[name]
    output = run(script, tmp_path)
    (line,) = [i for i, text in enumerate(script.read_text().splitlines(), 1) if source in text]
    for part in (*parts, f"{script}:{line}"):
        assert part in output, output


@pytest.mark.parametrize("name", EXPECTED)
def test_the_document_shows_what_is_printed(name):
    text = (ROOT / "docs" / "troubleshooting.md").read_text()
    entry = re.search(rf"^## [^#]*?examples/troubleshooting/{name}\.py.*?(?=^## |\Z)", text, flags=re.M | re.S)
    assert entry, name
    for part in EXPECTED[name][0]:
        assert part in entry[0], part
    for field in ("**See it.**", "**Cause.**", "**Cure.**"):
        assert field in entry[0], field
