"""Wrapping functions of PyTorch's and other libraries', each once.

Whether a function has been wrapped is told by a mark of our own: others use ``functools.wraps`` too, around what they
wrap and around ours.
"""

import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any

Function = Callable[..., Any]

_MARK = "_lazyplug_wrapper"


def wrap_once(function: Function, wrap: Callable[[Function], Function]) -> Function:
    """``wrap(function)``, with the name and the documentation of ``function``, which is returned if it calls ours."""
    if hasattr(function, _MARK):  # or a copy of it, made by who wrapped ours
        return function
    wrapper = functools.update_wrapper(wrap(function), function)
    setattr(wrapper, _MARK, True)
    return wrapper


def wrap_attribute(owner: Any, name: str, wrap: Callable[[Function], Function]) -> None:
    """Replaces a function of a class or a module by ``wrap(function)``; does nothing if that has been done."""
    setattr(owner, name, wrap_once(getattr(owner, name), wrap))


def wrap_copies(modules: Iterable[str], name: str, wrap: Callable[[Function], Function]) -> None:
    """``wrap_attribute`` in those of the modules that are there: one imports a function from the other, or has not yet,
    where the other's import is going on."""
    for module in map(sys.modules.get, modules):
        if hasattr(module, name):
            wrap_attribute(module, name, wrap)
