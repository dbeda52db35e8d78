"""Where the time of a step goes, for each case: recording, waiting, kernels by kind, and what is around them.

    python bench/step_profile.py --filter 'GPT-2|MLP' --threads 1 --json build/profile.json

Of this device, in a process of its own, beside eager's time for the same step. The breakdown (`breakdown.py`) is taken
with the setting `debug`, which makes recording dearer: `step` is without, `of` is the step that the columns right of it
describe. All times are milliseconds of a step.
"""

import argparse
import json
import re
import statistics
import sys
from pathlib import Path

import breakdown
import report
from process import Failed, Process
from registry import SUITES
from rounds import Entry, begin, drop, run_block

PROGRAM = ("recording", "own runs", "asleep")
RUNS = ("workers", "around kernels", "compiling")
KERNELS = (*breakdown.KINDS, "pointwise", "other")
COUNTS = ("kernels", "runs", "waits", "faults")
COLUMNS = ("case", "threads", "eager", "step", "CPU", "of", *PROGRAM, *RUNS, *KERNELS, *COUNTS)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", action="append", choices=SUITES, dest="suites", help="may be repeated (models)")
    parser.add_argument("--filter", default="", metavar="REGEX", help="cases whose name contains it")
    parser.add_argument("--threads", action="append", metavar="N", help="a number, or 'default'; may be repeated (1)")
    parser.add_argument("--rounds", type=int, default=3, help="of the steps without a breakdown")
    parser.add_argument("--set", default="", metavar="NAME=VALUE,...", help="settings of the device's environment")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--markdown", action="store_true", help="for a document")
    options = parser.parse_args()
    options.suites, options.threads = options.suites or ["models"], options.threads or ["1"]
    return options


def median(entry, name, steps):
    return statistics.median(block[name] for block in entry.blocks) / steps


def profile(case, eager, lazy, rounds):
    """A row's figures by column. Failed, if one of the processes cannot run the case."""
    entries = [Entry(eager), Entry(lazy)]
    for entry in entries:
        begin(entry, case)
    steps = max(1, round(0.3 / entries[0].step_seconds))
    for _ in range(rounds):
        for entry in entries:
            run_block(entry, steps)
    figures = lazy.ask("profile", steps=steps)
    for entry in entries:
        drop(entry)
    own = {"case": case["name"], "eager": median(entries[0], "seconds", steps) * 1e3, "of": figures.pop("step")}
    return (
        own
        | figures
        | {
            "step": median(entries[1], "seconds", steps) * 1e3,
            "CPU": median(entries[1], "cpu", steps) * 1e3,
            "faults": median(entries[1], "faults", steps),
        }
    )


def cell(value):
    if isinstance(value, float):
        return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 100 else f"{value:.0f}"
    return str(value)


def cells(row):
    return [cell(row[name]) if row.get(name) else "" for name in COLUMNS]


def measure(options):
    """Yields rows of figures, and failures. After one, the processes start anew."""
    for threads in options.threads:
        eager = Process("eager", options.suites, threads)
        lazy = Process(f"lazy:{options.set}", options.suites, threads)
        try:
            hello = eager.ask("hello")
            for case in hello["cases"]:
                if re.search(options.filter, case["name"]) and not case["host"]:
                    try:
                        yield profile(case, eager, lazy, options.rounds) | {"threads": hello["threads"]}
                    except Failed as failure:
                        yield failure
                        eager.stop()
                        lazy.stop()
        finally:
            eager.stop()
            lazy.stop()


def main():
    options = parse_arguments()
    rows, failures = [], []
    for row in measure(options):
        if isinstance(row, Failed):
            failures.append(row)
            print(row, flush=True)
            continue
        rows.append(row)
        print(f"{row['case']}: {row['step']:.2f} ms", flush=True)
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1) + "\n")
    table = [list(COLUMNS), *map(cells, rows)]
    print(report.markdown(table) if options.markdown else report.plain(table))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
