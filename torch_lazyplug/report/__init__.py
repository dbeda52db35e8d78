"""One HTML page about what the device has done: needs no network and no other file."""

import json
import os
from pathlib import Path

from torch_lazyplug import _C, metrics
from torch_lazyplug.explain import advice, explain_sync
from torch_lazyplug.journal import events
from torch_lazyplug.report.content import page_data
from torch_lazyplug.report.graph import graph_section
from torch_lazyplug.report.sections import by_line, compiles, memory, paragraphs, pre, steps_table

__all__ = ["report"]

_FOLDER = Path(__file__).parent


def report(path: str | os.PathLike[str] = "report.html") -> None:
    """Writes a page with the steps, their timelines, syncs, fallbacks, compiles, memory and last graph.

    It begins with what ``explain_sync()``, ``advice()`` and ``explain_recompile()`` say. Shows the events since the
    last ``clear_events()`` while the setting ``debug`` was on: clear them, run some steps with
    ``config.set_debug(True)``, and call this; or run a script as ``python -m torch_lazyplug.report script.py``. Of very
    long programs, it shows the end, and says what it leaves out.
    """
    with open(path, "w", encoding="utf-8") as file:
        file.write(_page())


def _page() -> str:
    found = events()
    data = page_data(found)
    sections = {
        "Summary": _summary(),
        "Steps": '<div id="steps"></div>' + steps_table(data),
        "Timeline": '<div id="timeline"><p>It is drawn by a script.</p></div>' + paragraphs(data["left_out"]),
        "Syncs": by_line(found, "sync"),
        "Waits": by_line(found, "wait"),
        "Fallbacks": by_line(found, "fallback"),
        "Compiles": compiles(found),
        "Memory": memory(found),
        "Last graph": graph_section(found),
        "Metrics": pre(metrics.short_report()),
    }
    body = "".join(f"<section><h2>{title}</h2>{content}</section>" for title, content in sections.items())
    # What ends the element must not be in it.
    embedded = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>torch_lazyplug</title>'
        f"<style>{_part('page.css')}</style></head><body><h1>What the lazy device has done</h1>{body}"
        f'<script type="application/json" id="data">{embedded}</script>'
        f"<script>{_part('page.js')}</script></body></html>\n"
    )


def _part(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _summary() -> str:
    advised = "\n".join(map(str, advice())) or "nothing that costs much was seen"
    texts = {"Waiting": explain_sync(), "Advice": advised, "The last compile": _C._lazy._explain_recompile()}
    return "".join(f"<h3>{title}</h3>{pre(text)}" for title, text in texts.items())
