"""The line of the user's program: every frame that is not in the packages torch and torch_lazyplug themselves."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import torch_lazyplug
from torch_lazyplug import debug

pytestmark = pytest.mark.lazy_only

PACKAGE_ROOT = Path(torch_lazyplug.__file__).resolve().parents[1]

READ = "import torch\nx = torch.ones(2, device='lazy') + 1\nx.sum().item()\n"


def lines_of_reads():
    return [event["location"] for event in debug.events("sync") if event["cause"] == "item"]


def run_with_debug(code):
    env = {**os.environ, "LAZYPLUG_DEBUG": "1", "PYTHONPATH": str(PACKAGE_ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("folder", ["torch", "torch_lazyplug", "site-packages/torch", "project"])
@pytest.mark.own_schedule("asserts what cuts a trace")
def test_scripts_in_folders_of_any_name(folder, tmp_path):
    script = tmp_path / folder / "train.py"
    script.parent.mkdir(parents=True)
    script.write_text(READ + "import torch_lazyplug\nprint(torch_lazyplug.debug.events('sync')[0]['location'])\n")
    code = f"import torch_lazyplug, runpy; runpy.run_path({str(script)!r})"
    assert run_with_debug(code) == f"{script}:3\n"


@pytest.mark.parametrize(
    "name", ["<ipython-input-3-abc>", "/tmp/ipykernel_123/456.py", "<stdin>", "/home/u/torch/train.py"]
)
def test_notebook_cells(name, debugging):
    exec(compile(READ, name, "exec"), {"__name__": "__main__"})
    assert lines_of_reads() == [f"{name}:3"]


@pytest.mark.own_schedule("asserts what cuts a trace")
def test_the_command_line():
    code = READ + "import torch_lazyplug\nprint(torch_lazyplug.debug.events('sync')[0]['location'])\n"
    assert run_with_debug(code) == "<string>:3\n"


def test_a_cell_that_calls_pytorch(debugging):
    cell = """
        import torch
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()).to("lazy")
        result = model(torch.ones(1, 2, device="lazy"))
    """
    names = {}
    exec(compile(textwrap.dedent(cell), "<ipython-input-7-def>", "exec"), names)
    text = debug.get_tensors_text([names["result"]])
    assert "<ipython-input-7-def>:4" in text and "/nn/modules/" not in text


def test_code_that_pytorch_generates_is_not_the_users(debugging):
    class Model(torch.nn.Module):
        def forward(self, x):
            return x.sum().item()

    traced = torch.fx.symbolic_trace(Model())
    traced(torch.ones(2, device="lazy"))
    assert [Path(line.split(":")[0]).name for line in lines_of_reads()] == ["test_user_lines.py"]
