#!/usr/bin/env python3
"""Checks that C++ includes point down only: from layer to layer, from room to room, and from file to file.

A layer is a folder of the root:

    torch_lazyplug -> backend -> lowering, device -> common
                                 lowering -> kernels -> common

`lowering` and `device` include neither each other nor anything above. Only `lowering` includes torch/csrc/jit. The
tests of a layer (test/cpp/<layer>) may include what the layer may, and each other.

A room is a folder of a layer, and may include the rooms before it in ROOMS. Within a room no two sources, each a .h and
its .cpp, include each other, directly or not, but for those in CYCLE.
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
# From the bottom up; "" is what lies in the layer's folder itself.
ROOMS = {
    "lowering": ("ir", "passes", "fusion", "calls", "nodes", "", "execution"),
    "backend": (
        "diagnostics",
        "ops",
        "caches",
        "execution",
        "inference",
        "recording",
        "native",
        "registration",
        "api",
    ),
}
# Storages, streams and devices are one thing in three parts.
CYCLE = {f"backend/execution/{name}" for name in ("device_context", "lazy_storage", "stream_context")}
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


def room_of(path):
    """The room of a path below a layer that has rooms: a place in ROOMS[layer]. Raises ValueError for any other."""
    return ROOMS[path.parts[0]].index("/".join(path.parts[1:-1]))


def is_test(path):
    return path.parts[0] == "test"


def problem_with_room(path, target):
    """Why the file at `path` may not include `target`, a file of the same layer, or None."""
    if is_test(path) or path.parts[0] not in ROOMS:
        return None
    try:
        return None if room_of(target) <= room_of(path) else f"{path.parent}/ may not include {target.parent}/"
    except ValueError:
        return f"the rooms of {path.parts[0]}/ stand in {Path(__file__).name}"


def problem_with(path, include):
    """Why the file at `path` may not have this include, or None."""
    layer, target = layer_of(path), include.path.split("/")[0]
    if include.path.startswith(JIT):
        return None if layer == JIT_LAYER else f"only {JIT_LAYER}/ may include {JIT}"
    if target in BELOW:
        if target == layer:
            return problem_with_room(path, Path(include.path))
        return None if target in BELOW[layer] else f"{layer}/ may not include {target}/"
    # Helpers of a test lie beside it, or are named from the root.
    is_helper = is_test(path) and (target == "test" or "/" not in include.path)
    if include.quoted and not is_helper:
        return "includes of the project start with a folder of the root; other headers go in <>"
    return None


def sources(root):
    folders = [root / layer for layer in BELOW] + [root / "test" / "cpp" / layer for layer in BELOW]
    return sorted(path for folder in folders for suffix in ("*.h", "*.cpp") for path in folder.rglob(suffix))


def find_cycle(includes):
    """Sources of `includes` (source -> sources that it includes) of which each includes the next, and the last the
    first; empty if there are none."""
    left = dict(includes)
    while left:
        lowest = [source for source, below in left.items() if not below & left.keys()]
        if not lowest:
            break
        for source in lowest:
            del left[source]
    walk = [min(left)] if left else []
    while walk:
        following = min(left[walk[-1]] & left.keys())
        if following in walk:
            return walk[walk.index(following) :]
        walk.append(following)
    return walk


def check(root):
    """One line per forbidden include below `root`."""
    problems = []
    included = {}
    for source in sources(root):
        path = source.relative_to(root)
        unit = path.with_suffix("").as_posix()
        has_rooms = path.parts[0] in ROOMS
        below = included.setdefault(unit, set()) if has_rooms else set()
        for include in find_includes(source.read_text()):
            reason = problem_with(path, include)
            if reason:
                problems.append(f"{path}:{include.line}: {include.path}: {reason}")
            target = include.path.removesuffix(".h")
            if target != unit and not (unit in CYCLE and target in CYCLE):
                below.add(target)
    cycle = find_cycle(included)
    if cycle:
        problems.append(f"{' -> '.join([*cycle, cycle[0]])}: a cycle of includes")
    return problems


def main():
    problems = check(Path(__file__).resolve().parent.parent)
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
