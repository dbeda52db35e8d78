"""Contexts that raise where a program does what it should not do: for tests, and for finding the place."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torch_lazyplug import _C, config, metrics
from torch_lazyplug.sync import wait_device_ops

__all__ = ["RecompileError", "no_fallback", "no_nan", "no_recompile", "no_sync"]


class RecompileError(RuntimeError):
    """A graph was compiled where none should be."""


@contextlib.contextmanager
def no_sync() -> Iterator[None]:
    """Within it, reading a value, copying to the CPU or running an op there raises ``RuntimeError`` with the line.

    It raises before anything has been done. Waiting without reading, as ``torch.lazy.synchronize()`` does, is allowed.
    Holds for all threads.
    """
    with config.changed({"sync_debug": "error"}):
        yield


@contextlib.contextmanager
def no_fallback() -> Iterator[None]:
    """Within it, ops that cannot be recorded raise ``NotImplementedError`` with the line instead of running on the CPU.

    Ops that ``config.set_force_fallback`` selects still run there. Holds for all threads.
    """
    with config.changed({"fallback": "error"}):
        yield


@contextlib.contextmanager
def no_recompile() -> Iterator[None]:
    """Raises ``RecompileError`` at its end if what was recorded within it needed a graph that was not compiled yet.

    The error says what differs from the nearest graph, with the user's lines. Graphs are compiled behind the program,
    so the context waits for pending work when it begins and when it ends. Switches the setting ``debug`` on meanwhile,
    and ``compile`` to ``always``: what would be run uncompiled, because it is rare, counts. Holds for all threads.
    """
    wait_device_ops()
    with config.changed({"debug": True, "compile": "always"}):
        before = metrics.counter_value("Compile") or 0
        yield
        wait_device_ops()
        count = (metrics.counter_value("Compile") or 0) - before
        if count:
            explanation = _C._lazy._explain_recompile()
            raise RecompileError(f"compiled {count} new graph(s) where none was expected; the last one:\n{explanation}")


def _watched(value: Any) -> list[torch.Tensor]:
    tensors = (leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor))
    return [t for t in tensors if t.is_floating_point() or t.is_complex()]


def _range_of(tensor: torch.Tensor) -> str:
    values = tensor.detach().cpu()
    finite = values[values.isfinite()] if not values.is_complex() else values[:0]
    extent = f" from {finite.min().item():.6g} to {finite.max().item():.6g}" if finite.numel() else ""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}{extent}"


class _NanWatch(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(isinstance(leaf, float) and leaf != leaf for leaf in tree_leaves((args, kwargs))):
            return func(*args, **(kwargs or {}))  # as the program wants it
        inputs = _watched((args, kwargs))
        had_any = [t.isnan().any() for t in inputs]  # before they are written
        before = [t.clone() for t in inputs] if func._schema.is_mutable else inputs
        result = func(*args, **(kwargs or {}))
        if func.namespace == "aten" and func._schema.name.startswith("aten::empty"):
            return result  # holds anything
        has_any = any(t.isnan().any().item() for t in _watched(result))
        if has_any and not any(had.item() for had in had_any):
            operands = ", ".join(map(_range_of, before)) or "no tensor"
            raise FloatingPointError(
                f"{func} at {_C._lazy._current_location()} makes NaN of operands that have none: {operands}"
            )
        return result


@contextlib.contextmanager
def no_nan() -> Iterator[None]:
    """Within it, the first op that makes NaN of operands without NaN raises ``FloatingPointError``.

    The error names the op, the user's line, and the operands' dtypes, shapes and finite ranges; in a backward pass the
    line is that of ``backward()`` (anomaly mode names the forward's). Every result is read, so this is slow. Holds for
    this thread.
    """
    with _NanWatch():
        yield
