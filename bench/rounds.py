"""Rounds: the same block of steps by each contestant, in turn; who begins alternates.

What is reported is the median of the rounds' ratios, with the 10th and 90th percentile.
"""

import dataclasses
import statistics
import time

from process import Failed

BLOCK_SECONDS = 0.15
SETTLE_SECONDS = 0.01  # threads that spin for work have gone to sleep then
# A virtual machine's host takes pages away from a process that sleeps: what touches them first afterwards waits for
# milliseconds, eager or not, which is no part of a step. So a part of a block's steps is run before it is timed.
WAKE_SHARE = 10


@dataclasses.dataclass
class Row:
    """One contestant on one case. Ratios are medians of rounds; counts are per step of the measured rounds."""

    case: str
    contestant: str
    threads: int  # of the reference
    steps: int
    reference_ms: float
    speed: float  # reference's time / contestant's
    speed_p10: float
    speed_p90: float
    cpu: float  # contestant's CPU time / reference's
    compiles: float
    fallbacks: float
    at_once: float
    faults: float
    late: int  # compilations after the 50th step
    first_ms: float  # the first step, until its results are computed
    reference_first_ms: float
    reference_rounds_ms: list  # of a step, in each round
    rounds_ms: list
    suite: str = ""
    reference: str = "eager"
    reference_faults: float | None = None
    peak_mb: float | None = None  # what memory grows to while steps run; only where all processes were new
    reference_peak_mb: float | None = None


@dataclasses.dataclass
class Failure:
    """Why there is no row."""

    case: str
    contestant: str
    threads: int
    suite: str
    error: str


class Entry:
    """A contestant on one case: what it measured, or why it could not."""

    def __init__(self, process):
        self.process = process
        self.error = None
        self.step_seconds = BLOCK_SECONDS
        self.firsts, self.blocks = [], []

    def attempt(self, action, *arguments):
        """`action(self, ...)`, unless something has failed. After a failure its process starts anew."""
        if self.error is not None:
            return
        try:
            action(self, *arguments)
        except Failed as failure:
            self.error = str(failure)
            self.process.stop()


def begin(entry, case):
    """Builds the case and warms it up."""
    entry.firsts.append(entry.process.ask("build", case=case["name"])["seconds"])
    steps = max(1, case["warm_up"] // 2)
    entry.process.ask("run", steps=steps)
    entry.step_seconds = entry.process.ask("run", steps=steps)["seconds"] / steps


def run_block(entry, steps):
    time.sleep(SETTLE_SECONDS)
    entry.process.ask("wake", steps=max(1, steps // WAKE_SHARE))
    entry.blocks.append(entry.process.ask("run", steps=steps))


def drop(entry):
    entry.process.ask("drop")


def attempt_all(entries, action, *arguments):
    for entry in entries:
        entry.attempt(action, *arguments)


def run_case(case, processes, threads, rounds, fresh=False):
    """A row or a failure of each contestant but the first, with which the others are compared; of all of them, if that
    fails. `fresh`: each round is one of new processes."""
    entries = [Entry(process) for process in processes]
    steps = case["block"]
    for number in range(rounds):
        if fresh or number == 0:
            attempt_all(entries, begin, case)
            steps = steps or max(1, round(BLOCK_SECONDS / entries[0].step_seconds))
        if entries[0].error is not None:
            break
        attempt_all(entries[:: -1 if number % 2 else 1], run_block, steps)
        if fresh:
            stop(processes)
    if not fresh:
        attempt_all(entries, drop)
    return outcome(case, entries, threads, steps, fresh)


def stop(processes):
    for process in processes:
        process.stop()


def outcome(case, entries, threads, steps, fresh):
    """Rows, and failures."""
    reference, *others = entries
    if reference.error is not None:
        return [failure(case, entry, threads, reference.error) for entry in entries]
    return [
        failure(case, entry, threads, entry.error)
        if entry.error is not None
        else summary(case, entry, reference, threads, steps, fresh)
        for entry in others
    ]


def failure(case, entry, threads, error):
    return Failure(case["name"], entry.process.name, threads, case["suite"], error)


# Figures -------------------------------------------------------------------------------------------------------------


def spread(ratios):
    """The median, and the 10th and 90th percentile."""
    if len(ratios) == 1:
        return (ratios[0],) * 3
    tenths = statistics.quantiles(ratios, n=10, method="inclusive")
    return statistics.median(ratios), tenths[0], tenths[-1]


def step_ms(blocks, steps):
    """Milliseconds of a step, in each round."""
    return [block["seconds"] / steps * 1e3 for block in blocks]


def per_step(blocks, name, steps):
    return sum(block.get(name, 0) for block in blocks) / len(blocks) / steps


def ratios(blocks, reference, name):
    """The contestant's share of what the reference takes, in each round."""
    return [block[name] / other[name] for block, other in zip(blocks, reference, strict=True)]


def peak_mb(entry):
    return statistics.median(block["peak_mb"] for block in entry.blocks)


def summary(case, entry, reference, threads, steps, fresh):
    counts = {name: per_step(entry.blocks, name, steps) for name in ("compiles", "fallbacks", "at_once", "faults")}
    speeds = spread([1 / ratio for ratio in ratios(entry.blocks, reference.blocks, "seconds")])
    return Row(
        case=case["name"],
        contestant=entry.process.name,
        threads=threads,
        steps=steps,
        reference_ms=statistics.median(step_ms(reference.blocks, steps)),
        **dict(zip(("speed", "speed_p10", "speed_p90"), speeds, strict=True)),
        cpu=statistics.median(ratios(entry.blocks, reference.blocks, "cpu")),
        **counts,
        late=entry.blocks[-1]["late"],
        first_ms=statistics.median(entry.firsts) * 1e3,
        reference_first_ms=statistics.median(reference.firsts) * 1e3,
        reference_rounds_ms=step_ms(reference.blocks, steps),
        rounds_ms=step_ms(entry.blocks, steps),
        suite=case["suite"],
        reference=reference.process.name,
        reference_faults=per_step(reference.blocks, "faults", steps),
        peak_mb=peak_mb(entry) if fresh else None,
        reference_peak_mb=peak_mb(reference) if fresh else None,
    )
