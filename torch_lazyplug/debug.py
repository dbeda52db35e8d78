"""Looking at what has been recorded."""

from collections.abc import Sequence

import torch

from torch_lazyplug import _C

__all__ = ["dump_ir", "get_tensors_text"]

_DUMPERS = {"text": "_get_tensors_text"}


def get_tensors_text(tensors: Sequence[torch.Tensor]) -> str:
    """The recorded graph that computes the tensors, one node a line. Runs nothing."""
    return dump_ir(tensors, "text")


def dump_ir(tensors: Sequence[torch.Tensor], ir_format: str) -> str:
    """The recorded graph that computes the tensors, in the given format; so far there is ``"text"``. Runs nothing."""
    if ir_format not in _DUMPERS:
        raise ValueError(f"unknown IR format {ir_format!r}; known are {', '.join(map(repr, _DUMPERS))}")
    return getattr(_C._lazy, _DUMPERS[ir_format])(list(tensors))
