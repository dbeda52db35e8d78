"""The parts of the page that are there without its script: tables, texts, and the curve of memory."""

import collections
import html
from collections.abc import Iterable, Sequence
from typing import Any

from torch_lazyplug.journal import source_of
from torch_lazyplug.report.content import KINDS, MAX_TEXT
from torch_lazyplug.spans import Event, end_of

__all__ = ["NO_EVENTS", "by_line", "compiles", "memory", "paragraphs", "pre", "steps_table", "table"]

MAX_ROWS = 200
MAX_COMPILES = 30
MAX_POINTS = 1000

NO_EVENTS = "<p>No events. With the setting <code>debug</code> (LAZYPLUG_DEBUG=1) they are kept.</p>"

WIDTH, HEIGHT = 1060, 120


def pre(text: str) -> str:
    return f"<pre>{html.escape(text)}</pre>"


def paragraphs(texts: Iterable[str]) -> str:
    return "".join(f"<p>{html.escape(text)}</p>" for text in texts)


def table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """The first rows. Numbers are right-aligned, and fractions are milliseconds."""
    if not rows:
        return "<p>None.</p>"
    head = "".join(f'<th scope="col">{html.escape(text)}</th>' for text in heads)
    body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows[:MAX_ROWS])
    more = paragraphs([f"Left out: {len(rows) - MAX_ROWS} more rows."] if len(rows) > MAX_ROWS else [])
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return f"<td>{html.escape(value)}</td>"
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return f'<td class="number">{text}</td>'


def steps_table(data: dict[str, Any]) -> str:
    """The last ones first."""
    if not data["spans"]:
        return NO_EVENTS
    heads = ["step", "ms", *(f"{name} ms" for name in KINDS.values()), "ended at"]
    rows = [
        (step["number"], step["total"], *(step[name] for name in KINDS.values()), step["line"])
        for step in reversed(data["steps"])
    ]
    return f"<details><summary>The steps as a table</summary>{table(heads, rows)}</details>"


def by_line(events: list[Event], kind: str) -> str:
    """What has taken longest first."""
    times: dict[tuple[str, str, str], list[float]] = collections.defaultdict(list)
    for event in events:
        if event["kind"] == kind:
            key = (event["location"], event["cause"], event["detail"][:MAX_TEXT])
            times[key].append(event["duration_ns"] / 1e6)
    rows = [
        (len(each), sum(each), cause, detail, location, source_of(location))
        for (location, cause, detail), each in times.items()
    ]
    return table(("times", "ms", "cause", "", "line", "source"), sorted(rows, key=lambda row: -row[1]))


def compiles(events: list[Event]) -> str:
    """By line and cause, and what the last ones were compiled for."""
    found = [event for event in events if event["kind"] == "compile"]
    brief = [{**event, "detail": ""} for event in found]
    last = "".join(pre(event["detail"][:MAX_TEXT]) for event in reversed(found[-MAX_COMPILES:]))
    left_out = len(found) - MAX_COMPILES
    more = paragraphs([f"Left out: the explanations of {left_out} earlier ones."] if left_out > 0 else [])
    details = f"<details><summary>Why, the last one first</summary>{last}{more}</details>" if found else ""
    return by_line(brief, "compile") + details


# Memory --------------------------------------------------------------------------------------------------------------


def memory(events: list[Event]) -> str:
    """The bytes in use whenever an event ended, and the traces with the largest results."""
    used = sorted(((end_of(event), event["allocated"]) for event in events), key=lambda point: point[0])
    if not used:
        return NO_EVENTS
    peak = max(events, key=lambda event: event["allocated"])
    text = f"At most {peak['allocated']} bytes were in use when an event ended: a {peak['kind']} ({peak['cause']})"
    text += f" of {peak['location']}." if peak["location"] else "."
    cuts = sorted((e for e in events if e["kind"] == "sync"), key=lambda event: -event["bytes"])
    rows = [(e["bytes"], e["trace"], e["detail"], e["cause"], e["location"]) for e in cuts[:10]]
    heads = ("bytes", "graph", "", "cut by", "line")
    return paragraphs([text]) + _curve(used) + "<h3>The largest results of graphs</h3>" + table(heads, rows)


def _curve(used: list[tuple[int, int]]) -> str:
    points = _thinned(used)
    start, span = points[0][0], points[-1][0] - points[0][0] or 1
    top = max(size for _, size in points) or 1
    places = [(WIDTH * (at - start) / span, HEIGHT - (HEIGHT - 16) * size / top) for at, size in points]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    x, y = min(places, key=lambda place: place[1])
    anchor = "end" if x > WIDTH / 2 else "start"
    return (
        f'<svg role="img" aria-label="bytes in use over time" width="{WIDTH}" height="{HEIGHT + 4}">'
        f'<polyline class="memory" points="{line}"/><circle class="peak" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
        f'<text x="{x:.1f}" y="12" text-anchor="{anchor}">&#160; peak: {top} bytes &#160;</text></svg>'
    )


def _thinned(used: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Of each group of neighbours, the largest."""
    group = -(-len(used) // MAX_POINTS)
    return [max(used[i : i + group], key=lambda point: point[1]) for i in range(0, len(used), group)]
