"""What the page's script draws: events, their ops and steps, bounded."""

import bisect
from typing import Any

from torch_lazyplug.journal import source_of
from torch_lazyplug.spans import Event, Span, Step, op_times, row_names, spans_of, steps_of

__all__ = ["page_data"]

# The last ones are kept: together they take a few megabytes.
MAX_SPANS = 5000
MAX_OPS = 50000
MAX_STEPS = 500
MAX_TEXT = 2000

# Kinds of which a step has times, as the table names them.
KINDS = {"sync": "recording", "wait": "waiting", "compile": "compiling", "run": "running"}


def page_data(events: list[Event]) -> dict[str, Any]:
    """As JSON can write it. Times are microseconds since the first event."""
    spans, steps = spans_of(events), steps_of(events)
    start = min((event["start_ns"] for event in events), default=0)
    drawn = spans[-MAX_SPANS:]
    names, texts = row_names(drawn), _Texts()
    rows = {row: i for i, row in enumerate(names)}
    with_ops = _last_with_ops(drawn)
    return {
        "steps": _steps(steps, spans, start)[-MAX_STEPS:],
        "rows": list(names.values()),
        "spans": [_span(span, rows[span.row], start, texts, i >= with_ops) for i, span in enumerate(drawn)],
        "texts": list(texts.numbers),
        "left_out": _left_out(spans, steps, with_ops),
    }


class _Texts:
    """Each text once; numbers stand for them."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        if len(text) > MAX_TEXT:
            text = text[:MAX_TEXT] + " ..."
        return self.numbers.setdefault(text, len(self.numbers))

    def line(self, location: str) -> int:
        return self.number(f"{location}  {source_of(location)}".strip())


def _last_with_ops(spans: list[Span]) -> int:
    """From which on all of their ops together are not too many."""
    count = 0
    for i in reversed(range(len(spans))):
        count += len(spans[i].event["ops"])
        if count > MAX_OPS:
            return i + 1
    return 0


def _span(span: Span, row: int, start: int, texts: _Texts, with_ops: bool) -> list[Any]:
    event = span.event
    ops = [
        [texts.number(name), texts.line(location), (begin - start) / 1000, (end - begin) / 1000]
        for name, location, begin, end in (op_times(span) if with_ops else ())
    ]
    about = [texts.number(event["cause"]), texts.number(event["detail"]), texts.line(event["location"])]
    times = [(span.start - start) / 1000, (span.end - span.start) / 1000]
    return [event["kind"], row, *times, texts.number(span.name), *about, event["trace"], ops]


def _steps(steps: list[Step], spans: list[Span], start: int) -> list[dict[str, Any]]:
    """Of each what its kinds took within it, in milliseconds; waits contain what was compiled and run meanwhile."""
    times = [dict.fromkeys(KINDS.values(), 0.0) for _ in steps]
    ends = [step.end for step in steps]
    for span in spans:
        if name := KINDS.get(span.event["kind"]):
            first, last = bisect.bisect_right(ends, span.start), bisect.bisect_left(ends, span.end)
            for i in range(first, min(last + 1, len(steps))):
                times[i][name] += max(0, min(span.end, steps[i].end) - max(span.start, steps[i].start)) / 1e6
    return [
        {
            "number": number,
            "line": step.location,
            "start": (step.start - start) / 1000,
            "total": (step.end - step.start) / 1e6,
            **times[number - 1],
        }
        for number, step in enumerate(steps, 1)
    ]


def _left_out(spans: list[Span], steps: list[Step], with_ops: int) -> list[str]:
    texts = {
        f"the first {len(spans) - MAX_SPANS} of {len(spans)} events": len(spans) > MAX_SPANS,
        f"the first {len(steps) - MAX_STEPS} of {len(steps)} steps": len(steps) > MAX_STEPS,
        f"the ops of the first {with_ops} events that are drawn": with_ops > 0,
    }
    return [f"Left out: {text}." for text, needed in texts.items() if needed]
