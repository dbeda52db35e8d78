"""A training program as a script that stands alone, and tells where the runs on the CPU, uncut and cut differ."""

from pathlib import Path

from .. import emit
from . import prelude

_HEAD = '''"""{title}

On the CPU, on the device uncut, and on the device as it failed: how large the notes are, and how far apart.
"""

import sys

{prelude}

{program}

def notes(device, flags):
    torch.set_default_dtype(torch.{dtype})
    if device.startswith("lazy"):
        import torch_lazyplug

        for flag, value in flags.items():
            torch_lazyplug.config.set(flag, value)
    notes = []
    program(device, lambda *note: notes.append(note[:1] + (kept(note[1]),)))
    return notes


def kept(value):
    return value.detach().cpu().double() if isinstance(value, torch.Tensor) else value


def distance(first, second):
    if isinstance(first, torch.Tensor):
        return (first - second).abs().max().item()
    return "same" if first == second else "other"


device = sys.argv[1] if len(sys.argv) > 1 else "lazy"
runs = notes("cpu", {{}}), notes(device, {uncut}), notes(device, {flags})
for (name, expected), (_, uncut), (_, actual) in zip(*runs, strict=True):
    size = expected.abs().max().item() if isinstance(expected, torch.Tensor) else expected
    print(f"{{name}}: {{size}}, uncut {{distance(expected, uncut)}}, as it failed {{distance(expected, actual)}},"
          f" {{'as' if distance(uncut, actual) in ('same', 0.0) else 'OTHER THAN'}} uncut")
'''


def text(program):
    return f"# {program.dtype}, {program.mode}\n{program.text}"


def script(program, mismatch=None):
    own = Path(prelude.__file__).read_text()
    imports = "from concurrent.futures import ThreadPoolExecutor\n\n"
    lines = [line for line in own.splitlines() if not line.startswith("from ..")]
    texts = "\n".join([emit.PRELUDE, *lines]).removeprefix(imports)
    flags, uncut = vars(program.mode), vars(program.mode.uncut())
    return _HEAD.format(
        title=emit.title(program, mismatch),
        prelude=texts,
        program=program.text,
        dtype=program.dtype,
        uncut=uncut,
        flags=flags,
    )
