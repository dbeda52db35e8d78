"""Importing: autoloading, order, repetition, versions. Each case needs an interpreter of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torch_lazyplug

pytestmark = pytest.mark.lazy_only

PACKAGE_ROOT = Path(torch_lazyplug.__file__).resolve().parents[1]

# The device works: it has its names, and computes.
USE = """
assert torch.device("lazy").type == "lazy"
assert torch.get_device_module("lazy") is torch.lazy is torch_lazyplug.lazy
assert torch.ones(2).lazy().is_lazy
assert (torch.ones(2, device="lazy") + 1).cpu().tolist() == [2, 2]
"""

# The entry point that installing the package declares, for a package that is on the path only.
FAKE_ENTRY_POINT = """
import importlib.metadata as metadata
def entry_points(**selection):
    found = metadata.EntryPoint("torch_lazyplug", "torch_lazyplug:_autoload", "torch.backends")
    return metadata.EntryPoints([found]).select(**selection)
metadata.entry_points = entry_points
"""


def run(code, autoload=False, entry_point=True):
    """The finished process; with `autoload`, `import torch` imports the plugin, as if it were installed."""
    env = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": str(int(autoload)), "PYTHONPATH": str(PACKAGE_ROOT)}
    prefix = FAKE_ENTRY_POINT if entry_point else ""
    return subprocess.run([sys.executable, "-c", prefix + code], env=env, capture_output=True, text=True, timeout=120)


def assert_runs(code, **kwargs):
    done = run(code, **kwargs)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("autoload", [False, True])
@pytest.mark.parametrize("first", ["torch", "torch_lazyplug"])
@pytest.mark.smoke
def test_either_import_order(first, autoload):
    second = {"torch": "torch_lazyplug", "torch_lazyplug": "torch"}[first]
    assert_runs(f"import {first}, {second}\n{USE}", autoload=autoload)


def test_import_torch_is_enough_with_autoload():
    assert_runs("import torch\nimport sys\ntorch_lazyplug = sys.modules['torch_lazyplug']\n" + USE, autoload=True)


def test_import_torch_leaves_us_out_without_autoload():
    assert_runs("import torch, sys\nassert 'torch_lazyplug' not in sys.modules and not hasattr(torch, 'lazy')")


@pytest.mark.parametrize("autoload", [False, True])
@pytest.mark.parametrize("module", ["lazy", "config", "accessors"])
def test_submodule_can_come_first(module, autoload):
    assert_runs(f"import torch_lazyplug.{module}\nimport torch\n{USE}", autoload=autoload)


@pytest.mark.parametrize("autoload", [False, True])
@pytest.mark.parametrize("first", ["safetensors", "safetensors.torch"])
def test_safetensors_can_come_first(first, autoload, tmp_path):
    """It imports PyTorch, and thereby the plugin, while it is itself being imported."""
    pytest.importorskip("safetensors")
    path = str(tmp_path / "x.safetensors")
    assert_runs(
        f"import {first}\n"
        "import torch, safetensors.torch\n"
        f"{'' if autoload else 'import torch_lazyplug'}\n"
        f"safetensors.torch.save_file({{'x': torch.ones(2)}}, {path!r})\n"
        f"assert safetensors.torch.load_file({path!r}, 'lazy')['x'].device.type == 'lazy'\n"
        f"assert safetensors.safe_open({path!r}, 'pt', 'lazy').get_tensor('x').device.type == 'lazy'\n",
        autoload=autoload,
    )


def test_importing_again_changes_nothing():
    assert_runs(
        "import importlib, torch, torch_lazyplug\n"
        "data_ptr = torch.Tensor.data_ptr\n"
        "importlib.reload(torch_lazyplug)\n"
        "torch_lazyplug._autoload()\n"
        "assert torch.Tensor.data_ptr is data_ptr\n" + USE
    )


def test_importing_initializes_nothing():
    assert_runs("import torch, torch_lazyplug\nassert not torch.lazy.is_initialized()")


def test_importing_keeps_the_device_count_open():
    assert_runs(
        "import os, torch, torch_lazyplug\nos.environ['LAZYPLUG_DEVICE_COUNT'] = 'no number'\n"
        "assert torch.device('lazy:1').index == 1"
    )


WRONG_VERSION = (
    "import sys, types\nsys.modules['torch_lazyplug._build_info'] = types.SimpleNamespace(TORCH_VERSION='1.2.3')\n"
)


def assert_names_both_versions(stderr):
    assert re.search(r"ImportError: .*built against PyTorch 1\.2\.3", stderr), stderr
    assert f"PyTorch {torch.__version__} is installed" in stderr, stderr


@pytest.mark.smoke
def test_other_pytorch_is_an_import_error():
    done = run(WRONG_VERSION + "import torch_lazyplug")
    assert done.returncode == 1
    assert_names_both_versions(done.stderr)


def test_other_pytorch_is_found_before_the_extension_is_loaded():
    assert_runs(
        WRONG_VERSION + "try:\n    import torch_lazyplug\nexcept ImportError:\n    pass\n"
        "assert 'torch_lazyplug._C' not in sys.modules"
    )


def test_other_pytorch_is_named_when_autoloaded():
    done = run(WRONG_VERSION + "import torch", autoload=True)
    assert done.returncode == 1
    assert_names_both_versions(done.stderr)
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in done.stderr


def test_builds_of_one_release_are_the_same_version():
    torch_lazyplug._check_torch_version("2.13.0+cu130", "2.13.0")
    torch_lazyplug._check_torch_version("2.13.0", "2.13.0+cpu")
    with pytest.raises(ImportError):
        torch_lazyplug._check_torch_version("2.13.1+cpu", "2.13.0")


TOOLS = """
import sys, torch, torch_lazyplug
from torch_lazyplug import debug
tools = [f"torch_lazyplug.{name}" for name in ("bisection", "explain", "guards", "report", "timeline")]
assert not [name for name in tools if name in sys.modules]
assert set(debug.__all__) <= set(dir(debug))
assert all(callable(getattr(debug, name)) for name in debug.__all__)
assert all(name in sys.modules for name in tools)
assert not hasattr(debug, "no_such_tool")
"""


def test_tools_are_imported_when_they_are_used():
    assert_runs(TOOLS)
