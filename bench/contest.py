"""Compares contestants, each in processes of its own, which work in turn while the others sleep.

A contestant is `eager` (PyTorch without the plugin), `lazy` or `compile` (Inductor, on the CPU), with settings
for its environment if wanted: `lazy:LAZYPLUG_CHUNK_NODES=64,LAZYPLUG_MEMORY_CACHE=0`. The first is what the others are
compared with. A round is a block of the same steps by each of them, and who begins alternates. The median of the
rounds' ratios is reported, with the 10th and 90th percentile: above 1, the contestant is faster.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import re
import select
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BENCH = Path(__file__).resolve().parent
BLOCK_SECONDS = 0.15
SETTLE_SECONDS = 0.01  # threads that spin for work have gone to sleep then
PATIENCE_SECONDS = 300


class Failed(Exception):
    """A contestant could not do what it was asked."""


# Processes -----------------------------------------------------------------------------------------------------------


def environment(kind, settings, threads):
    variables = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, (str(BENCH.parent), os.environ.get("PYTHONPATH"))))
    variables["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "1" if kind == "lazy" else "0"
    if threads != "default":
        variables["OMP_NUM_THREADS"] = threads
    return variables | settings


class Process:
    """A contestant that is started when it is first asked, and again if it has died."""

    def __init__(self, name, modules, threads):
        self.name = name
        self.threads = 0
        kind, _, settings = name.partition(":")
        self._command = [sys.executable, str(BENCH / "contestant.py"), kind, *modules]
        self._environment = environment(kind, dict(s.split("=", 1) for s in settings.split(",") if s), threads)
        self._process = None

    def hello(self):
        """Learns its number of threads, and returns its cases."""
        reply = self.ask("hello")
        self.threads = reply["threads"]
        return reply["cases"]

    def ask(self, request, **arguments):
        """What it answers. Failed, if that is an error, or nothing."""
        if self._process is None:
            self._start()
        reply = self._exchange(json.dumps({"do": request, **arguments}))
        if "error" in reply:
            raise Failed(f"{self.name}: {reply['error']}")
        return reply

    def stop(self):
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _start(self):
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (until the process ends)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._errors}
        self._process = subprocess.Popen(self._command, env=self._environment, text=True, **pipes)

    def _exchange(self, line):
        try:
            print(line, file=self._process.stdin, flush=True)
            ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE_SECONDS)
            return json.loads(self._process.stdout.readline() if ready else "")
        except (BrokenPipeError, json.JSONDecodeError):
            raise Failed(self._last_words()) from None

    def _last_words(self):
        process = self._process
        self.stop()
        self._errors.seek(0)
        return f"{self.name}: no answer, ended with {process.returncode}\n{self._errors.read()[-4000:]}"


# Rounds --------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Row:
    """One contestant on one case. Ratios are medians of rounds; counts are per step of the measured rounds."""

    case: str
    contestant: str
    threads: int
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
    first_ms: float
    reference_first_ms: float
    reference_rounds_ms: list  # of a step, in each round
    rounds_ms: list


def run_case(case, processes, rounds):
    """The rows of all contestants but the first."""
    firsts = [process.ask("build", case=case["name"])["seconds"] for process in processes]
    steps = warm_up(case, processes)
    blocks = [[] for _ in processes]
    for number in range(rounds):
        for index in sorted(range(len(processes)), reverse=number % 2):
            time.sleep(SETTLE_SECONDS)
            blocks[index].append(processes[index].ask("run", steps=steps))
    for process in processes:
        process.ask("drop")
    return [
        summary(case, processes[i], steps, blocks[0], blocks[i], firsts[0], firsts[i]) for i in range(1, len(blocks))
    ]


def warm_up(case, processes):
    """Runs the first steps. Returns how many make a block."""
    seconds = []
    for process in processes:
        process.ask("run", steps=case["warm_up"] // 2)
        seconds.append(process.ask("run", steps=max(1, case["warm_up"] // 2))["seconds"])
    return case["block"] or max(1, round(BLOCK_SECONDS * max(1, case["warm_up"] // 2) / seconds[0]))


def spread(ratios):
    """The median, and the 10th and 90th percentile."""
    if len(ratios) == 1:
        return (ratios[0],) * 3
    tenths = statistics.quantiles(ratios, n=10, method="inclusive")
    return statistics.median(ratios), tenths[0], tenths[-1]


def summary(case, process, steps, reference, blocks, reference_first, first):
    def ratios(name):
        """The contestant's share of what the reference takes, in each round."""
        return [b[name] / r[name] for b, r in zip(blocks, reference, strict=True)]

    def per_step(name):
        return sum(block.get(name, 0) for block in blocks) / len(blocks) / steps

    return Row(
        case["name"],
        process.name,
        process.threads,
        steps,
        statistics.median(block["seconds"] for block in reference) / steps * 1e3,
        *spread([1 / ratio for ratio in ratios("seconds")]),
        statistics.median(ratios("cpu")),
        *map(per_step, ("compiles", "fallbacks", "at_once", "faults")),
        late=blocks[-1]["late"],
        first_ms=first * 1e3,
        reference_first_ms=reference_first * 1e3,
        reference_rounds_ms=[block["seconds"] / steps * 1e3 for block in reference],
        rounds_ms=[block["seconds"] / steps * 1e3 for block in blocks],
    )


def run_cases(cases, processes, options):
    """Yields rows. A case that fails is named, and its contestants start anew."""
    for case in cases:
        try:
            yield from run_case(case, processes, options.rounds)
        except Failed as failure:
            print(f"{case['name']}: FAILED\n{failure}", file=sys.stderr, flush=True)
            options.failed.append(case["name"])
            stop(processes)
        if options.fresh:
            stop(processes)


def stop(processes):
    for process in processes:
        process.stop()


# Report --------------------------------------------------------------------------------------------------------------


def print_header(options, threads):
    load = os.getloadavg()[0]
    print(
        f"\n{threads} intra-op threads; {options.contestants[0]} / contestant; load {load:.1f}{options.busy * ', busy'}"
    )
    print(
        f"{'case':40} {'ref. ms':>9} {'speed':>6}  {'p10 - p90':13} {'CPU':>5} {'compiles':>8} {'fallb.':>7} "
        f"{'at once':>7} {'late':>4} {'faults':>8} {'1st ms':>8} {'ref. 1st':>8}  contestant"
    )


def print_row(row):
    between = f"{row.speed_p10:.2f} - {row.speed_p90:.2f}"
    work = f"{row.compiles:8.3f} {row.fallbacks:7.2f} {row.at_once:7.1f} {row.late:4} {row.faults:8.1f}"
    print(
        f"{row.case:40} {row.reference_ms:9.3f} {row.speed:6.2f}  {between:13} {row.cpu:5.2f} "
        f"{work} {row.first_ms:8.1f} {row.reference_first_ms:8.1f}  {row.contestant}",
        flush=True,
    )


def print_summary(rows, failed):
    for contestant in dict.fromkeys(row.contestant for row in rows):
        mine = [row for row in rows if row.contestant == contestant]
        worst = min(mine, key=lambda row: row.speed)
        mean = statistics.geometric_mean(row.speed for row in mine)
        cpu = statistics.geometric_mean(row.cpu for row in mine)
        slower = sum(row.speed < 1 for row in mine)
        print(
            f"{contestant}: geometric mean {mean:.2f} of {len(mine)} cases, {slower} below 1, "
            f"worst {worst.speed:.2f} ({worst.case}); CPU time {cpu:.2f}"
        )
    if failed:
        print("failed:", ", ".join(failed))


# Command line --------------------------------------------------------------------------------------------------------


def parse_arguments(description):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("contestants", nargs="*", default=["eager", "lazy"], help="the first is the reference")
    parser.add_argument("--filter", default="", metavar="REGEX", help="cases whose name contains it")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--threads", action="append", metavar="N", help="a number, or 'default'; may be repeated (1, default)"
    )
    parser.add_argument("--busy", action="store_true", help="another process keeps a core busy")
    parser.add_argument("--taskset", metavar="CPUS", help="the processors to run on, as 0,1")
    parser.add_argument("--fresh", action="store_true", help="new processes for every case")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to it, too")
    parser.add_argument("--list", action="store_true", help="only print the names of the cases")
    options = parser.parse_args()
    options.threads = options.threads or ["1", "default"]
    options.failed = []
    return options


@contextlib.contextmanager
def spinning(wanted):
    """Another process that never sleeps."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if wanted else None
    try:
        yield
    finally:
        if process:
            process.kill()
            process.wait()


def compete(modules, threads, options):
    """Prints and returns the rows for one number of threads."""
    processes = [Process(name, modules, threads) for name in options.contestants]
    try:
        cases = [c for c in [p.hello() for p in processes][0] if re.search(options.filter, c["name"])]
        if options.list:
            print(*(case["name"] for case in cases), sep="\n")
        if options.list or not cases:
            return []
        print_header(options, processes[0].threads)
        rows = []
        for row in run_cases(cases, processes, options):
            print_row(row)
            rows.append(row)
        print_summary(rows, options.failed)
        return rows
    finally:
        stop(processes)


def main(modules, description):
    """Runs the cases of modules as the command line says. Returns the exit code."""
    options = parse_arguments(description)
    if options.taskset:
        os.sched_setaffinity(0, {int(cpu) for cpu in options.taskset.split(",")})
    rows = []
    with spinning(options.busy):
        for threads in options.threads[: 1 if options.list else None]:
            rows += compete(modules, threads, options)
    if options.json:
        options.json.write_text(json.dumps([dataclasses.asdict(row) for row in rows], indent=1) + "\n")
    return 1 if options.failed else 0
