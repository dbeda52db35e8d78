"""The journal in Chrome's trace event format, for Perfetto and chrome://tracing."""

import gzip
import json
import os
import time
from collections.abc import Iterator
from typing import IO, Any, cast

from torch_lazyplug.journal import events, source_of
from torch_lazyplug.spans import Event, Span, end_of, op_times, row_names, spans_of, steps_of

__all__ = ["save_trace"]

Entry = dict[str, Any]
FileName = str | os.PathLike[str]

# More than the system's numbers of processes and threads: what is added to them names ours.
_NUMBERS = 1 << 22


def save_trace(path: FileName = "trace.json", profile: FileName | None = None) -> None:
    """Writes the events since ``clear_events()`` as a trace for https://ui.perfetto.dev or ``chrome://tracing``.

    Each thread has a row with its recordings, waits, compiles, fallbacks and runs, whose ops follow each other; arrows
    lead from where a graph was cut to its run. Steps have a row, and the bytes in use a curve. Needs the setting
    ``debug``. With ``profile``, the name of a trace that ``torch.profiler``'s ``export_chrome_trace`` has written in
    this process, the file has its events as well, on the same clock. Names that end in ``.gz`` are compressed.
    """
    trace: Entry = {"displayTimeUnit": "ms", "traceEvents": []}
    if profile is not None:
        with _open(profile, "r") as file:
            trace = json.load(file)
    found = events()
    clock = time.time_ns() - time.monotonic_ns()
    if profile is None:
        trace["baseTimeNanoseconds"] = clock + min((event["start_ns"] for event in found), default=0)
    trace["traceEvents"] += _Writer(clock - trace.get("baseTimeNanoseconds", 0)).entries(found)
    with _open(path, "w") as file:
        json.dump(trace, file)


def _open(path: FileName, mode: str) -> IO[str]:
    if os.fspath(path).endswith(".gz"):
        return cast(IO[str], gzip.open(path, mode + "t", encoding="utf-8"))
    return open(path, mode, encoding="utf-8")


class _Writer:
    """Makes entries of events.

    They are those of a process of its own: in rows that a profiler fills as well, spans would cross.
    """

    def __init__(self, offset: int) -> None:
        self._offset = offset
        self._process = os.getpid() + _NUMBERS

    def entries(self, found: list[Event]) -> list[Entry]:
        spans = spans_of(found)
        parts = (self._names(spans), self._spans(spans), self._steps(found), self._memory(found), self._flows(spans))
        return [entry for part in parts for entry in part]

    def _microseconds(self, nanoseconds: int) -> float:
        return (nanoseconds + self._offset) / 1000

    def _entry(self, phase: str, name: str, row: int, at: int, **fields: Any) -> Entry:
        return {"ph": phase, "name": name, "pid": self._process, "tid": row, "ts": self._microseconds(at), **fields}

    def _names(self, spans: list[Span]) -> Iterator[Entry]:
        rows = {_number(*row): name for row, name in row_names(spans).items()}
        yield {"ph": "M", "name": "process_name", "pid": self._process, "args": {"name": "torch_lazyplug"}}
        for row, name in {_NUMBERS: "steps", **rows}.items():
            yield {"ph": "M", "name": "thread_name", "pid": self._process, "tid": row, "args": {"name": name}}

    def _complete(self, name: str, kind: str, row: int, start: int, end: int, args: Entry) -> Entry:
        return self._entry("X", name, row, start, dur=(end - start) / 1000, cat=kind, args=args)

    def _spans(self, spans: list[Span]) -> Iterator[Entry]:
        for span in spans:
            event, row = span.event, _row(span)
            args = {"cause": event["cause"], "detail": event["detail"], "trace": event["trace"]}
            args.update(_line(event["location"]))
            yield self._complete(span.name, event["kind"], row, span.start, span.end, args)
            for name, location, start, end in op_times(span):
                yield self._complete(name, "op", row, start, end, _line(location))

    def _steps(self, found: list[Event]) -> Iterator[Entry]:
        for number, step in enumerate(steps_of(found), 1):
            yield self._complete(f"step {number}", "step", _NUMBERS, step.start, step.end, _line(step.location))

    def _memory(self, found: list[Event]) -> Iterator[Entry]:
        for event in sorted(found, key=end_of):
            yield self._entry("C", "allocated", 0, end_of(event), args={"bytes": event["allocated"]})

    def _flows(self, spans: list[Span]) -> Iterator[Entry]:
        """From the last moment of a recording to the first of the run of what was recorded."""
        cuts = {span.event["trace"]: span for span in spans if span.event["kind"] == "sync"}
        for run in spans:
            trace = run.event["trace"]
            if run.event["kind"] == "run" and trace in cuts:
                cut = cuts.pop(trace)
                fields = {"cat": "lazy", "id": trace}
                yield self._entry("s", "graph", _row(cut), max(cut.start, cut.end - 1), **fields)
                yield self._entry("f", "graph", _row(run), run.start, bp="e", **fields)


def _number(thread: int, lane: int) -> int:
    return thread + lane * _NUMBERS


def _row(span: Span) -> int:
    return _number(*span.row)


def _line(location: str) -> Entry:
    return {"line": location, "source": source_of(location)} if location else {}
