"""Backward passes on the thread that asks for them, as on the CPU.

PyTorch's engine hands the nodes of a graph to a thread for each device, except for the device types that it knows to
compute on the host: the CPU, Meta and its own lazy device. A device of another type cannot join them, but there is a
switch for each thread, ``torch.autograd.set_multithreading_enabled``. It is off while a backward pass runs that starts
from tensors of this device; so hooks run on the calling thread, and see it off. For one ``mul``, to hand the graph over
and back takes five times as long as its backward pass.

A backward pass that starts from the CPU may come by this device, too. It runs on the calling thread if this device is
in use and no other accelerator is; one that starts from another accelerator is left alone.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import Variable

from torch_lazyplug import _C
from torch_lazyplug._wrapping import Function, wrap_attribute

_OTHER_ACCELERATORS = (torch.cuda, torch.xpu)


def _others_in_use() -> bool:
    return torch.backends.mps.is_available() or any(module.is_initialized() for module in _OTHER_ACCELERATORS)


def _cpu_runs_here() -> bool:
    return _C._device.is_initialized() and not _others_in_use()


class CallingThreadEngine(torch._C._ImperativeEngine):
    """PyTorch's engine, whose nodes for this device run on the calling thread."""

    run_backward = staticmethod(
        _C._backward._make_run_backward(torch._C._ImperativeEngine().run_backward, _cpu_runs_here)
    )


def _noting(begin: bool) -> Callable[[Function], Function]:
    """Nodes that are made while saved tensors have hooks run Python's code."""

    def wrap(change_hooks: Function) -> Function:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            result = change_hooks(*args, **kwargs)
            _C._backward._note_saved_tensors_hooks(begin)
            return result

        return wrapper

    return wrap


def install() -> None:
    """Makes ``torch.autograd.backward`` and ``grad`` use this engine."""
    Variable._execution_engine = CallingThreadEngine()
    for module in (torch._C._autograd, torch.autograd):
        wrap_attribute(module, "_push_saved_tensors_default_hooks", _noting(begin=True))
        wrap_attribute(module, "_pop_saved_tensors_default_hooks", _noting(begin=False))
    # Hooks of single ones, of nodes of any thread: they never end.
    wrap_attribute(torch._C._autograd.SavedTensor, "register_hooks", _noting(begin=True))
