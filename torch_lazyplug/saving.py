"""``torch.save`` to a file: an error that is still to come leaves the file that is there as it is.

On the CPU an op raises at its line, before anything is saved. Here it may raise when its result is read, which would be
when the file has been opened and emptied.
"""

import os
from typing import Any

import torch

from torch_lazyplug import _C
from torch_lazyplug._wrapping import Function, wrap_attribute


def install() -> None:
    """Wraps ``torch.save``; does nothing if that has been done."""
    for module in (torch, torch.serialization):
        wrap_attribute(module, "save", _after_what_is_pending)


def _after_what_is_pending(save: Function) -> Function:
    def wrapper(obj: object, f: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(f, (str, os.PathLike)) and _C._device.is_initialized():
            _C._lazy._wait_device_ops([])  # raises what nobody has seen
        save(obj, f, *args, **kwargs)

    return wrapper
