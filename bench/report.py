"""Tables of results: one of the cases, with bars and marks where they are missed, and one of geometric means.

    python bench/report.py build/bench.json                # as the runner prints them at its end
    python bench/report.py build/bench.json --markdown     # as docs/performance.md has them; several files are one run
    python bench/report.py build/bench.json --markdown --side-by-side    # one table of the cases for all threads

A speed is the reference's time ÷ the contestant's, with the 10th and 90th percentile of the rounds; CPU time is the
contestant's ÷ the reference's.
"""

import argparse
import collections
import dataclasses
import json
import statistics
from pathlib import Path

import bars
from process import kind_of
from rounds import Failure, Row

MISSED = "missed"


# Files ---------------------------------------------------------------------------------------------------------------


def save(path, outcomes):
    """Rows and failures, as JSON."""
    path.write_text(json.dumps([dataclasses.asdict(outcome) for outcome in outcomes], indent=1) + "\n")


def load(paths):
    """Rows and failures."""
    entries = [entry for path in paths for entry in json.loads(path.read_text())]
    return [(Failure if "error" in entry else Row)(**entry) for entry in entries]


def sorted_out(outcomes):
    """Rows, and failures."""
    failures = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    return [outcome for outcome in outcomes if outcome not in failures], failures


# While it is measured ------------------------------------------------------------------------------------------------

HEADER = (
    f"{'case':44} {'ref. ms':>9} {'speed':>6}  {'p10 - p90':13} {'CPU':>5} {'compiles':>8} {'fallb.':>7} "
    f"{'at once':>7} {'late':>4} {'faults':>8} {'ref.':>8} {'1st ms':>8} {'ref.':>8} {'peak MB':>8} {'ref.':>8}  "
    "contestant"
)


def optional(value, width=8):
    return f"{'' if value is None else f'{value:.1f}':>{width}}"


def line(outcome):
    return reason(outcome) if isinstance(outcome, Failure) else figures(outcome)


def figures(row):
    between = f"{row.speed_p10:.2f} - {row.speed_p90:.2f}"
    work = f"{row.compiles:8.3f} {row.fallbacks:7.2f} {row.at_once:7.1f} {row.late:4} {row.faults:8.1f}"
    memory = f"{optional(row.peak_mb)} {optional(row.reference_peak_mb)}"
    return (
        f"{row.case:44} {row.reference_ms:9.3f} {row.speed:6.2f}  {between:13} {row.cpu:5.2f} {work} "
        f"{optional(row.reference_faults)} {row.first_ms:8.1f} {row.reference_first_ms:8.1f} {memory}  {row.contestant}"
    )


def reason(failure):
    """The last line of a traceback."""
    return f"{failure.case}: {failure.contestant} failed: {failure.error.strip().splitlines()[-1]}"


# Tables --------------------------------------------------------------------------------------------------------------


def plain(table):
    """Columns below each other."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join("  ".join(map(str.ljust, cells, widths)).rstrip() for cells in table)


def markdown(table):
    lines = [f"| {' | '.join(cells)} |" for cells in table]
    return "\n".join([lines[0], "|" + "---|" * len(table[0]), *lines[1:]])


def bar_cells(judged):
    """The bars, with values that stand nowhere else, and whether one is missed."""
    texts = [f"{bar}" if bar.is_of_speed() else f"{bar} ({value:.2f})" for bar, value in judged]
    return [", ".join(texts), MISSED * any(not bar.is_reached(value) for bar, value in judged)]


def speed_cells(row):
    if row is None:
        return ["", ""]
    return [f"{row.speed:.2f} ({row.speed_p10:.2f} - {row.speed_p90:.2f})", f"{row.cpu:.2f}"]


def case_line(case, names, rows):
    """Of one case at one number of threads: a speed and CPU time by each contestant, and the device's bars."""
    mine = {row.contestant: row for row in rows if row.case == case}
    reference_ms = [f"{row.reference_ms:.3f}" for row in mine.values()][:1] or [""]
    speeds = [cell for name in names for cell in speed_cells(mine.get(name))]
    device = next((row for row in mine.values() if kind_of(row.contestant) == "lazy"), None)
    return [case, *reference_ms, *speeds, *bar_cells(bars.judged(device, rows) if device else [])]


def case_table(rows, failures):
    """Of all cases at one number of threads. Where a contestant failed, its cells are empty."""
    names = list(dict.fromkeys(row.contestant for row in rows))
    cases = dict.fromkeys(outcome.case for outcome in [*rows, *failures])
    header = ["case", f"{rows[0].reference} ms", *(title for name in names for title in (name, "CPU")), "bars", ""]
    return [header, *(case_line(case, names, rows) for case in cases)]


def threads_cells(row, rows):
    """Of one case at one number of threads, and whether a bar is missed."""
    if row is None:
        return ["", "", "", ""]
    return [f"{row.reference_ms:.3f}", f"{row.speed:.2f}", f"{row.cpu:.2f}", bar_cells(bars.judged(row, rows))[-1]]


def threads_table(own, rows):
    """Of the device's rows, with the numbers of threads beside each other."""
    numbers = list(dict.fromkeys(row.threads for row in own))
    of = {(row.case, row.threads): row for row in own}
    names = [f"{number} thread{'s' * (number > 1)}" for number in numbers]
    header = ["case", *(title for name in names for title in (f"{own[0].reference} ms", name, "CPU", ""))]
    cases = dict.fromkeys(row.case for row in own)
    return [
        header,
        *([case, *(c for n in numbers for c in threads_cells(of.get((case, n)), rows))] for case in cases),
    ]


def mean_line(title, group, rows):
    """Of one contestant's rows in a group."""
    worst = min(group, key=lambda row: row.speed)
    mean, cpu = (statistics.geometric_mean(getattr(row, name) for row in group) for name in ("speed", "cpu"))
    slower = f"{sum(row.speed < 1 for row in group)} of {len(group)}"
    return [
        *(title, str(group[0].threads), group[0].contestant, f"{mean:.2f}", f"{worst.speed:.2f} ({worst.case})"),
        *(slower, f"{cpu:.2f}", *bar_cells(bars.judged_means(title, group, rows))),
    ]


def mean_table(rows):
    """Geometric means of groups of cases, by contestant and number of threads."""
    table = [["cases", "threads", "contestant", "geometric mean", "worst", "slower", "CPU", "bars", ""]]
    for title, cases in bars.GROUPS.items():
        groups = collections.defaultdict(list)
        for row in rows:
            if bars.belongs(row, cases):
                groups[row.threads, row.contestant].append(row)
        table += [mean_line(title, group, rows) for group in groups.values()]
    return table


def titled_tables(rows, failures, side_by_side=False):
    """Pairs: the means, and the cases at each number of threads."""
    if rows:
        yield "geometric means", mean_table(rows)
    if side_by_side:
        own = [row for row in rows if kind_of(row.contestant) == "lazy"]
        if own:
            yield "cases", threads_table(own, rows)
        return
    for threads in dict.fromkeys(row.threads for row in rows):
        mine, missing = ([o for o in outcomes if o.threads == threads] for outcomes in (rows, failures))
        yield f"{threads} intra-op thread{'s' * (threads > 1)}", case_table(mine, missing)


def show(rows, failures, render=plain, side_by_side=False):
    for title, table in titled_tables(rows, failures, side_by_side):
        print(f"\n{title}\n\n{render(table)}")
    if failures:
        print("", *map(reason, failures), sep="\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--markdown", action="store_true", help="only the tables, for a document")
    parser.add_argument("--side-by-side", action="store_true", help="the device's cases in one table for all threads")
    options = parser.parse_args()
    outcomes = load(options.files)
    if not options.markdown:
        print(HEADER, *map(line, outcomes), sep="\n")
    rows, failures = sorted_out(outcomes)
    show(rows, failures, markdown if options.markdown else plain, options.side_by_side)


if __name__ == "__main__":
    main()
