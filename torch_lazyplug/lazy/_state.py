"""Initialisation on first use, and calls that wait for it.

Locking: ``_lock`` admits one initialising thread, and is held while queued calls run; those may call ``_lazy_init``
again, which ``_tls`` lets through. ``_queue_lock`` makes "initialised" and "the queue is empty" one fact, so that no
call is queued that nobody would run. It is never held while foreign code runs.
"""

import os
import threading
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

from torch_lazyplug import _C

_initialized = False
_lock = threading.Lock()
_tls = threading.local()
_queue_lock = threading.Lock()
_queued_calls: deque[tuple[Callable[[], Any], list[str]]] = deque()


class DeferredLazyCallError(Exception):
    """A call that was queued until the device is initialised has failed."""


def init() -> None:
    """Initialises the device. Need not be called: whatever uses the device does."""
    _lazy_init()


def is_initialized() -> bool:
    """Whether the device has been initialised in this process."""
    return _initialized and not _is_in_bad_fork()


def _is_in_bad_fork() -> bool:
    """Whether this process was forked from one that had initialised the device, and so cannot use it."""
    return _C._device.is_in_bad_fork()


def _lazy_init() -> None:
    """Initialises the device and runs the queued calls, once. Raises ``RuntimeError`` in a bad fork."""
    if _initialized or hasattr(_tls, "is_initializing"):
        return
    # Before taking the lock: a thread of the parent may have held it at the fork.
    _C._device.check_not_bad_fork()
    with _lock:
        if _initialized:
            return
        _C._device.init()
        _tls.is_initializing = True
        try:
            _run_queued_calls()
        finally:
            del _tls.is_initializing


def _lazy_call(call: Callable[[], Any], **kwargs: Any) -> None:
    """Runs the call when the device is initialised: now, or after all calls queued before.

    Accepts and ignores the hints that other devices take (``seed``, ``seed_all``).
    """
    if not hasattr(_tls, "is_initializing"):
        with _queue_lock:
            if not _initialized:
                _queued_calls.append((call, traceback.format_stack()))
                return
    call()


def _run_queued_calls() -> None:
    global _initialized
    while True:
        with _queue_lock:
            if not _queued_calls:
                _initialized = True
                return
            call, origin = _queued_calls.popleft()
        _run_queued_call(call, origin)


def _begin_child() -> None:
    # Threads of the parent may have held the locks; and what the parent has initialised, the child cannot use.
    global _initialized, _lock, _queue_lock
    _initialized = False
    _lock, _queue_lock = threading.Lock(), threading.Lock()


os.register_at_fork(after_in_child=_begin_child)


def _run_queued_call(call: Callable[[], Any], origin: list[str]) -> None:
    try:
        call()
    except Exception as error:
        raise DeferredLazyCallError(
            f"LAZY call failed lazily at initialization with error: {error}\n\n"
            f"LAZY call was originally invoked at:\n\n{''.join(origin)}"
        ) from error
