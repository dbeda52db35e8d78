"""What the lazy device should reach: in single cases (`EACH`), and in the geometric mean of several (`MEANS`).

A bar counts for the rows of contestants of the kind `lazy` whose suite and case match it: `models/LeNet, training`. It
is judged where what it compares with was measured.
"""

import dataclasses
import re
import statistics

from process import kind_of

ANY, ONE, MORE = range(1, 10_000), range(1, 2), range(2, 10_000)
UNREAD = ", never read"


def belongs(row, cases):
    return re.fullmatch(cases, f"{row.suite}/{row.case}") is not None


@dataclasses.dataclass(frozen=True)
class Bar:
    """`figure` of the cases that match, at numbers of threads: a speed is at least `limit` times that of `against`,
    anything else at most."""

    cases: str
    limit: float
    against: str = "eager"
    threads: range = ANY
    figure: str = "speed"

    def concerns(self, row):
        return kind_of(row.contestant) == "lazy" and row.threads in self.threads and belongs(row, self.cases)

    def is_reached(self, value):
        return value >= self.limit if self.figure == "speed" else value <= self.limit

    def is_of_speed(self):
        """Against eager: the value is that of the row."""
        return self.figure == "speed" and self.against == "eager"

    def __str__(self):
        what = "" if self.figure == "speed" else f"{self.figure} "
        whose = "" if self.against == "eager" else f" × {self.against.removeprefix(', ')}"
        return f"{what}{'≥' if self.figure == 'speed' else '≤'} {self.limit:.3g}{whose}"


TRAINING, INFERENCE, PROGRAMS = "models/.*, training", "models/.*, inference", "programs/.*"
CHAIN = "ops/chain of 6 on {} floats"
TINY, OTHERS = "models/(MLP 32|LSTM).*, {}", "models/(?!MLP 32|LSTM).*, {}"
OF_256 = "ops/{} of 256x512"
EIGHT_OPS = "ops/(chain of 6.*|20 cheap ops.*|softmax, GELU.*|AdamW over 10 M.*|100 tiny ops.*)"

EACH = (
    Bar(TRAINING, 1.15, threads=ONE),
    Bar(TINY.format("training"), 1.15, threads=MORE),
    Bar(OTHERS.format("training"), 0.95, threads=MORE),
    Bar(INFERENCE, 1.0, threads=ONE),
    Bar(TINY.format("inference"), 1.0, threads=MORE),
    Bar(PROGRAMS, 0.85),
    Bar(CHAIN.format("(4|64) K"), 2),
    Bar(CHAIN.format("1 M"), 3),
    Bar(CHAIN.format("16 M"), 5),
    Bar("ops/20 cheap ops.*", 10),
    Bar("ops/softmax, GELU.*", 2.3),
    Bar("ops/AdamW over 10 M.*", 4.3),
    Bar("ops/AdamW over 70.*", 6),
    Bar("ops/AdamW.*", 1.0, against="fused"),
    Bar("ops/100 tiny ops.*", 2),
    Bar("ops/backward of one mul", 1 / 1.1),
    Bar("ops/100 adds of 4x4, dropped", 1 / 0.7),
    Bar(OF_256.format(r"(residual \+ layer norm|bias \+ GELU)"), 1.8),
    Bar(OF_256.format("(RMS norm|rope|tanh-GELU)"), 3),
    Bar("ops/(decoding 200 tokens.*|200 new shapes)", 0.95),
    Bar("models/.*, recording a training step", 1 / 0.25),
    Bar(TRAINING, 1.05, against=UNREAD, figure="time"),
    Bar(".*", 1.5, figure="first"),
    Bar(".*", 1 / 50, against="compile", figure="first"),
)

MEANS = (
    Bar(TRAINING, 1.75, threads=ONE),
    Bar(TRAINING, 1.5, threads=MORE),
    Bar(TRAINING, 1.5, against="compile", threads=ONE),
    Bar(TRAINING, 1.0, figure="cpu"),
    Bar(TRAINING, 1.0, figure="peak"),
    Bar(INFERENCE, 1.4, threads=ONE),
    Bar(INFERENCE, 1.3, threads=MORE),
    Bar(INFERENCE, 1.2, against="compile", threads=ONE),
    Bar(EIGHT_OPS, 1.5, against="compile"),
    Bar(PROGRAMS, 1.05),
)

# Cases whose mean is reported.
GROUPS = {
    "training of models": TRAINING,
    "inference of models": INFERENCE,
    "eight op cases": EIGHT_OPS,
    "all op cases": "ops/.*",
    "programs": PROGRAMS,
    "training of libraries' models": "libraries/.*, training",
    "inference of libraries' models": "libraries/.*, inference",
}


# Judging -------------------------------------------------------------------------------------------------------------


def opponent(bar, row, rows):
    """The row that a bar compares with: the reference of a row is itself one. None if it was not measured."""
    if bar.against == row.reference:
        return as_reference(row)
    case, contestant = (row.case + UNREAD, row.contestant) if bar.against == UNREAD else (row.case, bar.against)
    wanted = (case, contestant, row.threads)
    return next((r for r in rows if (r.case, r.contestant, r.threads) == wanted), None)


def as_reference(row):
    return dataclasses.replace(
        row,
        rounds_ms=row.reference_rounds_ms,
        cpu=1.0,
        first_ms=row.reference_first_ms,
        peak_mb=row.reference_peak_mb,
    )


def speed(row, other):
    """The median of the rounds' ratios."""
    return statistics.median(theirs / own for own, theirs in zip(row.rounds_ms, other.rounds_ms, strict=True))


def time(row, other):
    """Of cases that were not measured in turn."""
    return statistics.median(row.rounds_ms) / statistics.median(other.rounds_ms)


def first(row, other):
    """Only of processes that had done nothing else."""
    return None if row.peak_mb is None else row.first_ms / other.first_ms


def peak(row, other):
    return row.peak_mb / other.peak_mb if row.peak_mb and other.peak_mb else None


FIGURES = {"speed": speed, "time": time, "first": first, "peak": peak, "cpu": lambda row, other: row.cpu / other.cpu}


def value_of(bar, row, rows):
    """The figure that a bar is about. None if it cannot be told."""
    other = opponent(bar, row, rows)
    return other and FIGURES[bar.figure](row, other)


def judged(row, rows):
    """The bars of a row, each with the value that it is about."""
    pairs = [(bar, value_of(bar, row, rows)) for bar in EACH if bar.concerns(row)]
    return [(bar, value) for bar, value in pairs if value is not None]


def judged_means(title, rows, all_rows):
    """The same, for the geometric mean of one contestant's rows in a group."""
    wanted = [bar for bar in MEANS if bar.cases == GROUPS[title] and bar.concerns(rows[0])]
    pairs = [(bar, [value_of(bar, row, all_rows) for row in rows]) for bar in wanted]
    return [(bar, statistics.geometric_mean(values)) for bar, values in pairs if None not in values]
