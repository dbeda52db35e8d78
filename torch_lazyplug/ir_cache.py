"""The compiled graphs that are kept for when they come up again."""

import os

from torch_lazyplug import _C

__all__ = ["dump", "reset"]


def dump(dot_file_name: str | os.PathLike[str]) -> None:
    """Writes all cached graphs to a file for Graphviz, the one used last first."""
    _C._lazy._dump_ir_cache(os.fspath(dot_file_name))


def reset() -> None:
    """Forgets all cached graphs, what is known of the shapes that ops return, and of programs that never repeat."""
    _C._lazy._clear_ir_cache()
