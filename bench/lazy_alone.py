"""What the lazy device does by itself: recording, cutting, looking up and queueing, reading, and lasting.

    python bench/lazy_alone.py            # a table of figures and bars; --json FILE writes them too

Nothing here is compared with eager within one process (`models.py` and `programs.py` compare, in processes of their
own). Medians are reported. Absolute times are for reading on this machine only.
"""

import argparse
import contextlib
import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import time

import torch
from models import TRANSFORMERS, make_batch, make_transformer

import torch_lazyplug

CHAIN = 1000


def seconds(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def median_us(samples):
    """Without the first quarter, which warms up."""
    return statistics.median(samples[len(samples) // 4 :]) * 1e6


def finish():
    torch_lazyplug.mark_step(wait=True)


@contextlib.contextmanager
def uncut():
    """Long traces stay whole: nothing is handed to the worker, or run by it, while they are recorded."""
    before = torch_lazyplug.config.get("chunk_nodes")
    torch_lazyplug.config.set("chunk_nodes", 1_000_000)
    yield
    torch_lazyplug.config.set("chunk_nodes", before)


# Recording -----------------------------------------------------------------------------------------------------------


def chain(x, length=CHAIN):
    for _ in range(length):
        x = x + 1
    return x


def host_us(rounds, record):
    """Microseconds of `record()`. What it recorded runs between the rounds, outside of the timing."""
    samples = []
    gc.collect()
    gc.disable()
    for _ in range(rounds):
        samples.append(seconds(record))
        finish()
    gc.enable()
    return median_us(samples)


@uncut()
def recording(rounds):
    """Microseconds to record an add of 4x4 whose result is dropped, and one that the next needs."""
    a, b = (torch.rand(4, 4, device="lazy") for _ in range(2))

    def dropped():
        for _ in range(CHAIN):
            c = a + b
        return c

    def chained():
        c = a
        for _ in range(CHAIN):
            c = c + b

    return [host_us(rounds, record) / CHAIN for record in (dropped, chained)]


@uncut()
def transformer_host_ms(name, rounds):
    """Milliseconds to record a training step: the host's time, if kernels cost nothing."""
    model = make_transformer(name).to("lazy")
    optimizer = torch.optim.AdamW(model.parameters())
    batch = {key: tensor.to("lazy") for key, tensor in make_batch(name).items()}

    def step():
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()

    return host_us(rounds, step) / 1e3


# The executor --------------------------------------------------------------------------------------------------------


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


def training(read, steps, at_half=lambda: None):
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
        if read:
            loss.item()
    loss.item()
    torch_lazyplug.wait_device_ops()


def reading(rounds, steps=30):
    """The time of a training loop that reads its loss every step, divided by that of one that never does."""
    ratios = []
    for _ in range(rounds + 2):
        never = seconds(lambda: training(False, steps))
        ratios.append(seconds(lambda: training(True, steps)) / never)
    return statistics.median(ratios[2:])


# Endurance -----------------------------------------------------------------------------------------------------------


def resident_mb():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1e6


def endurance(steps):
    """Growth of the process in MB, and graphs compiled, over the second half of a long training run without a cut."""
    readings = []

    def take_reading():
        readings.append((resident_mb(), torch_lazyplug.metrics.counter_value("Compile")))

    training(read=False, steps=steps, at_half=take_reading)
    take_reading()
    return [after - before for before, after in zip(*readings, strict=True)]


# The beginning of a process ------------------------------------------------------------------------------------------

FIRST_STEPS = """
import sys, time, torch
device = sys.argv[1]
torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(14400, 64), torch.nn.Linear(64, 10)
).to(device)
optimizer = torch.optim.AdamW(model.parameters())
data, target = torch.randn(32, 3, 32, 32).to(device), torch.randint(10, (32,)).to(device)
start = time.perf_counter()
loss = torch.nn.functional.cross_entropy(model(data), target)
loss.item()
forward = time.perf_counter() - start
loss.backward()
optimizer.step()
model[-1].bias.sum().item()
print(forward, time.perf_counter() - start)
"""


def first_seconds(device):
    """Seconds to the first loss, and of the first training step, of a new process. The CPU's has no plugin."""
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "1" if device == "lazy" else "0"}
    command = [sys.executable, "-c", FIRST_STEPS, device]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def first_steps(rounds):
    """The first forward pass, and the first training step, relative to eager's."""
    pairs = [(first_seconds("lazy"), first_seconds("cpu")) for _ in range(rounds)]
    ratios = [[a / b for a, b in zip(lazy, eager, strict=True)] for lazy, eager in pairs]
    return [statistics.median(column) for column in zip(*ratios, strict=True)]


# Report --------------------------------------------------------------------------------------------------------------


def measure(rounds, steps):
    """Yields rows: what, its value, and the bar."""
    dropped, chained = recording(rounds)
    yield "record a 4x4 add whose result is dropped, us", dropped, ""
    yield "the same, chained, us", chained, ""
    for name in TRANSFORMERS:
        yield f"record a training step of {name}, ms", transformer_host_ms(name, max(4, rounds // 2)), ""
    yield "warm flush, us per op of 1,000", warm_flush(rounds), "<= 0.05"
    yield "graph of 1,000 tiny ops, us per op with its kernels", interpreter(rounds), ""
    yield "loss.item() every step / never", reading(max(3, rounds // 4)), "<= 1.05"
    growth, recompiles = endurance(steps)
    yield f"{steps} training steps: MB that the second half adds", growth, "flat"
    yield "graphs that it compiles", recompiles, "0"
    forward, step = first_steps(3)
    yield "first forward pass of a process / eager's", forward, "<= 1.5"
    yield "first training step of a process / eager's", step, "<= 1.5"


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
