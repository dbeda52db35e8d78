"""What has happened, event by event, while the setting ``debug`` was on."""

import collections
import dataclasses
import linecache
import os
from collections.abc import Iterable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from torch_lazyplug import _C

__all__ = ["Event", "clear_events", "events", "install", "last_step", "source_of", "step_line", "watch_steps"]


@dataclasses.dataclass(frozen=True)
class Event:
    """One entry of the journal. Times are seconds; those that say when are on the clock of ``time.monotonic``."""

    kind: str  # "sync", "wait", "fallback", "compile", "run" or "step"
    cause: str
    detail: str
    location: str  # the user's line as "file.py:12", or ""
    start: float
    duration: float
    bytes: int
    trace: int  # the number of the graph that was cut, compiled, run or waited for, or 0
    thread: int  # the system's number
    allocated: int  # bytes in use on all devices when the event ended
    ops: tuple[tuple[str, str, float], ...]  # of a run: name, location and duration of each op

    @property
    def end(self) -> float:
        return self.start + self.duration


def _read(entry: dict[str, Any]) -> Event:
    fields = {name: entry[name] for name in ("kind", "cause", "detail", "location", "bytes", "trace", "thread")}
    start, duration = entry["start_ns"] / 1e9, entry["duration_ns"] / 1e9
    return Event(**fields, start=start, duration=duration, allocated=entry["allocated"], ops=tuple(entry["ops"]))


def journal() -> list[Event]:
    """All events that are kept, in order of their end."""
    return [_read(entry) for entry in _C._lazy._journal()]


def events(kind: str | None = None) -> list[dict[str, Any]]:
    """What has happened while the setting ``debug`` was on, in order of its start.

    Kinds are ``"sync"`` (a graph was cut), ``"wait"`` (the program read a value, or ran an op at once), ``"fallback"``,
    ``"compile"``, ``"run"`` (of a graph) and ``"step"`` (an optimiser's, or ``mark_step``). Each has its ``kind``,
    ``cause``, ``detail``, ``location`` (the user's line), ``start_ns``, ``duration_ns``, ``thread``, ``trace`` (the
    number of the graph), ``allocated`` (bytes in use), for a sync the ``bytes`` of its results, and for a run its
    ``ops``: tuples of name, line and seconds.
    """
    found = [event for event in _C._lazy._journal() if kind in (None, event["kind"])]
    return sorted(found, key=lambda event: event["start_ns"])


def clear_events() -> None:
    """Forgets the events."""
    _C._lazy._clear_journal()


def step_line(marks: Iterable[str]) -> str | None:
    """The line that ends steps: that at which most marks were made."""
    counts = collections.Counter(marks)
    return counts.most_common(1)[0][0] if counts else None


def last_step(found: list[Event]) -> tuple[list[Event], float]:
    """The events of the last step, and the seconds that it took. Without marks of steps, all are one."""
    line = step_line(event.location for event in found if event.kind == "step")
    ends = [i for i, event in enumerate(found) if event.kind == "step" and event.location == line]
    if not ends:
        return found, max(event.end for event in found) - min(event.start for event in found) if found else 0.0
    first = ends[-2] + 1 if len(ends) > 1 else 0
    start = found[ends[-2]].end if len(ends) > 1 else min(event.start for event in found)
    return found[first : ends[-1] + 1], found[ends[-1]].end - start


def source_of(location: str) -> str:
    """The text of the user's line, or an empty string."""
    file, _, line = location.rpartition(":")
    return linecache.getline(file, int(line)).strip() if line.isdigit() else ""


# Steps ---------------------------------------------------------------------------------------------------------------

_hook: Any = None


def _after_step(optimizer: torch.optim.Optimizer, *_unused: Any) -> None:
    _C._lazy._note_step(f"{type(optimizer).__name__}.step")


def watch_steps(enabled: bool) -> None:
    """Whether the journal is told when an optimiser has made a step."""
    global _hook
    if enabled and _hook is None:
        _hook = register_optimizer_step_post_hook(_after_step)
    elif not enabled and _hook is not None:
        _hook.remove()
        _hook = None


def install() -> None:
    """Watches steps if the environment has anything to say about ``debug``.

    What it says is not read here: settings are read when they are first used, and errors in them told then.
    """
    watch_steps("LAZYPLUG_DEBUG" in os.environ)
