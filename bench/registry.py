"""The cases of the benchmarks: named functions that prepare something on a device, and return a step to be repeated."""

import dataclasses
import importlib
from collections.abc import Callable

# The modules that register the cases of a suite.
SUITES = {
    "ops": ("lines", "kernels"),
    "models": ("steps",),
    "programs": ("programs",),
    "libraries": ("library_models",),
}


@dataclasses.dataclass(frozen=True)
class Case:
    """`make(device)` returns the step. It is run `warm_up` times, so that the device's plans of it are settled, then in
    blocks of `block` steps (None: of as many as take a while). `random`: its results depend on the device's random
    numbers. `rtol`: how near two devices must be. `rivals`: contestants that only this case has. `host`: steps are
    timed alone, and what they leave to be computed is computed outside of the timing."""

    name: str
    make: Callable
    warm_up: int = 60
    block: int | None = None
    random: bool = False
    rtol: float = 0.0
    rivals: tuple = ()
    host: bool = False


CASES: dict[str, Case] = {}


def add(name, make, **options):
    assert name not in CASES, f"two cases are called {name!r}"
    CASES[name] = Case(name, make, **options)


def case(name=None, **options):
    """Registers the function below it, under its own name unless told."""

    def register(make):
        add(name or make.__name__.replace("_", " "), make, **options)
        return make

    return register


def load(suite):
    """Registers and returns the cases of a suite."""
    before = set(CASES)
    for module in SUITES[suite]:
        importlib.import_module(module)
    return [case for name, case in CASES.items() if name not in before]
