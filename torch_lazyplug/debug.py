"""Looking at what has been recorded, and at what has happened."""

from collections.abc import Sequence
from typing import Any

import torch

from torch_lazyplug import _C
from torch_lazyplug.report import report

__all__ = [
    "clear_events",
    "dump_ir",
    "events",
    "explain_recompile",
    "get_tensors_backend",
    "get_tensors_dot",
    "get_tensors_text",
    "render_ir_graph",
    "report",
]


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

    Names the cached graph that it has most in common with, and the first node, shape or constant in which the two
    differ; with the setting ``debug`` also the user's lines that recorded these.
    """
    return _C._lazy._explain_recompile()


def events(kind: str | None = None) -> list[dict[str, Any]]:
    """What has happened while the setting ``debug`` was on, in order of its start.

    Each ``"sync"``, ``"fallback"``, ``"compile"`` and ``"run"`` of a graph, with its ``kind``, ``cause``, ``detail``,
    ``location`` (the user's line), ``start_ns``, ``duration_ns`` and, for a sync, the ``bytes`` of its results.
    """
    found = [event for event in _C._lazy._journal() if kind in (None, event["kind"])]
    return sorted(found, key=lambda event: event["start_ns"])


def clear_events() -> None:
    """Forgets the events."""
    _C._lazy._clear_journal()
