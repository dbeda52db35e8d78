"""`python -m torch_lazyplug.doctor`: on this installation, and on simulated broken ones."""

import copy
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from torch_lazyplug import doctor

pytestmark = pytest.mark.lazy_only

PACKAGE = Path(doctor.__file__).parent


def run_doctor(root=PACKAGE.parent, **environment):
    env = {**os.environ, "PYTHONPATH": str(root), **environment}
    env.pop("LAZYPLUG_VERIFY_IR", None)
    command = [sys.executable, "-m", "torch_lazyplug.doctor"]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, cwd="/")


HEALTHY = doctor.Facts(
    python=(3, 11),
    built_for="2.13.0",
    torch="2.13.0+cpu",
    missing_files=[],
    probe={
        "capability": "AVX2",
        "threads": 4,
        "devices": 1,
        "settings": {"fallback": "warn", "force_fallback": "", "verify_ir": "False"},
        "variables": ["LAZYPLUG_FALLBACK", "LAZYPLUG_DEVICE_COUNT"],
        "losses": {"cpu": [1.5, 1.25], "lazy": [1.5, 1.25]},
        "fallbacks": [],
        "compiles": 2,
    },
    probe_error="",
    processors=4,
    entry_points=["torch_lazyplug"],
    environment={},
)


def changed(**changes):
    facts = copy.deepcopy(HEALTHY)
    for name, value in changes.items():
        if name in HEALTHY.probe or name == "settings":
            facts.probe[name] = {**facts.probe[name], **value} if isinstance(value, dict) else value
        else:
            setattr(facts, name, value)
    return facts


def test_a_healthy_installation():
    findings = doctor.diagnose(HEALTHY)
    assert {finding.level for finding in findings} == {doctor.OK}
    assert not any(finding.advice for finding in findings)


# name: (what is changed, level, what the finding says, what it advises)
AILMENTS = {
    "old python": ({"python": (3, 10)}, doctor.ERROR, "Python 3.10 is too old", "3.11 or newer"),
    "no torch": ({"torch": None}, doctor.ERROR, "PyTorch is not installed", "pip install torch==2.13.0"),
    "other torch": ({"torch": "2.12.1"}, doctor.ERROR, "but 2.12.1 is installed", "torch==2.13.0"),
    "not built": ({"built_for": None}, doctor.ERROR, "has not been built", "CONTRIBUTING.md"),
    "no extension": ({"missing_files": ["_C.so"]}, doctor.ERROR, "_C.so is missing", "again"),
    "no entry point": ({"entry_points": []}, doctor.WARNING, "will not load", "import torch_lazyplug"),
    "another backend": (
        {"entry_points": ["torch_lazyplug", "torch_npu"]},
        doctor.WARNING,
        "torch_npu",
        "one such device in a process",
    ),
    "no autoload": (
        {"environment": {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}},
        doctor.WARNING,
        "TORCH_DEVICE_BACKEND_AUTOLOAD=0",
        "unset",
    ),
    "plain processor": ({"capability": "DEFAULT"}, doctor.WARNING, "vector extension", "ATEN_CPU_CAPABILITY"),
    "too many threads": ({"threads": 9}, doctor.WARNING, "9 threads on 4", "OMP_NUM_THREADS=4"),
    "one thread": ({"threads": 1}, doctor.WARNING, "1 thread, though", "OMP_NUM_THREADS"),
    "misspelt variable": (
        {"environment": {"LAZYPLUG_FALBACK": "error"}},
        doctor.WARNING,
        "LAZYPLUG_FALBACK is set, but",
        "did you mean LAZYPLUG_FALLBACK?",
    ),
    "slow setting": ({"settings": {"verify_ir": "True"}}, doctor.WARNING, "verify_ir is True", "unset"),
    "forced fallback": ({"settings": {"force_fallback": "all"}}, doctor.WARNING, "forced to run", "FORCE_FALLBACK"),
    "wrong numbers": ({"losses": {"lazy": [1.5, 1.3]}}, doctor.ERROR, "1.3 not 1.25 in step 1", "LAUNCH_BLOCKING"),
    "not a number": ({"losses": {"lazy": [float("nan"), 1.25]}}, doctor.ERROR, "nan not 1.5 in step 0", "report"),
    "fallbacks": ({"fallbacks": ["aten::gelu"]}, doctor.WARNING, "aten::gelu", "LOG_LEVEL=debug"),
    "abi": (
        {"probe": None, "probe_error": "ImportError: undefined symbol: _ZN3c10"},
        doctor.ERROR,
        "undefined symbol",
        "build the plugin again",
    ),
    "crash": ({"probe": None, "probe_error": "killed by signal 11"}, doctor.ERROR, "signal 11", "report it"),
}


@pytest.mark.parametrize("name", AILMENTS)
def test_findings_come_with_advice(name):
    changes, level, text, advice = AILMENTS[name]
    findings = [finding for finding in doctor.diagnose(changed(**changes)) if finding.level != doctor.OK]
    assert [finding.level for finding in findings] == [level]
    assert text in findings[0].text
    assert advice in findings[0].advice
    assert "-> " in str(findings[0])


def test_what_fails_because_of_something_else_says_so():
    facts = changed(torch="2.12.0", probe=None, probe_error="ImportError: built against 2.13.0")
    assert [f.advice for f in doctor.diagnose(facts) if f.level == doctor.ERROR][-1] == "mend the above first"


def test_exit_code_of_this_installation():
    done = run_doctor()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a tiny training gives the CPU's losses" in done.stdout
    assert "0 error(s)" in done.stdout


def test_settings_that_slow_down_are_named():
    done = run_doctor(LAZYPLUG_LAUNCH_BLOCKING="1", LAZYPLUG_FORCE_FALLBACK="aten::gelu")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "launch_blocking is True" in done.stdout
    assert "forced to run on the CPU: aten::gelu" in done.stdout


@pytest.fixture
def broken_copy(tmp_path):
    """A copy of the Python part of the package, without the libraries."""
    ignore = shutil.ignore_patterns("*.so", "csrc", "__pycache__")
    shutil.copytree(PACKAGE, tmp_path / "torch_lazyplug", ignore=ignore)
    return tmp_path


def test_missing_libraries(broken_copy):
    done = run_doctor(broken_copy)
    assert done.returncode == 1
    assert "libtorch_lazyplug.so is missing" in done.stdout, done.stdout + done.stderr


def test_a_build_for_another_torch(broken_copy):
    (broken_copy / "torch_lazyplug" / "_build_info.py").write_text('TORCH_VERSION = "2.99.0"\n')
    done = run_doctor(broken_copy)
    assert done.returncode == 1
    assert "built for PyTorch 2.99.0, but 2.13.0" in done.stdout, done.stdout + done.stderr


def test_an_invalid_setting_is_reported():
    done = run_doctor(LAZYPLUG_DEVICE_COUNT="many")
    assert done.returncode == 1
    assert "LAZYPLUG_DEVICE_COUNT" in done.stdout, done.stdout + done.stderr
