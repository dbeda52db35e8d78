#!/usr/bin/env python3
"""Checks that C++ includes point down the layers only.

    torch_lazyplug -> backend -> lowering, device -> common
                                 lowering -> kernels -> common

`lowering` and `device` include neither each other nor anything above. Only `lowering` includes torch/csrc/jit. The
tests of a layer (test/cpp/<layer>) may include what the layer may, and each other.
"""

import re
import sys
from pathlib import Path
from typing import NamedTuple

# What each layer may include besides itself.
BELOW = {
    "common": set(),
    "device": {"common"},
    "kernels": {"common"},
    "lowering": {"common", "kernels"},
    "backend": {"common", "device", "lowering"},
    "torch_lazyplug": {"backend", "common", "device", "lowering"},
}
JIT = "torch/csrc/jit/"
JIT_LAYER = "lowering"
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


class Include(NamedTuple):
    line: int
    quoted: bool
    path: str


def find_includes(text):
    for number, line in enumerate(text.splitlines(), start=1):
        match = INCLUDE.match(line)
        if match:
            yield Include(number, match[1] == '"', match[2])


def layer_of(path):
    """The layer of a path relative to the root; tests belong to the layer they test. None outside of the layers."""
    parts = path.parts[2:] if path.parts[:2] == ("test", "cpp") else path.parts
    return parts[0] if len(parts) > 1 and parts[0] in BELOW else None


def is_test(path):
    return path.parts[0] == "test"


def problem_with(path, include):
    """Why the file at `path` may not have this include, or None."""
    layer, target = layer_of(path), include.path.split("/")[0]
    if include.path.startswith(JIT):
        return None if layer == JIT_LAYER else f"only {JIT_LAYER}/ may include {JIT}"
    if target in BELOW:
        allowed = target == layer or target in BELOW[layer]
        return None if allowed else f"{layer}/ may not include {target}/"
    # Helpers of a test lie beside it, or are named from the root.
    is_helper = is_test(path) and (target == "test" or "/" not in include.path)
    if include.quoted and not is_helper:
        return "includes of the project start with a folder of the root; other headers go in <>"
    return None


def sources(root):
    folders = [root / layer for layer in BELOW] + [root / "test" / "cpp" / layer for layer in BELOW]
    return sorted(path for folder in folders for suffix in ("*.h", "*.cpp") for path in folder.rglob(suffix))


def check(root):
    """One line per forbidden include below `root`."""
    problems = []
    for source in sources(root):
        path = source.relative_to(root)
        for include in find_includes(source.read_text()):
            reason = problem_with(path, include)
            if reason:
                problems.append(f"{path}:{include.line}: {include.path}: {reason}")
    return problems


def main():
    problems = check(Path(__file__).resolve().parent.parent)
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
