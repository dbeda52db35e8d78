"""The line of the user's program that is running."""

import os
import traceback
from pathlib import Path

import torch

from torch_lazyplug import _C

__all__ = ["current_line", "line_of_error"]

_LIBRARIES = tuple(f"{folder}{os.sep}" for folder in (Path(torch.__file__).parent, Path(__file__).parents[1]))


def current_line() -> str:
    """The user's line that is running, as ``file:line``, and what backward node runs, if any."""
    line = _C._lazy._current_location() or "an unknown line"
    node = torch._C._current_autograd_node()
    return f"{line} (in {node.name()})" if node is not None else line


def line_of_error(error: BaseException) -> str:
    """``file:line`` of the user's innermost frame that the error came through; empty if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    return next((f"{f.filename}:{f.lineno}" for f in reversed(frames) if not _is_library(f.filename)), "")


def _is_library(file: str) -> bool:
    return file.startswith((*_LIBRARIES, "<frozen ", "<eval_with_key>"))
