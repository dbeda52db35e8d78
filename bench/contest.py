"""Compares contestants, each in processes of its own, which work in turn while the others sleep.

    python bench/contest.py --filter 'MLP|GPT-2' --threads 1 --rounds 5
    python bench/contest.py eager lazy lazy:LAZYPLUG_CHUNK_NODES=64 --suite programs --json build/bench.json
    python bench/contest.py --first --rounds 3 --filter 'GPT-2, training'

A contestant is `eager` (PyTorch without the plugin), `fused` (the same, but AdamW is one kernel for each parameter),
`compile` (Inductor, on the CPU), `torch_lazy` (PyTorch's own lazy device) or `lazy`, with settings for its environment
if wanted: `lazy:LAZYPLUG_CHUNK_NODES=64,LAZYPLUG_MEMORY_CACHE=0`. The first is what the others are compared with.
Suites are `ops`, `models` and `programs`; without a choice the former two, or all if a filter chooses. What a
contestant cannot do stays empty, and the reason is in the JSON.

Wall and CPU time, page faults and compilations are those of steps that have warmed up, in processes that run all cases.
The time to the first result and the peak of memory need a process that has done nothing else: with `--first`, each
round of each case is one of new processes, and these two figures are reported as well.
"""

import argparse
import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import plot
import report
from process import Process, kind_of
from registry import SUITES
from rounds import run_case, stop

CONTESTANTS = ["eager", "compile", "torch_lazy", "lazy"]
USUAL_SUITES = ["ops", "models"]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("contestants", nargs="*", default=CONTESTANTS, help="the first is the reference")
    parser.add_argument("--suite", action="append", choices=SUITES, dest="suites", help="may be repeated")
    parser.add_argument("--filter", default="", metavar="REGEX", help="cases whose name contains it")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--threads", action="append", metavar="N", help="a number, or 'default'; may be repeated (1, default)"
    )
    parser.add_argument("--first", action="store_true", help="new processes for every round: first result, memory")
    parser.add_argument("--busy", action="store_true", help="another process keeps a core busy")
    parser.add_argument("--taskset", metavar="CPUS", help="the processors to run on, as 0,1")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write rows and failures to it, too")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the ratios (needs matplotlib)")
    parser.add_argument("--list", action="store_true", help="only print the names of the cases")
    options = parser.parse_args()
    options.threads = options.threads or ["1", "default"]
    options.suites = options.suites or (list(SUITES) if options.filter else USUAL_SUITES)
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


@contextlib.contextmanager
def contestants(options, threads):
    """Processes by name, made when they are first asked for, and stopped in the end."""
    processes = {}

    def named(name):
        return processes.setdefault(name, Process(name, options.suites, threads))

    try:
        yield named
    finally:
        stop(processes.values())


def chosen_cases(hello, options):
    return [case for case in hello["cases"] if re.search(options.filter, case["name"])]


def names_of(case, options):
    """Of those who run a case."""
    return list(dict.fromkeys([*options.contestants, *case["rivals"]]))


def compete(threads, options):
    """Yields rows and failures for one number of threads."""
    with contestants(options, threads) as named:
        hello = named(options.contestants[0]).ask("hello")
        print(f"\n{hello['threads']} intra-op threads; load {os.getloadavg()[0]:.1f}{options.busy * ', busy'}")
        print(report.HEADER, flush=True)
        for case in chosen_cases(hello, options):
            processes = [named(name) for name in names_of(case, options)]
            yield from run_case(case, processes, hello["threads"], options.rounds, options.first)


def measure(options):
    """Prints, saves and returns rows and failures, each as soon as it is there."""
    outcomes = []
    with spinning(options.busy):
        for threads in options.threads:
            for outcome in compete(threads, options):
                print(report.line(outcome), flush=True)
                outcomes.append(outcome)
                if options.json:
                    report.save(options.json, outcomes)
    return outcomes


def print_cases(options):
    with contestants(options, options.threads[0]) as named:
        cases = chosen_cases(named(options.contestants[0]).ask("hello"), options)
    print(*(case["name"] for case in cases), sep="\n")


def matters(failure, options):
    """Peers may fail."""
    return failure.contestant == options.contestants[0] or kind_of(failure.contestant) == "lazy"


def main():
    options = parse_arguments()
    if options.taskset:
        os.sched_setaffinity(0, {int(cpu) for cpu in options.taskset.split(",")})
    if options.list:
        return print_cases(options)
    rows, failures = report.sorted_out(measure(options))
    report.show(rows, failures)
    if options.plot:
        plot.save(options.plot, rows)
    return 1 if any(matters(failure, options) for failure in failures) else 0


if __name__ == "__main__":
    sys.exit(main())
