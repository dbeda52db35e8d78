"""The device module ``torch.lazy``: what ``torch.cuda`` is to CUDA."""

from typing import Any

from torch_lazyplug import _C
from torch_lazyplug.lazy import _utils as _utils  # torch.load looks for torch.lazy._utils
from torch_lazyplug.lazy import devices, memory, random, streams, sync_debug
from torch_lazyplug.lazy._state import (
    DeferredLazyCallError,
    _is_in_bad_fork,
    _lazy_call,
    _lazy_init,
    init,
    is_initialized,
)
from torch_lazyplug.lazy.devices import *  # noqa: F403
from torch_lazyplug.lazy.devices import _exchange_device, _maybe_exchange_device
from torch_lazyplug.lazy.memory import *  # noqa: F403
from torch_lazyplug.lazy.random import *  # noqa: F403
from torch_lazyplug.lazy.random import _get_generator
from torch_lazyplug.lazy.streams import *  # noqa: F403
from torch_lazyplug.lazy.sync_debug import *  # noqa: F403

__all__ = [
    "DeferredLazyCallError",
    "_exchange_device",
    "_get_generator",
    "_is_in_bad_fork",
    "_lazy_call",
    "_lazy_init",
    "_maybe_exchange_device",
    "default_generators",  # noqa: F405  (see __getattr__)
    "init",
    "is_initialized",
    *devices.__all__,
    *memory.__all__,
    *random.__all__,
    *streams.__all__,
    *sync_debug.__all__,
]


def __getattr__(name: str) -> Any:
    # Made on demand: their number is the device count, which importing must not fix.
    if name == "default_generators":
        return random.default_generators()
    # Activation checkpointing saves the generators' states only of devices that have it set. Ops initialise the device
    # without coming here, so it is looked up.
    if name == "_initialized":
        return _C._device.is_initialized()
    raise AttributeError(f"module 'torch.lazy' has no attribute {name!r}")
