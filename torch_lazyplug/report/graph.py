"""The last graph: its nodes as a picture, with what is known of each."""

import collections
import dataclasses
import html
import re

from torch_lazyplug import _C
from torch_lazyplug.journal import source_of
from torch_lazyplug.report.sections import paragraphs, table
from torch_lazyplug.spans import Event

__all__ = ["graph_section"]

MAX_NODES = 1000
MAX_LABEL = 300

_ROW = 18
_LEFT = 160
_WIDTH = 1060


@dataclasses.dataclass(frozen=True)
class _Node:
    name: str  # of the op, or empty
    text: str
    shapes: str
    line: str


def graph_section(events: list[Event]) -> str:
    """Text that can be searched, and clicked for the line, the shapes and the time; and the same as a table."""
    try:
        dot = _C._lazy._latest_graph_dot()
    except RuntimeError:
        return "<p>None.</p>"
    labels = dict(re.findall(r'^  n(\d+) \[.*label="(.*)"\];$', dot, flags=re.M))
    nodes = {number: _node(label) for number, label in list(labels.items())[:MAX_NODES]}
    arcs = [(a, b) for a, b in re.findall(r"^  n(\d+) -> n(\d+) ", dot, flags=re.M) if a in nodes and b in nodes]
    times = _times(events)
    more = [f"Left out: {len(labels) - len(nodes)} more nodes."] if len(labels) > len(nodes) else []
    search = '<p><label>Find <input id="find" type="search"></label> <span id="found"></span></p>'
    chosen = '<pre id="node" aria-live="polite">Click a node for its line, shapes and time.</pre>'
    return search + chosen + _picture(nodes, arcs, times) + _table(nodes, times) + paragraphs(more)


def _node(label: str) -> _Node:
    text, *rest = label.replace('\\"', '"').split("\\n")
    line = rest.pop() if len(rest) > 1 and re.search(r":\d+$", rest[-1]) else ""
    name = re.search(r"= ([\w:.]+)\(", text)
    return _Node(name[1] if name else "", text[:MAX_LABEL], "; ".join(rest)[:MAX_LABEL], line)


def _times(events: list[Event]) -> dict[tuple[str, str], tuple[int, float]]:
    """Of the last run: how many calls each op of each line was, and their milliseconds together."""
    times: dict[tuple[str, str], tuple[int, float]] = collections.defaultdict(lambda: (0, 0.0))
    runs = [event for event in events if event["kind"] == "run" and event["cause"] == "graph"]
    for name, location, seconds in runs[-1]["ops"] if runs else ():
        calls, total = times[name, location]
        times[name, location] = (calls + 1, total + seconds * 1e3)
    return dict(times)


def _time(node: _Node, times: dict[tuple[str, str], tuple[int, float]]) -> str:
    calls, total = times.get((node.name, node.line), (0, 0.0))
    each = f" in {calls} calls of {node.name} at this line" if calls > 1 else ""
    return f"{total:.3f} ms{each}" if calls else ""


def _table(nodes: dict[str, _Node], times: dict[tuple[str, str], tuple[int, float]]) -> str:
    heads = ("node", "shapes", "line", "source", "time")
    rows = [(n.text, n.shapes, n.line, source_of(n.line), _time(n, times)) for n in nodes.values()]
    return f"<details><summary>The nodes as a table</summary>{table(heads, rows)}</details>"


def _picture(
    nodes: dict[str, _Node], arcs: list[tuple[str, str]], times: dict[tuple[str, str], tuple[int, float]]
) -> str:
    rows = {number: i for i, number in enumerate(nodes)}
    drawn = [_arc(rows[a], rows[b]) for a, b in arcs]
    drawn += [_drawn(i, node, _time(node, times)) for i, node in enumerate(nodes.values())]
    height = _ROW * len(rows) + 8
    return f'<div class="scrolled"><svg class="graph" width="{_WIDTH}" height="{height}">{"".join(drawn)}</svg></div>'


def _drawn(i: int, node: _Node, time: str) -> str:
    source = source_of(node.line)
    about = "\n".join(filter(None, (node.text, node.shapes, node.line, source, time)))
    text = f"{node.text}   {node.shapes}   {node.line}"
    return (
        f'<g class="node" tabindex="0" role="button" data-about="{html.escape(about)}">'
        f'<circle cx="{_LEFT}" cy="{_ROW * i + 12}" r="3"/>'
        f'<text x="{_LEFT + 10}" y="{_ROW * i + 16}">{html.escape(text)}</text></g>'
    )


def _arc(above: int, below: int) -> str:
    y1, y2 = _ROW * above + 12, _ROW * below + 12
    x = _LEFT - min(_LEFT - 10, 12 * (below - above))
    return f'<path d="M{_LEFT} {y1} C{x} {y1} {x} {y2} {_LEFT} {y2}"/>'
