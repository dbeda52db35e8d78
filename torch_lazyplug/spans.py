"""The journal's events as they are drawn: in rows of threads, one within another, and divided into steps."""

import collections
import dataclasses
import threading
from collections.abc import Iterable
from typing import Any

from torch_lazyplug.journal import step_line

__all__ = ["Span", "Step", "end_of", "op_times", "row_names", "spans_of", "steps_of", "thread_names"]

Event = dict[str, Any]


@dataclasses.dataclass
class Span:
    """An event and where it is drawn. Spans of the same ``thread`` and ``lane`` do not overlap but by nesting."""

    event: Event
    start: int  # nanoseconds on the clock of the events
    end: int
    lane: int = 0

    @property
    def row(self) -> tuple[int, int]:
        return self.event["thread"], self.lane

    @property
    def name(self) -> str:
        kind, cause = self.event["kind"], self.event["cause"]
        if kind == "run":
            return "run" if cause == "graph" else self.event["ops"][0][0]
        return {"sync": "recording", "fallback": cause}.get(kind, f"{kind}: {cause}")


@dataclasses.dataclass(frozen=True)
class Step:
    """What lies between two marks. The ``location`` is that of the mark that ends it, or empty if none does."""

    start: int
    end: int
    location: str


def end_of(event: Event) -> int:
    return event["start_ns"] + event["duration_ns"]


# Rows ----------------------------------------------------------------------------------------------------------------


def spans_of(events: Iterable[Event]) -> list[Span]:
    """Those of all events but steps, in order of their start."""
    by_thread: dict[int, list[Event]] = collections.defaultdict(list)
    for event in events:
        if event["kind"] != "step":
            by_thread[event["thread"]].append(event)
    spans = [span for found in by_thread.values() for span in _place(_fit(found))]
    return sorted(spans, key=_order)


def _order(span: Span) -> tuple[int, int]:
    return span.start, -span.end


def _fit(events: list[Event]) -> list[Span]:
    """The events of one thread.

    What ends within a wait has also begun in it, whatever the clock says, but for a recording that the wait has cut:
    that ended where the wait began.
    """
    spans = [Span(event, event["start_ns"], end_of(event)) for event in events]
    waits = [span for span in spans if span.event["kind"] == "wait"]
    for span in sorted(spans, key=lambda span: span.end):
        while waits and waits[0].end < span.end:
            del waits[0]
        if waits and span.start < waits[0].start <= span.end:
            if span.event["kind"] == "sync":
                span.end = waits[0].start
            else:
                span.start = waits[0].start
    return spans


def _place(spans: list[Span]) -> list[Span]:
    """Puts each into the first lane in which it is within or beside the others: two traces may be recorded at once."""
    lanes: list[list[Span]] = []
    for span in sorted(spans, key=_order):
        span.lane = next((i for i, lane in enumerate(lanes) if _fits(lane, span)), len(lanes))
        if span.lane == len(lanes):
            lanes.append([])
        lanes[span.lane].append(span)
    return spans


def _fits(open_spans: list[Span], span: Span) -> bool:
    while open_spans and open_spans[-1].end <= span.start:
        open_spans.pop()
    return not open_spans or span.end <= open_spans[-1].end


def op_times(span: Span) -> list[tuple[str, str, int, int]]:
    """Name, line, start and end of each op of a run, one after the other from where the run began.

    Only how long each took is known: what they do not fill is at the end.
    """
    found, start = [], span.start
    for name, location, seconds in span.event["ops"]:
        end = min(start + round(seconds * 1e9), span.end)
        found.append((name, location, start, end))
        start = end
    return found


def row_names(spans: Iterable[Span]) -> dict[tuple[int, int], str]:
    """Of each row that has spans, in order: the thread's name, and which lane it is if it is not the first."""
    rows = sorted({span.row for span in spans})
    names = thread_names(thread for thread, _ in rows)
    return {(thread, lane): names[thread] + (f" ({lane + 1})" if lane else "") for thread, lane in rows}


def thread_names(threads: Iterable[int]) -> dict[int, str]:
    """By the system's number: Python's names, or for threads that are not Python's, the system's."""
    python = {thread.native_id: thread.name for thread in threading.enumerate()}
    return {thread: python.get(thread) or _system_name(thread) for thread in sorted(set(threads))}


def _system_name(thread: int) -> str:
    try:
        with open(f"/proc/self/task/{thread}/comm") as comm:
            return comm.read().strip()
    except OSError:
        return f"thread {thread} (ended)"


# Steps ---------------------------------------------------------------------------------------------------------------


def steps_of(events: Iterable[Event]) -> list[Step]:
    """Divides the events' time at the marks of the line that marks most steps; without marks, all is one step."""
    events = list(events)
    if not events:
        return []
    location = step_line(event["location"] for event in events if event["kind"] == "step")
    marks = sorted(end_of(event) for event in events if event["kind"] == "step" and event["location"] == location)
    start, end = min(event["start_ns"] for event in events), max(map(end_of, events))
    steps = [Step(a, b, location or "") for a, b in zip([start, *marks], marks, strict=False)]
    last = marks[-1] if marks else start
    rest = any(end_of(event) > last for event in events if event["kind"] != "step")
    return [*steps, Step(last, end, "")] if rest else steps
