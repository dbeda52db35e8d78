"""A program as a script that stands alone: it runs on a device, and prints what can be compared."""

from pathlib import Path

import torch

from . import prelude
from .program import Index, Ref

PRELUDE = Path(prelude.__file__).read_text()
_HEAD = '''"""{title}"""

import sys

{prelude}

device = sys.argv[1] if len(sys.argv) > 1 else "lazy"
if device.startswith("lazy"):
    import torch_lazyplug

    for flag, value in {flags}.items():
        torch_lazyplug.config.set(flag, value)


def show(name):
    t = globals()[name]
    print(name, t.dtype, tuple(t.shape), t.stride(), t.storage_offset(), t.detach().cpu().tolist())
    if t.is_leaf and t.grad is not None:
        print(f"{{name}}.grad", t.grad.stride(), t.grad.cpu().tolist())


'''


def rendered(argument):
    """An argument as Python source."""
    if isinstance(argument, Ref):
        return argument.name
    if isinstance(argument, Index):
        return ", ".join(map(_rendered_index, argument)) + ("," if len(argument) == 1 else "") or "()"
    if isinstance(argument, (list, tuple)):
        return _rendered_sequence(argument)
    if isinstance(argument, float) and argument - argument != 0:
        return f'float("{argument}")'
    return "..." if argument is ... else repr(argument)


def _rendered_sequence(items):
    text = ", ".join(map(rendered, items))
    if isinstance(items, list):
        return f"[{text}]"
    return f"({text},)" if len(items) == 1 else f"({text})"


def _rendered_index(item):
    if not isinstance(item, slice):
        return rendered(item)
    parts = ["" if part is None else str(part) for part in (item.start, item.stop, item.step)]
    return ":".join(parts if item.step is not None else parts[:2])


def line(statement):
    code = statement.code.format(*map(rendered, statement.args))
    if len(statement.results) > 1:
        return f"{', '.join(statement.results)}, *_ = {code}"
    return f"{statement.results[0]} = {code}" if statement.results else code


def _is_read(statement):
    return not statement.results and not statement.writes and statement.kind == "call"


def lines(statements, indent=""):
    for statement in statements:
        if statement.kind == "call":
            text = line(statement)
            yield indent + (f"print({text})" if _prints(statement) else text)
        else:
            yield f"{indent}{_block_head(statement)}:"
            yield from lines(statement.body, indent + "    ") if statement.body else [f"{indent}    pass"]


def _prints(statement):
    return _is_read(statement) and not statement.code.startswith(("del ", "mark_step(", "run_at_once("))


def _block_head(statement):
    if statement.kind == "if":
        return f"if {line(statement)}"
    return f"for _ in range({statement.args[0]})" if statement.kind == "for" else "with torch.no_grad()"


def _names(statements):
    names = []
    for statement in statements:
        names += [*statement.results, *_names(statement.body)]
    return names


def text(program):
    """The lines alone, and the mode."""
    return "\n".join([f"# {program.mode}", *lines(program.statements)])


def _guarded(statements, raising):
    for statement in statements:
        if statement in raising:
            yield "try:"
            yield from lines([statement], "    ")
            yield "except Exception as error:"
            yield "    print(type(error).__name__, error)"
        else:
            yield from lines([statement])


def script(program, mismatch=None, raising=()):
    """A whole script; statements in `raising` are expected to raise."""
    body = "\n".join(_guarded(program.statements, raising))
    shows = "\n".join(
        f'if "{name}" in globals():\n    show("{name}")' for name in dict.fromkeys(_names(program.statements))
    )
    head = _HEAD.format(title=title(program, mismatch), prelude=PRELUDE, flags=vars(program.mode))
    return f"{head}{body}\n{shows}\n"


def title(program, mismatch):
    return f"Seed {program.seed}." + (f" {_oneline(mismatch)}" if mismatch else "")


def _oneline(mismatch):
    return " ".join(str(mismatch).split()).replace('"""', "'''").replace("\\", "/")[:600]


assert repr(torch.float32) == "torch.float32"  # so dtypes are rendered by repr
