"""Ops that are defined, or given kernels, again while a program runs, as in a notebook's cell that is run twice.

PyTorch's dispatcher tells nobody that an op has another kernel, and that an op goes only when it is too late to run
what has been recorded. Python's kernels come and go through a few functions of ``torch.library``, which tell it here.
"""

import atexit
import contextlib
import functools
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch._library.custom_ops import CustomOpDef

from torch_lazyplug import _C
from torch_lazyplug._wrapping import Function, wrap_attribute

# Libraries go when the interpreter exits, too. What is pending then has nobody to look at it.
_exiting = False


@atexit.register
def _exit() -> None:
    global _exiting
    _exiting = True


@contextlib.contextmanager
def _changing(ops: Iterable[str], shapes_only: bool = False) -> Iterator[None]:
    names = [] if _exiting else list(ops)
    if not shapes_only:
        _C._ops.finish_calls_of(names)
    try:
        yield
    finally:
        _C._ops.note_new_kernels(names)


def _ops_of(defs: Iterable[str], impls: Iterable[str]) -> set[str]:
    """The names of ops from the notes of a library: "mylib::scale", and "mylib/scale/CPU" for each kernel."""
    return {*defs, *("::".join(impl.split("/")[:2]) for impl in impls)}


def _impl(library: Any, op_name: Any, fn: Any, dispatch_key: str = "", **_: Any) -> Any:
    name = library._resolve_op_name(op_name, "impl").split("::")[-1]
    return _changing([f"{library.ns}::{name}"], shapes_only=(dispatch_key or library.dispatch_key) == "Meta")


def _destroy(library: Any) -> Any:
    return _changing(_ops_of(library._op_defs, library._op_impls))


def _del_library(_all_impls: Any, impls: set[str], _all_defs: Any, defs: set[str], *_: Any) -> Any:
    return _changing(_ops_of(defs, impls))


# The kernels that a CustomOpDef gives to the dispatcher look up in it what to call.
def _register_fake(op: Any, fn: Any) -> Any:
    return _changing([op._qualname], shapes_only=True)


def _register_kernel(op: Any, *_: Any) -> Any:
    return _changing([op._qualname])


# Functions, and for each one that says what a call of it changes.
_FUNCTIONS: tuple[tuple[Any, str, Function], ...] = (
    (torch.library.Library, "impl", _impl),
    (torch.library.Library, "_destroy", _destroy),
    (torch.library, "_del_library", _del_library),
    (CustomOpDef, "register_fake", _register_fake),
    (CustomOpDef, "register_kernel", _register_kernel),
)


def install() -> None:
    """Has ``torch.library`` tell the device of changes; does nothing if that has been done."""
    for owner, name, change in _FUNCTIONS:
        wrap_attribute(owner, name, functools.partial(_told, change))


def _told(change: Function, function: Function) -> Function:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with change(*args, **kwargs):
            return function(*args, **kwargs)

    return wrapper
