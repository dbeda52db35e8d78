"""How the device runs a program: in which pieces, with which checks. Drawn from the program's seed."""

import contextlib
import random
from dataclasses import dataclass, replace

from python.passes import PASSES

from .prelude import mark_step


@dataclass(frozen=True)
class Mode:
    """The names and values of the device's flags; see common/config.cpp."""

    launch_blocking: bool = False
    schedule: str = ""
    scramble: int = 0
    chunk_nodes: int = 16
    verify_ir: bool = False
    small_call: int = 8192
    disabled_passes: str = ""
    fusion: int = 1
    assemble_after: int = 0
    side_calls: int = -1
    run_at_once: str = "never"
    compile: str = "always"

    def simpler(self):
        """Modes with one setting less."""
        for name, value in vars(Mode()).items():
            if getattr(self, name) != value:
                yield replace(self, **{name: value})

    def has_functions(self):
        """Of its own, with other bits than the CPU's."""
        return self.fusion == 3 and "fusion" not in self.disabled_passes.split(",")

    def uncut(self):
        """What the results have to be equal to, bit by bit."""
        plain = Mode(schedule="never", fusion=3 if self.has_functions() else 0, assemble_after=-1)
        same = ("chunk_nodes", "verify_ir", "small_call")
        return replace(plain, **{name: getattr(self, name) for name in same})


@contextlib.contextmanager
def applied(mode, device):
    """The device in that mode; at the end, everything that has been recorded meanwhile is done."""
    if device.startswith("lazy"):
        import torch_lazyplug

        for name, value in vars(mode).items():
            torch_lazyplug.config.set(name, value)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # of values that nobody has looked at
            mark_step(device, wait=True)


@dataclass(frozen=True)
class Campaign:
    """What the programs of one run of the fuzzer are."""

    kind: str = "short"  # "short", "training", or "mix", which draws modes too
    blocking: bool = False
    schedule: str = ""
    scramble: bool = False
    infer: str = "cpu"  # or "meta": who is asked how results lie

    def draw(self, seed):
        """Whether the program of this seed trains, and its mode."""
        rng = random.Random(f"mode {seed}")
        number = rng.randrange(1, 10**6)
        trains = self.kind == "training" or (self.kind == "mix" and rng.random() < 0.5)
        mode = _mixed(rng, number, trains) if self.kind == "mix" else self._fixed(number)
        return trains, replace(mode, small_call=0) if self.infer == "meta" else mode

    def _fixed(self, number):
        schedule = f"random:{number}" if self.schedule == "random" else self.schedule
        return Mode(self.blocking, schedule, self.scramble * number, verify_ir=True)


def _mixed(rng, number, trains):
    schedules = {"": 4, "never": 1, f"random:{number}": 5, f"every:{rng.choice([1, 2, 3, 5, 8, 13])}": 2}
    schedule = rng.choices(list(schedules), schedules.values())[0]
    blocking, scrambled, verify = (rng.random() < chance for chance in (0.1, 0.3, 0.2))
    mode = Mode(blocking, schedule, scrambled * number, rng.choice([1, 2, 4, 16]), verify)
    disabled = rng.choices(["", rng.choice(PASSES), ",".join(PASSES)], [5, 4, 1])[0]
    # Short programs must have the CPU's bits.
    fusion = rng.choices([0, 1, 2, 3], [1, 5, 4, 3 if trains else 0])[0]
    assemble_after, side_calls = rng.choice([0, 0, 2, -1]), rng.choice([0, 0, 100, -1])
    run_at_once = rng.choices(["never", "always"], [7, 1])[0]
    compiles = rng.choices(["always", "never"], [4, 1])[0]
    return replace(
        mode,
        disabled_passes=disabled,
        fusion=fusion,
        assemble_after=assemble_after,
        side_calls=side_calls,
        run_at_once=run_at_once,
        compile=compiles,
    )
