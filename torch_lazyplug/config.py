"""The plugin's settings. Each is a flag of one C++ registry, and takes its first value from the environment."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from torch_lazyplug import _C, journal

__all__ = [
    "changed",
    "describe",
    "get",
    "get_debug",
    "get_fallback",
    "get_force_fallback",
    "get_launch_blocking",
    "get_reuse_ir",
    "get_symbolic_shape_mode",
    "names",
    "set",
    "set_debug",
    "set_fallback",
    "set_force_fallback",
    "set_launch_blocking",
    "set_reuse_ir",
    "set_symbolic_shape_mode",
]

FlagValue = bool | int | str


def names() -> list[str]:
    """The names of all flags."""
    return _C._config.names()


def get(name: str) -> FlagValue:
    """The value of a flag. Raises ``ValueError`` if there is none of that name."""
    return _C._config.get(name)


def set(name: str, value: FlagValue) -> None:
    """Changes a flag. Raises ``ValueError``, and changes nothing, for an unknown name or a forbidden value."""
    _C._config.set(name, str(value))
    if name == "debug":
        journal.watch_steps(bool(get(name)))


@contextlib.contextmanager
def changed(values: Mapping[str, FlagValue]) -> Iterator[None]:
    """Changes flags for the length of a block. Raises what ``set`` raises, and then changes nothing either."""
    before = {name: get(name) for name in values}
    try:
        for name, value in values.items():
            set(name, value)
        yield
    finally:
        for name, value in before.items():
            set(name, value)


def describe() -> dict[str, dict[str, Any]]:
    """Of each flag: its ``value``, what it does (``doc``) and the environment variables that set it (``env``)."""
    return {name: {"value": get(name), "doc": _C._config.doc(name), "env": _C._config.env(name)} for name in names()}


def get_force_fallback() -> str:
    """The ops that always run eagerly on the CPU."""
    return _C._lazy._get_force_fallback()


def set_force_fallback(configval: str) -> None:
    """Makes ops run eagerly on the CPU: names or globs separated by commas, as in ``aten::add.Tensor,aten::conv*``.

    ``all`` selects every op. Warns of a name that selects none. Takes effect for ops called from now on.
    """
    _C._lazy._set_force_fallback(configval)


def get_fallback() -> str:
    """What happens to ops that cannot be recorded."""
    return str(get("fallback"))


def set_fallback(mode: str) -> None:
    """``silent`` or ``warn``: such ops run on the CPU; ``error``: they raise."""
    set("fallback", mode)


def get_debug() -> bool:
    """Whether causes and Python lines are kept."""
    return bool(get("debug"))


def set_debug(enabled: bool) -> None:
    """Keeps causes and Python lines of what is recorded from now on."""
    set("debug", enabled)


def get_launch_blocking() -> bool:
    """Whether every op runs at once."""
    return bool(get("launch_blocking"))


def set_launch_blocking(enabled: bool) -> None:
    """Runs every op when it is called and waits for it, so that errors that depend on values raise at their line."""
    set("launch_blocking", enabled)


def get_reuse_ir() -> bool:
    """Whether calls are predicted from the last time that the program came by."""
    return _C._lazy._get_reuse_ir()


def set_reuse_ir(val: bool) -> None:
    """Switches the prediction of calls on or off; results are the same."""
    set("reuse_ir", val)


def get_symbolic_shape_mode() -> bool:
    """Whether sizes are expected to change from step to step."""
    return _C._lazy._get_symbolic_shape_mode()


def set_symbolic_shape_mode(val: bool) -> None:
    """Says that sizes change from step to step: after two graphs that differ in sizes only, calls with new sizes run at
    once on the CPU, instead of after ``max_size_variants``. Sizes remain constants of a graph."""
    set("symbolic_shape_mode", val)
