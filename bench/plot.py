"""A picture of the ratios: a line for each case, a mark for each contestant, and the bars of this device."""

import bars

INCHES_PER_CASE = 0.22


def draw_contestant(axes, cases, rows):
    """Speeds, from the 10th to the 90th percentile."""
    places = [cases.index(row.case) for row in rows]
    speeds = [row.speed for row in rows]
    spread = [[row.speed - row.speed_p10 for row in rows], [row.speed_p90 - row.speed for row in rows]]
    axes.errorbar(speeds, places, xerr=spread, fmt="o", markersize=4, linewidth=1, label=rows[0].contestant)


def draw_bars(axes, cases, rows):
    """Of speeds against eager."""
    pairs = [
        (bar.limit, cases.index(row.case)) for row in rows for bar, _ in bars.judged(row, rows) if bar.is_of_speed()
    ]
    if pairs:
        axes.plot(*zip(*pairs, strict=True), "k|", markersize=9, label="bar")


def draw(axes, rows, threads):
    """All cases at one number of threads."""
    rows = [row for row in rows if row.threads == threads]
    cases = list(dict.fromkeys(row.case for row in rows))
    for name in dict.fromkeys(row.contestant for row in rows):
        draw_contestant(axes, cases, [row for row in rows if row.contestant == name])
    draw_bars(axes, cases, rows)
    axes.axvline(1, color="gray", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yticks(range(len(cases)), cases, fontsize=7)
    axes.set_ylim(len(cases) - 0.5, -0.5)
    axes.set_title(f"{rows[0].reference}'s time ÷ contestant's, threads: {threads}", fontsize=9)
    axes.legend(fontsize=7)


def save(path, rows):
    """Writes a picture, or says why not."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print(f"{path} is not drawn: matplotlib is missing (pip install -e '.[bench]')")
        return
    if not rows:
        return
    threads = list(dict.fromkeys(row.threads for row in rows))
    height = 1.5 + INCHES_PER_CASE * max(len({row.case for row in rows if row.threads == count}) for count in threads)
    figure = Figure((8 * len(threads), height), layout="constrained")
    for axes, count in zip(figure.subplots(1, len(threads), squeeze=False)[0], threads, strict=True):
        draw(axes, rows, count)
    figure.savefig(path, dpi=120)
