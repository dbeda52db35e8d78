"""Looking at what has been recorded, and at what has happened."""

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from torch_lazyplug import _C
from torch_lazyplug.journal import clear_events, events

if TYPE_CHECKING:
    from torch_lazyplug.bisection import bisect
    from torch_lazyplug.explain import Advice, advice, explain_sync
    from torch_lazyplug.guards import RecompileError, no_fallback, no_nan, no_recompile, no_sync
    from torch_lazyplug.report import report
    from torch_lazyplug.saved_graph import load_graph, save_graph
    from torch_lazyplug.timeline import save_trace

__all__ = [
    "Advice",
    "RecompileError",
    "advice",
    "bisect",
    "clear_events",
    "dump_ir",
    "events",
    "explain_recompile",
    "explain_sync",
    "get_tensors_backend",
    "get_tensors_dot",
    "get_tensors_text",
    "load_graph",
    "no_fallback",
    "no_nan",
    "no_recompile",
    "no_sync",
    "render_ir_graph",
    "report",
    "save_graph",
    "save_trace",
]

# Where the others are: imported when they are first used, since every process that imports torch imports this.
_TOOLS = {
    "Advice": "explain",
    "RecompileError": "guards",
    "advice": "explain",
    "bisect": "bisection",
    "explain_sync": "explain",
    "load_graph": "saved_graph",
    "no_fallback": "guards",
    "no_nan": "guards",
    "no_recompile": "guards",
    "no_sync": "guards",
    "report": "report",
    "save_graph": "saved_graph",
    "save_trace": "timeline",
}


def __getattr__(name: str) -> Any:
    if name not in _TOOLS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    tool = getattr(importlib.import_module(f"torch_lazyplug.{_TOOLS[name]}"), name)
    globals()[name] = tool
    return tool


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def get_tensors_text(tensors: Sequence[torch.Tensor]) -> str:
    """The recorded graph that computes the tensors, one node a line. Runs nothing.

    With the setting ``debug``, each node is followed by the user's line that recorded it.
    """
    return _C._lazy._get_tensors_text(list(tensors))


def get_tensors_dot(tensors: Sequence[torch.Tensor]) -> str:
    """The same for Graphviz."""
    return _C._lazy._get_tensors_dot(list(tensors))


def get_tensors_backend(tensors: Sequence[torch.Tensor]) -> str:
    """The TorchScript graph that the recorded graph is lowered to. Runs nothing."""
    return _C._lazy._get_tensors_backend(list(tensors))


def render_ir_graph(tensors: Sequence[torch.Tensor]) -> str:
    """The recorded graph that computes the tensors, for Graphviz: the command ``dot`` makes a picture of it."""
    return get_tensors_dot(tensors)


_DUMPERS = {"text": get_tensors_text, "dot": get_tensors_dot, "backend": get_tensors_backend}


def dump_ir(tensors: Sequence[torch.Tensor], ir_format: str) -> str:
    """The recorded graph that computes the tensors, as ``"text"``, ``"dot"`` or ``"backend"``. Runs nothing."""
    if ir_format not in _DUMPERS:
        known = ", ".join(map(repr, _DUMPERS))
        raise UnknownFormatError(f"Unrecognized IR format: {ir_format!r}; known are {known}")
    return _DUMPERS[ir_format](tensors)


class UnknownFormatError(ValueError, RuntimeError):
    """A format that ``dump_ir`` does not know; ``torch._lazy`` raises ``RuntimeError`` for it."""


def explain_recompile() -> str:
    """Why the last graph had to be compiled.

    Names the cached graph that it has most in common with, the first shape, constant, op, operand, end or result in
    which the two differ, both values, and what helps; with the setting ``debug`` also the user's lines: those that the
    graphs come from, that recorded what differs, and that made a tensor whose shape is another.
    """
    return _C._lazy._explain_recompile()
