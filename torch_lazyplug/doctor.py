"""``python -m torch_lazyplug.doctor``: examines an installation, and says for each finding what to do about it.

The exit code is 1 if something does not work, otherwise 0. What could crash is tried in a process of its own, so that
a broken installation can be examined too; for the same reason this module imports neither torch nor the package.
"""

import dataclasses
import difflib
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["Facts", "Finding", "collect", "diagnose", "main"]

PACKAGE = Path(__file__).parent
DISTRIBUTION = "torch_lazyplug"
ENTRY_POINT_GROUP = "torch.backends"
OLDEST_PYTHON = (3, 11)
TIMEOUT_SECONDS = 300

OK, WARNING, ERROR = "ok", "WARNING", "ERROR"

# What they cost or change, where a forgotten setting would puzzle.
_NOTABLE_SETTINGS = {
    "launch_blocking": ("True", "every op runs alone, which is slow"),
    "verify_ir": ("True", "every graph is checked before it is compiled, which is slow"),
    "verify_torchscript": ("True", "every graph runs twice, which is slow"),
    "debug": ("True", "the Python line of every op is kept, which is slow"),
    "fallback": ("error", "ops that cannot be recorded raise instead of running on the CPU"),
    "sync_debug": ("error", "reading a value raises"),
}


@dataclasses.dataclass(frozen=True)
class Finding:
    """One result: its ``level`` is "ok", "WARNING" or "ERROR"; the last two come with advice."""

    level: str
    text: str
    advice: str = ""

    def __str__(self) -> str:
        advice = f"\n{'':8} -> {self.advice}" if self.advice else ""
        return f"{self.level:8} {self.text}{advice}"


@dataclasses.dataclass
class Facts:
    """What an examination has found. ``probe`` is what ``_PROBE`` reported, None if it did not get that far."""

    python: tuple[int, int]
    built_for: str | None
    torch: str | None
    missing_files: list[str]
    probe: dict[str, Any] | None
    probe_error: str
    processors: int
    entry_points: list[str]
    environment: dict[str, str]


# Runs in a process of its own, without autoloading: PyTorch would wrap our error into one of its own.
_PROBE = """
import copy, json
import torch, torch_lazyplug
from torch_lazyplug import config, metrics

def train(device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
    inputs, labels = torch.randn(32, 8), torch.randint(4, (32,))
    model, inputs, labels = model.to(device), inputs.to(device), labels.to(device)
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=0.01), []
    for _ in range(5):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses

settings = config.describe()
report = {
    "capability": torch.backends.cpu.get_cpu_capability(),
    "threads": torch.get_num_threads(),
    "devices": torch.lazy.device_count(),
    "settings": {name: str(flag["value"]) for name, flag in settings.items()},
    "variables": [variable for flag in settings.values() for variable in flag["env"]],
    "losses": {"cpu": train("cpu"), "lazy": train("lazy")},
    "fallbacks": metrics.executed_fallback_ops(),
    "compiles": metrics.counter_value("Compile") or 0,
}
print(json.dumps(report))
"""


def main() -> int:
    """Prints every finding; returns the exit code."""
    findings = diagnose(collect())
    for finding in findings:
        print(finding)
    errors, warnings = (sum(f.level == level for f in findings) for level in (ERROR, WARNING))
    print(f"\n{errors} error(s), {warnings} warning(s)")
    return 1 if errors else 0


# Looking -------------------------------------------------------------------------------------------------------------


def collect() -> Facts:
    """Examines the installation that this interpreter sees."""
    probe, error = _run_probe()
    return Facts(
        python=sys.version_info[:2],
        built_for=_built_for(),
        torch=_installed_version("torch"),
        missing_files=[name for name in _library_names() if not (PACKAGE / name).exists()],
        probe=probe,
        probe_error=error,
        processors=len(os.sched_getaffinity(0)),
        entry_points=[point.name for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)],
        environment=dict(os.environ),
    )


def _library_names() -> tuple[str, ...]:
    return f"_C{sysconfig.get_config_var('EXT_SUFFIX')}", "libtorch_lazyplug.so"


def _installed_version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _built_for() -> str | None:
    # Not by import: the package may be unfit for that.
    path = PACKAGE / "_build_info.py"
    spec = importlib.util.spec_from_file_location("_lazyplug_build_info", path)
    if spec is None or spec.loader is None or not path.exists():
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.TORCH_VERSION


def _run_probe() -> tuple[dict[str, Any] | None, str]:
    env = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    env["PYTHONPATH"] = os.pathsep.join([str(PACKAGE.parent), *filter(None, [env.get("PYTHONPATH")])])
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE], env=env, capture_output=True, text=True, timeout=TIMEOUT_SECONDS
        )
    except subprocess.TimeoutExpired:
        return None, f"no answer after {TIMEOUT_SECONDS} s"
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1]), ""
    if done.returncode < 0:
        return None, f"killed by signal {-done.returncode}"
    return None, done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}"


# Judging -------------------------------------------------------------------------------------------------------------


def diagnose(facts: Facts) -> list[Finding]:
    """What the facts mean. Where something is missing, what depends on it is left out."""
    findings = [*_judge_python(facts), *_judge_torch(facts), *_judge_files(facts), *_judge_autoload(facts)]
    if facts.probe is None:
        return [*findings, *_judge_failure(facts, findings)]
    return [
        *findings,
        *_judge_processor(facts, facts.probe),
        *_judge_environment(facts, facts.probe),
        *_judge_training(facts.probe),
    ]


def _judge_python(facts: Facts) -> Iterator[Finding]:
    version = ".".join(map(str, facts.python))
    if facts.python < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        yield Finding(ERROR, f"Python {version} is too old", f"use Python {oldest} or newer")
    else:
        yield Finding(OK, f"Python {version}")


def _judge_torch(facts: Facts) -> Iterator[Finding]:
    if facts.torch is None:
        advice = f"pip install torch=={facts.built_for}" if facts.built_for else "install it, then build the plugin"
        yield Finding(ERROR, "PyTorch is not installed", advice)
    elif facts.built_for is None:
        yield Finding(ERROR, "the plugin has not been built", "build it: see CONTRIBUTING.md")
    elif facts.torch.split("+")[0] != facts.built_for.split("+")[0]:
        yield Finding(
            ERROR,
            f"built for PyTorch {facts.built_for}, but {facts.torch} is installed",
            f"pip install torch=={facts.built_for}, or build the plugin again",
        )
    else:
        yield Finding(OK, f"PyTorch {facts.torch}, which the plugin was built for")


def _judge_files(facts: Facts) -> Iterator[Finding]:
    for name in facts.missing_files:
        advice = "build or install the plugin again, with the interpreter that is to use it"
        yield Finding(ERROR, f"{name} is missing in {PACKAGE}", advice)


def _judge_autoload(facts: Facts) -> Iterator[Finding]:
    others = [name for name in facts.entry_points if name != DISTRIBUTION]
    if others:
        advice = "PyTorch can hold one such device in a process: uninstall the others, or set "
        yield Finding(
            WARNING,
            f"other backends load with torch, too: {', '.join(others)}",
            advice + "TORCH_DEVICE_BACKEND_AUTOLOAD=0 and import the one you want",
        )
    if DISTRIBUTION not in facts.entry_points:
        yield Finding(
            WARNING,
            "`import torch` will not load the plugin: its entry point is not installed",
            "pip install the package, or write `import torch_lazyplug`",
        )
    elif facts.environment.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "0":
        yield Finding(
            WARNING,
            "`import torch` will not load the plugin: TORCH_DEVICE_BACKEND_AUTOLOAD=0 is set",
            "unset it, or write `import torch_lazyplug`",
        )
    else:
        yield Finding(OK, "`import torch` loads the plugin")


def _judge_failure(facts: Facts, known: list[Finding]) -> Iterator[Finding]:
    if any(finding.level == ERROR for finding in known):
        advice = "mend the above first"
    elif "undefined symbol" in facts.probe_error:
        advice = "the PyTorch at run time differs from the one at build time: build the plugin again"
    else:
        advice = "set LAZYPLUG_LAUNCH_BLOCKING=1 and run your program to see which op it is, and report it"
    yield Finding(ERROR, f"importing the plugin and training a step failed: {facts.probe_error}", advice)


def _judge_processor(facts: Facts, probe: dict[str, Any]) -> Iterator[Finding]:
    if probe["capability"] == "DEFAULT":
        advice = "kernels are slow on it; unset ATEN_CPU_CAPABILITY if that is set"
        yield Finding(WARNING, "the processor offers no vector extension that PyTorch uses", advice)
    else:
        yield Finding(OK, f"processor: {probe['capability']}")
    threads = probe["threads"]
    if threads > facts.processors:
        advice = f"set OMP_NUM_THREADS={facts.processors}: more threads than processors wait for each other"
        yield Finding(WARNING, f"{threads} threads on {facts.processors} processor(s)", advice)
    elif threads == 1 < facts.processors:
        advice = "unset OMP_NUM_THREADS, or call torch.set_num_threads, unless that is what you want"
        yield Finding(WARNING, f"1 thread, though there are {facts.processors} processors", advice)
    else:
        yield Finding(OK, f"{threads} thread(s) on {facts.processors} processor(s), {probe['devices']} lazy device(s)")


def _judge_environment(facts: Facts, probe: dict[str, Any]) -> Iterator[Finding]:
    for variable in sorted(facts.environment):
        known = variable.startswith("LAZYPLUG_TEST_") or variable in probe["variables"]
        if variable.startswith("LAZYPLUG_") and not known:
            near = difflib.get_close_matches(variable, probe["variables"], n=1)
            advice = f"did you mean {near[0]}?" if near else "torch_lazyplug.config.describe() lists all settings"
            yield Finding(WARNING, f"{variable} is set, but there is no such setting", advice)
    for name, (value, effect) in _NOTABLE_SETTINGS.items():
        if probe["settings"].get(name) == value:
            yield Finding(WARNING, f"{name} is {value}: {effect}", "unset it unless you are looking for a fault")
    if forced := probe["settings"].get("force_fallback"):
        advice = "unset LAZYPLUG_FORCE_FALLBACK unless you are looking for a fault"
        yield Finding(WARNING, f"these ops are forced to run on the CPU: {forced}", advice)


def _judge_training(probe: dict[str, Any]) -> Iterator[Finding]:
    pairs = list(zip(probe["losses"]["cpu"], probe["losses"]["lazy"], strict=True))
    if not all(abs(lazy - cpu) <= 1e-4 * abs(cpu) for cpu, lazy in pairs):
        step, (cpu, lazy) = next((i, p) for i, p in enumerate(pairs) if not abs(p[1] - p[0]) <= 1e-4 * abs(p[0]))
        advice = "compare with LAZYPLUG_LAUNCH_BLOCKING=1 and LAZYPLUG_FORCE_FALLBACK=all, and report it"
        yield Finding(
            ERROR, f"a tiny training gives other losses than the CPU: {lazy} not {cpu} in step {step}", advice
        )
    else:
        yield Finding(OK, f"a tiny training gives the CPU's losses; {probe['compiles']} graphs compiled")
    if probe["fallbacks"] and not probe["settings"].get("force_fallback"):
        advice = "nothing is wrong with the results; set LAZYPLUG_LOG_LEVEL=debug to see why, and report it"
        yield Finding(WARNING, f"its ops ran on the CPU: {', '.join(probe['fallbacks'])}", advice)


if __name__ == "__main__":
    sys.exit(main())
