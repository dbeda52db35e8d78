"""What recording costs, next to eager's own cost of the same lines.

    python bench/trace_overhead.py                 # 4x4 adds, at 1 thread and at the default
    python bench/trace_overhead.py --models        # also whole training steps of four transformers
    python bench/trace_overhead.py --digits        # also the digits network's training step, end to end

The contestants alternate in short rounds inside one process, so that both meet the same noise; the ratio of each
pair of neighbouring rounds is taken, and the median of those is reported with the 10th and 90th percentile.
Recorded work runs between the rounds, outside of the timing.
"""

import argparse
import contextlib
import gc
import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

from models import TRANSFORMERS, make_batch, make_transformer  # noqa: E402

ADDS_PER_ROUND = 100
STEPS_PER_ROUND = 5


@dataclass
class Result:
    case: str
    threads: int
    eager_us: float
    lazy_us: float
    ratio: float
    ratio_p10: float
    ratio_p90: float
    bar: float | None
    target: float | None

    @property
    def verdict(self):
        goals = []
        if self.bar is not None:
            goals.append(f"bar {self.bar:g} {'MISSED' if self.ratio > self.bar else 'met'}")
        if self.target is not None:
            goals.append(f"target {self.target:g} {'not reached' if self.ratio > self.target else 'reached'}")
        return ", ".join(goals)


@dataclass
class Contestant:
    """`run` is timed; `settle` runs before each round and is not."""

    run: object
    settle: object


def interleave(eager, lazy, rounds, warm_up):
    """Seconds of each round of both, taken alternately; who begins alternates too."""
    times = ([], [])
    for number in range(warm_up + rounds):
        order = (0, 1) if number % 2 else (1, 0)
        for index in order:
            contestant = (eager, lazy)[index]
            contestant.settle()
            start = time.perf_counter()
            contestant.run()
            seconds = time.perf_counter() - start
            if number >= warm_up:
                times[index].append(seconds)
    return times


def measure(case, eager, lazy, rounds, warm_up, units, bar=None, target=None):
    gc.collect()
    gc.disable()
    try:
        eager_times, lazy_times = interleave(eager, lazy, rounds, warm_up)
    finally:
        gc.enable()
    ratios = sorted(b / a for a, b in zip(eager_times, lazy_times, strict=True))
    deciles = statistics.quantiles(ratios, n=10)
    scale = 1e6 / units
    return Result(
        case,
        torch.get_num_threads(),
        statistics.median(eager_times) * scale,
        statistics.median(lazy_times) * scale,
        statistics.median(ratios),
        deciles[0],
        deciles[-1],
        bar,
        target,
    )


# Cases ---------------------------------------------------------------------------------------------------------------


def independent_adds(device):
    a, b = (torch.rand(4, 4).to(device) for _ in range(2))

    def run():
        for _ in range(ADDS_PER_ROUND):
            c = a + b
        return c

    return run


def chained_adds(device):
    """Each result is needed by the next, so nothing recorded is dropped before the end."""
    a, b = (torch.rand(4, 4).to(device) for _ in range(2))

    def run():
        c = a
        for _ in range(ADDS_PER_ROUND):
            c = c + b
        return c

    return run


def transformer_step(name, device):
    model = make_transformer(name).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    batch = {key: tensor.to(device) for key, tensor in make_batch(name).items()}

    def run():
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        return loss

    return run


def transformer_steps(name, device):
    """Steps that read their losses, and the wait for what the last one leaves to be done."""
    step, finish = transformer_step(name, device), finisher(device)

    def run():
        for _ in range(STEPS_PER_ROUND):
            step().item()
        finish()

    return run


def digits_steps(device):
    import train_digits

    images, labels = (part[:64].to(device) for part in train_digits.load_data(0).train.tensors)
    model = train_digits.make_model(0).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    finish = finisher(device)

    def run():
        for _ in range(STEPS_PER_ROUND):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        loss.item()
        finish()

    return run


def run_cases(args):
    finish = finisher(args.device)
    nothing = lambda: None  # noqa: E731

    def contest(make, *where):
        return Contestant(make(*where, "cpu"), nothing), Contestant(make(*where, args.device), finish)

    with uncut(args.device):
        yield measure(
            "4x4 add, results dropped", *contest(independent_adds), args.rounds, 30, ADDS_PER_ROUND, bar=1.3, target=0.7
        )
        yield measure("4x4 add, chained", *contest(chained_adds), args.rounds, 30, ADDS_PER_ROUND, bar=1.3, target=0.7)
    yield measure("4x4 add, in chunks", *contest(chained_adds), args.rounds, 30, ADDS_PER_ROUND)
    if args.models:
        for name in TRANSFORMERS:
            with uncut(args.device):
                eager, lazy = contest(transformer_step, name)
                yield measure(f"{name}: host time / eager step", eager, lazy, args.steps, 5, 1, target=0.2)
            eager, lazy = contest(transformer_step, name)
            yield measure(f"{name}: the same, in chunks", eager, lazy, args.steps, 5, 1)
            eager, lazy = contest(transformer_steps, name)
            yield measure(f"{name}: whole step, loss read", eager, lazy, args.steps, 2, STEPS_PER_ROUND)
    if args.digits:
        eager, lazy = contest(digits_steps)
        yield measure("digits step, end to end", eager, lazy, args.steps, 5, STEPS_PER_ROUND)


@contextlib.contextmanager
def uncut(device):
    """A round is one trace: nothing is handed to the worker, or run by it, while it is timed."""
    if not device.startswith("lazy"):
        yield
        return
    from torch_lazyplug import config

    before = config.get("chunk_nodes")
    config.set("chunk_nodes", 1_000_000)
    yield
    config.set("chunk_nodes", before)


def finisher(device):
    if not device.startswith("lazy"):
        return lambda: None
    import torch_lazyplug

    return lambda: torch_lazyplug.mark_step(wait=True)


# Report --------------------------------------------------------------------------------------------------------------


def print_header():
    print(f"{'case':32} {'threads':>7} {'eager µs':>10} {'lazy µs':>10} {'ratio':>6}  {'p10 – p90':13} verdict")


def print_row(result):
    spread = f"{result.ratio_p10:.2f} – {result.ratio_p90:.2f}"
    print(
        f"{result.case:32} {result.threads:7} {result.eager_us:10.2f} {result.lazy_us:10.2f} {result.ratio:6.2f}  "
        f"{spread:13} {result.verdict}",
        flush=True,
    )


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="lazy")
    parser.add_argument("--threads", type=int, nargs="*", help="thread counts (default: 1 and PyTorch's default)")
    parser.add_argument("--rounds", type=int, default=300, help="rounds of the small cases")
    parser.add_argument("--steps", type=int, default=20, help="rounds of the cases made of training steps")
    parser.add_argument("--models", action="store_true", help="whole training steps of four transformers")
    parser.add_argument("--digits", action="store_true", help="the digits network's training step, end to end")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    return parser.parse_args()


def main():
    args = parse_arguments()
    thread_counts = args.threads or sorted({1, torch.get_num_threads()})
    results = []
    print_header()
    for threads in thread_counts:
        torch.set_num_threads(threads)
        for result in run_cases(args):
            print_row(result)
            results.append(result)
    if args.json:
        args.json.write_text(json.dumps([asdict(r) | {"verdict": r.verdict} for r in results], indent=2) + "\n")
    return 1 if any(r.bar is not None and r.ratio > r.bar for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
