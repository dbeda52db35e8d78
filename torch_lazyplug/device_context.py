"""One object per device, on which the step interface keeps what belongs to the device; anybody may add attributes."""

import os
import threading
from typing import Any

import torch

__all__ = ["DeviceContext", "get_device_context"]


class DeviceContext:
    """What Python keeps for the device called ``device``. Made by ``get_device_context`` only.

    ``lock`` guards the attributes that the step interface adds; it is never held while foreign code runs.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self.lock = threading.RLock()


_contexts: dict[str, DeviceContext] = {}
_contexts_lock = threading.Lock()


def get_device_context(device: Any = None) -> DeviceContext:
    """The context of a device, the same object at every call and in every thread.

    Without a device, the context that stands for all of them, called ``"lazy"``. Raises ``RuntimeError`` for a device
    of another type.
    """
    name = "lazy" if device is None else str(device)
    return _contexts.get(name) or _make(name)


def _make(name: str) -> DeviceContext:
    if torch.device(name).type != "lazy":
        raise RuntimeError(f"expected a lazy device, got '{name}'")
    with _contexts_lock:
        return _contexts.setdefault(name, DeviceContext(name))


def _renew_locks() -> None:
    # In a forked child: threads of the parent may have held them.
    global _contexts_lock
    _contexts_lock = threading.Lock()
    for context in _contexts.values():
        context.lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_locks)
