"""Where the time of a program has gone, in terms of its own lines: from what the journal has measured."""

import bisect
import collections
import dataclasses
import gc
import itertools
import re
from collections.abc import Iterable

import torch

from torch_lazyplug import _C
from torch_lazyplug.journal import Event, journal, last_step, source_of, step_line

__all__ = ["Advice", "advice", "explain_sync"]

# What reads of results that are there take: less counts as nothing.
_NOTHING = 50e-6

_HOW_TO_KEEP_DEBUGGING = "nothing is known: events are kept while the setting debug (LAZYPLUG_DEBUG=1) is on"

# Lines that show values to people.
_PRINTS = re.compile(r"print\(|\blogg|\bwandb\b|add_scalar")

_RESULTS = ("item", "copy to CPU", "memory access", "sync_multi")


# Waiting -------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class _Wait:
    """What one line has waited for one cause."""

    location: str
    cause: str
    threads: set[int] = dataclasses.field(default_factory=set)
    times: int = 0
    seconds: float = 0.0
    compiling: float = 0.0
    ops: dict[tuple[str, str], float] = dataclasses.field(default_factory=lambda: collections.defaultdict(float))
    num_ops: int = 0

    def add(self, event: Event, meanwhile: Iterable[Event]) -> None:
        self.times += 1
        self.seconds += event.duration
        self.threads.add(event.thread)
        for other in meanwhile:
            if other.kind == "compile":
                self.compiling += min(event.end, other.end) - max(event.start, other.start)
            self.num_ops += len(other.ops)
            for name, location, seconds in other.ops:
                self.ops[name, location] += seconds


def _waits(found: list[Event]) -> list[_Wait]:
    """By line and cause, the longest first; of each, what was compiled and run meanwhile."""
    waits: dict[tuple[str, str], _Wait] = {}
    work = sorted((event for event in found if event.kind in ("compile", "run")), key=lambda event: event.end)
    ends = [event.end for event in work]
    for event in found:
        if event.kind == "wait":
            wait = waits.setdefault((event.location, event.cause), _Wait(event.location, event.cause))
            first = bisect.bisect_right(ends, event.start)
            wait.add(event, itertools.takewhile(lambda other: other.start < event.end, work[first:]))  # noqa: B023
    return sorted(waits.values(), key=lambda wait: -wait.seconds)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms"


def _place(location: str) -> str:
    source = source_of(location)
    return (location or "an unknown line") + (f"  `{source}`" if source else "")


def _describe(wait: _Wait, main_thread: int) -> list[str]:
    times = f", {wait.times} times" if wait.times > 1 else ""
    lines = [f"{_milliseconds(wait.seconds)}  {_place(wait.location)}  ({wait.cause}{times})"]
    if wait.ops:
        (name, location), seconds = max(wait.ops.items(), key=lambda item: item[1])
        where = f" recorded at {location}" if location else ""
        lines.append(f"    for {wait.num_ops} ops, the longest {name}{where} ({_milliseconds(seconds)})")
    if wait.compiling > _NOTHING:
        lines.append(f"    {_milliseconds(wait.compiling)} of it for compiling: see explain_recompile()")
    others = sorted(wait.threads - {main_thread})
    if others:
        lines.append(f"    in thread {', '.join(map(str, others))}, not in the one that ends the steps")
    return lines


def _main_thread(found: list[Event]) -> int:
    """That which ends steps, or else does most."""
    steps = [event.thread for event in found if event.kind == "step"]
    counts = collections.Counter(steps or [event.thread for event in found if event.kind in ("sync", "wait")])
    return counts.most_common(1)[0][0] if counts else 0


def explain_sync() -> str:
    """Where the last step waited for the device: each line that read a value, with what it waited for, by cost.

    A step ends with an optimiser's ``step()`` or with ``mark_step()``; without either, everything since
    ``clear_events()`` is one. Only what happened while the setting ``debug`` was on is known.
    """
    found, span = last_step(journal())
    if not found:
        return _HOW_TO_KEEP_DEBUGGING
    waits = _waits(found)
    costly = [wait for wait in waits if wait.seconds / wait.times > _NOTHING]
    total = sum(wait.seconds for wait in waits)
    lines = [f"the last step took {_milliseconds(span)} and waited {_milliseconds(total)} in {len(costly)} place(s)"]
    main_thread = _main_thread(found)
    for wait in costly:
        lines += ["  " + line for line in _describe(wait, main_thread)]
    free = [f"{wait.location} ({wait.cause})" for wait in waits if wait not in costly]
    if free:
        lines.append("cost nothing: " + ", ".join(free))
    return "\n".join(lines)


# Advice --------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Advice:
    """A thing that costs time or memory, where it stands, and what to do about it.

    ``seconds`` is what has been measured to be lost, at most, while events were kept; 0 if it is memory.
    """

    problem: str
    location: str
    remedy: str
    seconds: float = 0.0

    def __str__(self) -> str:
        saving = f" (saves up to {_milliseconds(self.seconds)})" if self.seconds else ""
        return f"{_place(self.location)}: {self.problem}{saving}\n    {self.remedy}"


def _remedy_for_read(source: str) -> str:
    if _PRINTS.search(source):
        return "print every n-th step, or keep the tensors and print them later, all at once"
    if source.startswith(("if ", "elif ", "while ", "assert ")):
        return "a condition on a tensor waits for it: let torch.where choose, or look only every n-th step"
    if "clip_grad_norm_" in source:
        return "error_if_nonfinite=True reads the norm: leave it out, or check every n-th step"
    return "read it later, or every n-th step; add_step_closure() puts reading off to the end of a step"


def _on_reads(found: list[Event]) -> Iterable[Advice]:
    for wait in _waits(found):
        if wait.cause in _RESULTS and wait.seconds - wait.compiling > _NOTHING * wait.times:
            problem = f"waits for results ({wait.cause}), {wait.times} time(s)"
            lost = wait.seconds - wait.compiling
            yield Advice(problem, wait.location, _remedy_for_read(source_of(wait.location)), lost)


def _on_fallbacks(found: list[Event]) -> Iterable[Advice]:
    seconds: dict[tuple[str, str, str], float] = collections.defaultdict(float)
    for event in found:
        if event.kind == "fallback":
            seconds[event.location, event.cause, event.detail] += event.duration
    for (location, op, reason), lost in seconds.items():
        remedy = (
            "compute with masks and torch.where instead of sizes that depend on data, or do it once, before the loop"
        )
        if reason == "forced":
            remedy = "the setting force_fallback asks for it: config.set_force_fallback('') takes that back"
        elif "depends on data" not in reason:
            remedy = "use an op that can be recorded, or do it once, before the loop"
        yield Advice(f"{op} runs on the CPU at once and waits for its operands: {reason}", location, remedy, lost)


def _on_compiles(found: list[Event]) -> Iterable[Advice]:
    compiles: dict[str, list[Event]] = {}
    for event in found:
        if event.kind == "compile" and event.cause != "first":
            compiles.setdefault(event.cause, []).append(event)
    for alike in compiles.values():
        detail = alike[-1].detail
        location = _line_in(detail, "now:") or alike[-1].location
        remedy = detail.rpartition("what helps: ")[2].split("\n")[0]
        what = detail.partition("but differs in its ")[2].split("\n")[0]
        seconds = sum(event.duration for event in alike)
        yield Advice(f"{len(alike)} graph(s) compiled again, the last one for its {what}", location, remedy, seconds)


def _line_in(explanation: str, field: str) -> str:
    """The first of the user's lines in a field of an explanation."""
    text = explanation.partition(field)[2].split("\n")[0]
    for word in text.replace(",", " ").split():
        file, _, line = word.rpartition(":")
        if file and line.isdigit():
            return word
    return ""


def _on_kernels(found: list[Event]) -> Iterable[Advice]:
    seconds: dict[tuple[str, str], float] = collections.defaultdict(float)
    for event in found:
        for name, location, duration in event.ops:
            seconds[name, location] += duration
    if len(seconds) < 4:
        return
    (name, location), most = max(seconds.items(), key=lambda item: item[1])
    share = most / sum(seconds.values())
    if share > 1 / 3:
        problem = f"{name} takes {share:.0%} of the time of all kernels"
        yield Advice(problem, location, "a smaller size or dtype, or another formula, saves most here", most)


def _growth(used: list[int]) -> float:
    """Bytes a step by which memory grows for good, or 0: the least of the last third is above the most of the first."""
    third = len(used) // 3
    if third < 2:
        return 0.0
    return max(0.0, (min(used[-third:]) - max(used[:third])) / (len(used) - third))


def _on_leaks(found: list[Event]) -> Iterable[Advice]:
    steps = [event for event in found if event.kind == "step"]
    line = step_line(event.location for event in steps)
    growth = _growth([event.allocated for event in steps if event.location == line])
    if growth == 0:
        return
    alive = [tensor for tensor in gc.get_objects() if issubclass(type(tensor), torch.Tensor)]
    lines = collections.Counter(_C._lazy._origin_of(tensor) or "" for tensor in alive)
    del lines[""]
    for location, count in lines.most_common(1):
        problem = f"memory grows by {growth:.0f} bytes a step; {count} tensors made here are alive"
        remedy = "what is kept of a step keeps all that it was computed from: keep tensor.detach() or tensor.item()"
        yield Advice(problem, location, remedy)


def advice() -> list[Advice]:
    """What has cost most since ``clear_events()``, and how to avoid it: only what was measured, the costliest first.

    Looks at reads that waited, ops that fell back, graphs that were compiled again, single ops that take most of the
    time, and memory that grows from step to step. Needs the setting ``debug``; without events, there is none.
    """
    found = journal()
    looks = (_on_reads, _on_fallbacks, _on_compiles, _on_kernels, _on_leaks)
    return sorted((one for look in looks for one in look(found)), key=lambda one: -one.seconds)
