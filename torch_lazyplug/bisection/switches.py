"""Settings that leave something out which a graph's results must not depend on."""

import dataclasses
from typing import Any

from torch_lazyplug import config

__all__ = ["PASSES", "Switch", "switches"]

# What ``disabled_passes`` may name.
PASSES = (
    "dead_code",
    "no_op_copies",
    "identities",
    "common_subexpressions",
    "pure_writes",
    "fusion",
    "foreach_groups",
    "destinations",
)

# Of when, and by which ways, ops run; from the least to the greatest change.
_SCHEDULES: tuple[tuple[str, Any], ...] = (
    ("overlap", "never"),
    ("reuse_ir", False),
    ("backward_pass", False),
    ("memory_cache", False),
    ("schedule", "never"),
    ("launch_blocking", True),
)

# Names of what changes several settings, as a finding reads: "without any pass", "with everything off".
_ANY_PASS, _EVERYTHING = "any pass", "everything off"


@dataclasses.dataclass(frozen=True)
class Switch:
    """Settings to try. If they mend a program, ``name`` is to blame for ``kind``, the kind of a finding."""

    kind: str
    name: str
    settings: dict[str, Any]

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.settings.items()) if self.is_single else self.name

    @property
    def is_single(self) -> bool:
        """Whether it changes one setting, by one pass if that is ``disabled_passes``."""
        return self.name not in (_ANY_PASS, _EVERYTHING)


def switches() -> list[Switch]:
    """What to try: each pass, fusion by its own flag, each way of scheduling, all passes, and everything at once.

    A setting that is as it would be switched already is left out.
    """
    passes = [Switch("pass", name, _without([name])) for name in PASSES]
    fusion = Switch("pass", "fusion", {"fusion": 0})
    schedules = [Switch("schedule", f"{name}={value}", {name: value}) for name, value in _SCHEDULES]
    no_pass = {**_without(PASSES), "fusion": 0}
    together = [
        Switch("pass", _ANY_PASS, no_pass),
        Switch("schedule", _EVERYTHING, {**no_pass, **dict(_SCHEDULES)}),
    ]
    return [switch for switch in (*passes, fusion, *schedules, *together) if _changes_anything(switch.settings)]


def _without(names: Any) -> dict[str, Any]:
    disabled = [name for name in str(config.get("disabled_passes")).split(",") if name]
    return {"disabled_passes": ",".join(dict.fromkeys([*disabled, *names]))}


def _changes_anything(settings: dict[str, Any]) -> bool:
    return any(config.get(name) != value for name, value in settings.items())
