"""What the lazy device does by itself: cutting, looking up and queueing, interpreting, and lasting.

    python bench/lazy_alone.py            # a table of figures and bars; --json FILE writes them too

Nothing here is compared with eager (`contest.py` compares, in processes of their own). Medians are reported. Absolute
times are for reading on this machine only.
"""

import argparse
import contextlib
import json
import resource
import statistics
import time

import torch

import torch_lazyplug

CHAIN = 1000


def seconds(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def median_us(samples):
    """Without the first quarter, which warms up."""
    return statistics.median(samples[len(samples) // 4 :]) * 1e6


@contextlib.contextmanager
def uncut():
    """Long traces stay whole: nothing is handed to the worker, or run by it, while they are recorded."""
    with torch_lazyplug.config.changed({"chunk_nodes": 1_000_000}):
        yield


# The executor --------------------------------------------------------------------------------------------------------


def chain(x, length=CHAIN):
    for _ in range(length):
        x = x + 1
    return x


@uncut()
def warm_flush(rounds):
    """Microseconds per op to cut a trace of 1,000 ops, find its computation and queue it."""
    x = torch.ones(1, device="lazy")
    samples = []
    for _ in range(rounds):
        y = chain(x)
        samples.append(seconds(torch_lazyplug.mark_step))
        torch_lazyplug.wait_device_ops()
        del y
    return median_us(samples) / CHAIN


@uncut()
def interpreter(rounds):
    """Microseconds per op of a whole graph of 1,000 tiny ops, with their kernels."""
    x = torch.ones(1, device="lazy")
    return median_us([seconds(chain(x).cpu) for _ in range(rounds)]) / CHAIN


# Endurance -----------------------------------------------------------------------------------------------------------


def resident_mb():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1e6


def training(steps, at_half):
    """Never reads, and never cuts."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 10)).to("lazy")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.randn(128, 64, device="lazy")
    for step in range(steps):
        if step == steps // 2:
            at_half()
        optimizer.zero_grad()
        loss = model(data).square().mean()
        loss.backward()
        optimizer.step()
    loss.item()
    torch_lazyplug.wait_device_ops()


def endurance(steps):
    """Growth of the process in MB, and graphs compiled, over the second half of a long training run without a cut."""
    readings = []

    def take_reading():
        readings.append((resident_mb(), torch_lazyplug.metrics.counter_value("Compile")))

    training(steps, take_reading)
    take_reading()
    return [after - before for before, after in zip(*readings, strict=True)]


# Report --------------------------------------------------------------------------------------------------------------


def measure(rounds, steps):
    """Yields rows: what, its value, and the bar."""
    yield "warm flush, us per op of 1,000", warm_flush(rounds), "<= 0.05"
    yield "graph of 1,000 tiny ops, us per op with its kernels", interpreter(rounds), ""
    growth, recompiles = endurance(steps)
    yield f"{steps} training steps: MB that the second half adds", growth, "flat"
    yield "graphs that it compiles", recompiles, "0"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=10_000, help="of the long training run")
    parser.add_argument("--json")
    options = parser.parse_args()
    print(f"{torch.get_num_threads()} intra-op threads")
    figures = {}
    for name, value, bar in measure(options.rounds, options.steps):
        print(f"{name:62s} {value:8.3f}  {bar}", flush=True)
        figures[name] = value
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main()
