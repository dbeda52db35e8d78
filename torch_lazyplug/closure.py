"""Step closures: what a program wants to do with the results of a step, put off until the step has ended.

Closures that run asynchronously have a thread of their own, the event loop, which lives while there is something to
run. An exception ends it; the closures behind the one that failed wait for the next ``run`` but one, because the next
one reports the exception.

Locking: the one condition of a handler guards its queue, its error and its thread. It is never held while a closure
runs.
"""

import atexit
import os
import sys
import threading
import traceback
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from torch_lazyplug import config
from torch_lazyplug.device_context import DeviceContext, get_device_context

__all__ = ["AsyncClosureHandler", "ClosureHandler", "add_step_closure", "run_step_closures"]

Closure = Callable[[], Any]


class ClosureHandler:
    """Runs closures at once, one after the other."""

    def run(self, closure: Closure) -> None:
        """Runs a closure."""
        closure()

    def __call__(self, closures: Iterable[Closure]) -> None:
        """Runs closures up to the first that raises."""
        for closure in closures:
            self.run(closure)


class AsyncClosureHandler(ClosureHandler):
    """Runs closures in order on a thread of its own.

    ``max_queue_size`` bounds how many closures wait; the environment variable ``LTC_MAX_ASYNC_QUEUE`` overrides it, and
    0 or less means no bound. Every closure that was accepted is run, at the latest when the interpreter exits.
    """

    def __init__(self, max_queue_size: int = 100) -> None:
        super().__init__()
        self._max_queue_size = _bound(max_queue_size)
        self._reset()
        _handlers.add(self)

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._queue: deque[Closure] = deque()
        self._error: BaseException | None = None
        self._event_loop: threading.Thread | None = None
        self._completed = 0

    def start_event_loop(self) -> None:
        """Starts the event loop unless it runs."""
        with self._changed:
            if self._event_loop is None:
                # A daemon, or the interpreter would wait for a closure that never returns.
                self._event_loop = threading.Thread(target=self._run_queue, name="step closures", daemon=True)
                _unfinished.add(self)
                self._event_loop.start()

    def run(self, closure: Closure) -> None:
        """Queues a closure; waits while the queue is full.

        If a closure has raised since the last call, raises a ``RuntimeError`` caused by that exception, once. The
        closure is queued nevertheless, and runs after the next call.
        """
        with self._changed:
            if self._queue and self._error is None:
                self.start_event_loop()  # or nobody would make room
            self._changed.wait_for(self._has_room_or_error)
            self._queue.append(closure)
            error, self._error = self._error, None
            if error is None:
                self.start_event_loop()
                return
        raise RuntimeError("Cannot run asynchronous closure due to previously raised exception") from error

    def __call__(self, closures: Iterable[Closure]) -> None:
        """Queues all closures; then raises the first error that ``run`` raised. Others go to stderr."""
        first = None
        for closure in closures:
            try:
                self.run(closure)
            except RuntimeError as error:
                if first is None:
                    first = error
                else:
                    _report(error.__cause__ or error)
        if first is not None:
            raise first

    def _has_room_or_error(self) -> bool:
        is_full = 0 < self._max_queue_size <= len(self._queue)
        # A closure that adds closures would wait for itself.
        return not is_full or self._error is not None or threading.current_thread() is self._event_loop

    def _run_queue(self) -> None:
        while (closure := self._next_closure()) is not None:
            try:
                closure()
            except BaseException as error:
                self._stop(error)
                return
            finally:
                # Its tensors go before the thread counts as done: a thread that frees them while the interpreter
                # exits would end the process.
                del closure
                self._completed += 1

    def _next_closure(self) -> Closure | None:
        with self._changed:
            self._changed.notify_all()
            if self._queue:
                return self._queue.popleft()
            self._event_loop = None
            if self._error is None:
                _unfinished.discard(self)
            return None

    def _stop(self, error: BaseException) -> None:
        with self._changed:
            self._error = error
            self._event_loop = None
            self._changed.notify_all()

    def _finish(self, patience: float) -> None:
        """Runs what is left before the interpreter exits, and reports what nobody has been told.

        Gives up on a closure that takes longer than ``patience`` seconds.
        """
        while self._wait_for_progress(patience):
            with self._changed:
                error, self._error = self._error, None
                is_stopped = self._event_loop is None
                is_done = is_stopped and not self._queue
            if error is not None:
                _report(error)
            if is_done:
                return
            if is_stopped:
                self._restart()
        self._give_up()

    def _wait_for_progress(self, patience: float) -> bool:
        with self._changed:
            completed = self._completed
            return self._changed.wait_for(lambda: self._event_loop is None or self._completed > completed, patience)

    def _restart(self) -> None:
        try:
            self.start_event_loop()
        except RuntimeError:
            # Newer interpreters start no threads while they exit.
            self._event_loop = threading.current_thread()
            self._run_queue()

    def _give_up(self) -> None:
        warnings.warn(
            f"an asynchronous step closure has not returned; the interpreter exits without it and without the "
            f"{len(self._queue)} behind it (setting closure_exit_timeout)",
            stacklevel=2,
        )


_handlers: weakref.WeakSet[AsyncClosureHandler] = weakref.WeakSet()
# Those with closures left to run, or an error that nobody has seen. They are kept alive for these.
_unfinished: set[AsyncClosureHandler] = set()


def _bound(default: int) -> int:
    text = os.environ.get("LTC_MAX_ASYNC_QUEUE", str(default))
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"LTC_MAX_ASYNC_QUEUE is {text!r} but must be an integer") from None


def _report(error: BaseException) -> None:
    print("Exception in asynchronous step closure:", file=sys.stderr)
    traceback.print_exception(error)


def _finish_all() -> None:
    while _unfinished:  # closures may use handlers that were idle
        _unfinished.pop()._finish(int(config.get("closure_exit_timeout")))


def _forget_all() -> None:
    # In a forked child: the closures are the parent's, and so are the threads, which may have held any lock.
    for handler in _handlers:
        handler._reset()
    _unfinished.clear()


atexit.register(_finish_all)
os.register_at_fork(after_in_child=_forget_all)


def add_step_closure(closure: Callable[..., Any], args: tuple[Any, ...] = (), run_async: bool = False) -> None:
    """Puts off a call until the end of the step.

    ``mark_step`` calls ``closure(*args)`` when everything that the step has recorded has been handed to execution, so
    reading any number of tensors in closures costs one execution, where reading them in the middle of a step costs one
    each. Closures run in the order in which they were added; with ``run_async`` on a thread of their own, while the
    program goes on.
    """
    context = get_device_context()
    with context.lock:
        _closures_of(context, run_async).append(lambda: closure(*args))


def run_step_closures() -> DeviceContext:
    """Starts the asynchronous step closures and runs the others; ``mark_step`` calls it. Returns the device context.

    Raises what the first closure raises; those behind it run at the next call.
    """
    context = get_device_context()
    try:
        _run(context, run_async=True)
    finally:
        _run(context, run_async=False)
    return context


def _closures_of(context: DeviceContext, run_async: bool) -> list[Closure]:
    return context.__dict__.setdefault("async_step_closures" if run_async else "step_closures", [])


def _handler_of(context: DeviceContext, run_async: bool) -> ClosureHandler:
    name, handler = ("async_closure_handler", AsyncClosureHandler) if run_async else ("closure_handler", ClosureHandler)
    if name not in context.__dict__:
        setattr(context, name, handler())
    return getattr(context, name)


def _run(context: DeviceContext, run_async: bool) -> None:
    waiting = _closures_of(context, run_async)
    if not waiting:
        return  # nearly always, and every step comes by here
    with context.lock:
        closures = list(waiting)
        waiting.clear()
        handler = _handler_of(context, run_async)
    left = iter(closures)
    try:
        handler(left)
    finally:
        with context.lock:
            # In front of what the closures themselves have added.
            waiting[:0] = left
