#!/usr/bin/env python3
"""Checks that every C++ source has a GoogleTest named after it, or a reason why it has none.

backend/native/lstm.cpp is tested by test/cpp/backend/native/test_lstm.cpp.
"""

import sys
from pathlib import Path

FOLDERS = ("common", "device", "kernels", "lowering", "backend", "torch_lazyplug/csrc")

# Sources without a GoogleTest, and why.
BINDINGS = "bindings without logic, used by all of test/python"
ROWS = "rows only: test_op_table.cpp reads all of them"

EXCEPTIONS = {
    "kernels/tile_loops.inc.cpp": "one part for each target: test_tile_program.cpp runs that of the processor",
    "backend/registration/elementwise_rows.cpp": ROWS,
    "backend/registration/network_rows.cpp": ROWS,
    "backend/registration/other_rows.cpp": ROWS,
    "backend/registration/registration.cpp": "tables only: the tests of the kernels go through them",
    "torch_lazyplug/csrc/backward_bindings.cpp": "needs Python: test_backward_pass.py, test_backward_thread.py",
    "torch_lazyplug/csrc/config_bindings.cpp": BINDINGS,
    "torch_lazyplug/csrc/device_bindings.cpp": BINDINGS,
    "torch_lazyplug/csrc/graph_bindings.cpp": BINDINGS,
    "torch_lazyplug/csrc/init.cpp": BINDINGS,
    "torch_lazyplug/csrc/lazy_bindings.cpp": BINDINGS,
    "torch_lazyplug/csrc/metrics_bindings.cpp": BINDINGS,
    "torch_lazyplug/csrc/op_bindings.cpp": BINDINGS,
    "torch_lazyplug/csrc/optimizer_bindings.cpp": "needs Python: test/python/test_optimizer_steps.py",
    "torch_lazyplug/csrc/python_hooks.cpp": "needs Python: test/python/test_python_hooks.py",
}


def test_of(source):
    """Where the test of a source belongs, both relative to the root."""
    folder = next(folder for folder in FOLDERS if source.is_relative_to(folder))
    return Path("test", "cpp", Path(folder).name, source.relative_to(folder).with_name(f"test_{source.stem}.cpp"))


def problem_with(root, source):
    has_test = (root / test_of(source)).exists()
    if has_test and source.as_posix() in EXCEPTIONS:
        return f"has a test, and is an exception in {Path(__file__).name}"
    if not has_test and source.as_posix() not in EXCEPTIONS:
        return f"{test_of(source)} is missing"
    return None


def sources(root):
    return sorted(path.relative_to(root) for folder in FOLDERS for path in (root / folder).rglob("*.cpp"))


def check(root):
    """One line per source below `root` without its test."""
    problems = []
    for source in sources(root):
        reason = problem_with(root, source)
        if reason:
            problems.append(f"{source}: {reason}")
    return problems


def main():
    problems = check(Path(__file__).resolve().parent.parent)
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
