"""One HTML page about what the device has done: needs no network, no other file and no scripts."""

import collections
import html
import os
import re
from typing import Any

from torch_lazyplug import _C, metrics

__all__ = ["report"]

Event = dict[str, Any]

_WIDTH = 1000
_LANE = 26
_ROW = 18
_KINDS = ("run", "compile", "sync", "fallback")
_COLOURS = {"run": "#4c9f70", "compile": "#d98c2b", "sync": "#3b6ea5", "fallback": "#c0392b"}

_STYLE = """
body { font: 14px/1.4 sans-serif; margin: 2em auto; max-width: 1100px; color: #222 }
table { border-collapse: collapse } td, th { padding: 2px 12px 2px 0; text-align: left; vertical-align: top }
td.number { text-align: right } pre, .graph text { font: 12px monospace } svg { background: #f6f6f4 }
h2 { margin-top: 2em; border-bottom: 1px solid #ccc }
"""


def report(path: str | os.PathLike[str] = "report.html") -> None:
    """Writes a page with the timeline, syncs, fallbacks, compiles, memory and last graph of what has happened.

    It shows the events since the last ``clear_events()`` while the setting ``debug`` was on: clear them, run one step
    with ``config.set_debug(True)``, and call this.
    """
    events = _C._lazy._journal()
    sections = {
        "Timeline": _timeline(events),
        "Syncs": _by_line(events, "sync"),
        "Fallbacks": _by_line(events, "fallback"),
        "Compiles": _compiles(events),
        "Memory": _memory(events),
        "Last graph": _graph(),
        "Metrics": _pre(metrics.short_report()),
    }
    body = "".join(f"<h2>{title}</h2>{content}" for title, content in sections.items())
    page = '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>torch_lazyplug</title>'
    page += f"<style>{_STYLE}</style></head><body><h1>What the lazy device has done</h1>{body}</body></html>\n"
    with open(path, "w", encoding="utf-8") as file:
        file.write(page)


def _pre(text: str) -> str:
    return f"<pre>{html.escape(text)}</pre>"


def _svg(height: int, content: str, kind: str = "chart") -> str:
    return f'<svg class="{kind}" width="{_WIDTH + 100}" height="{height}">{content}</svg>'


def _nothing(what: str) -> str:
    return f"<p>{what} With the setting <code>debug</code> (LAZYPLUG_DEBUG=1) events are kept.</p>"


def _timeline(events: list[Event]) -> str:
    if not events:
        return _nothing("No events.")
    start = min(event["start_ns"] for event in events)
    span = max(event["start_ns"] + event["duration_ns"] for event in events) - start or 1
    marks = [f'<text x="4" y="{_LANE * i + 17}">{kind}</text>' for i, kind in enumerate(_KINDS)]
    for event in events:
        x = 80 + _WIDTH * (event["start_ns"] - start) / span
        width = max(2.0, _WIDTH * event["duration_ns"] / span)
        y = _LANE * _KINDS.index(event["kind"]) + 4
        title = f"{event['cause']}: {event['detail']} {event['location']} {event['duration_ns'] / 1e6:.3f} ms"
        marks.append(
            f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="18" fill="{_COLOURS[event["kind"]]}">'
            f"<title>{html.escape(title)}</title></rect>"
        )
    return f"<p>{span / 1e6:.3f} ms</p>" + _svg(_LANE * len(_KINDS) + 4, "".join(marks))


def _by_line(events: list[Event], kind: str) -> str:
    counts = collections.Counter((e["cause"], e["detail"], e["location"]) for e in events if e["kind"] == kind)
    if not counts:
        return "<p>None.</p>"
    rows = "".join(
        f'<tr><td class="number">{count}</td>' + "".join(f"<td>{html.escape(text)}</td>" for text in what) + "</tr>"
        for what, count in counts.most_common()
    )
    return f"<table><tr><th>times</th><th>cause</th><th></th><th>line</th></tr>{rows}</table>"


def _compiles(events: list[Event]) -> str:
    details = [event["detail"] for event in events if event["kind"] == "compile"]
    return "".join(map(_pre, details)) or "<p>None.</p>"


def _memory(events: list[Event]) -> str:
    sizes = [event["bytes"] for event in events if event["kind"] == "sync"]
    if not sizes:
        return _nothing("No trace was cut.")
    width = _WIDTH / len(sizes)
    bars = "".join(
        f'<rect x="{80 + i * width:.1f}" y="{100 - 96 * size / (max(sizes) or 1):.1f}" width="{max(1, width - 1):.1f}" '
        f'height="{96 * size / (max(sizes) or 1):.1f}" fill="{_COLOURS["sync"]}"><title>{size} bytes</title></rect>'
        for i, size in enumerate(sizes)
    )
    return f"<p>Bytes that each trace asked for, at most {max(sizes)}.</p>" + _svg(104, bars)


def _graph() -> str:
    try:
        dot = _C._lazy._latest_graph_dot()
    except RuntimeError:
        return "<p>None.</p>"
    labels = dict(re.findall(r'^  n(\d+) \[.*label="(.*)"\];$', dot, flags=re.M))
    rows = {node: i for i, node in enumerate(labels)}
    content = "".join(_row(i, label) for i, label in enumerate(labels.values()))
    content += "".join(_arc(rows[a], rows[b]) for a, b in re.findall(r"^  n(\d+) -> n(\d+) ", dot, flags=re.M))
    return _svg(_ROW * len(rows) + 8, content, "graph")


def _row(i: int, label: str) -> str:
    text = html.escape(label.replace('\\"', '"').replace("\\n", "   "))
    return f'<text x="210" y="{_ROW * i + 16}">{text}</text><circle cx="200" cy="{_ROW * i + 12}" r="3"/>'


def _arc(above: int, below: int) -> str:
    y1, y2 = _ROW * above + 12, _ROW * below + 12
    x = 200 - min(190, 12 * (below - above))
    return f'<path d="M200 {y1} C{x} {y1} {x} {y2} 200 {y2}" fill="none" stroke="#888"/>'
