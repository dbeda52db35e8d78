"""What the plugin has done so far: counters and timers by name."""

import collections

from torch_lazyplug import _C

__all__ = [
    "counter_names",
    "counter_value",
    "executed_fallback_ops",
    "metric_data",
    "metric_names",
    "metrics_report",
    "reset",
    "short_report",
]


def metrics_report() -> str:
    """A report on every metric, several lines for each.

    With the setting ``debug``, followed by the user's lines that caused syncs and fallbacks, and how often.
    """
    return _C._metrics.metrics_report() + _lines_report()


def _lines_report() -> str:
    events = ((event["kind"], event["cause"], event["location"]) for event in _C._lazy._journal())
    lines = collections.Counter(event for event in events if event[2])
    return "".join(
        f"Line: {location}\n  {kind}, {cause}: {count}\n" for (kind, cause, location), count in lines.most_common()
    )


def short_report() -> str:
    """A report on every metric, one line for each."""
    return _C._metrics.short_report()


def counter_names() -> list[str]:
    """The counters that have counted something since the last reset, in alphabetical order."""
    return _C._metrics.counter_names()


def counter_value(name: str) -> int | None:
    """The value of a counter; ``None`` if none of that name has counted something since the last reset."""
    return _C._metrics.counter_value(name)


def metric_names() -> list[str]:
    """The timers that have measured something since the last reset, in alphabetical order."""
    return _C._metrics.timer_names()


def metric_data(name: str) -> dict[str, int] | None:
    """What a timer has seen since the last reset, ``count``, ``total_ns``, ``min_ns`` and ``max_ns``, or ``None``."""
    stats = _C._metrics.timer_stats(name)
    if stats is None:
        return None
    return {field: getattr(stats, field) for field in ("count", "total_ns", "min_ns", "max_ns")}


def executed_fallback_ops() -> list[str]:
    """The ops that ran eagerly on the CPU because they could not, or must not, be recorded."""
    return [name for name in counter_names() if "::" in name and not name.startswith("lazy::")]


def reset() -> None:
    """Sets every metric to zero, and forgets the events of ``debug.events``."""
    _C._metrics.reset()
    _C._lazy._clear_journal()
