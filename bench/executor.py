"""What the executor costs: cutting, looking up and queueing a graph, running it, and reading every step.

    python bench/executor.py            # a table of figures and bars; --json FILE writes them too

Everything is measured in one process, the contestants in turn; the medians are reported. Absolute times are for reading
on this machine only.
"""

import argparse
import contextlib
import copy
import json
import resource
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

import torch_lazyplug

CHAIN = 1000


def seconds(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def median_us(samples):
    return statistics.median(samples) * 1e6


def chain(x, length=CHAIN):
    for _ in range(length):
        x = x + 1
    return x


@contextlib.contextmanager
def uncut():
    """Long traces stay whole."""
    before = torch_lazyplug.config.get("chunk_nodes")
    torch_lazyplug.config.set("chunk_nodes", 10 * CHAIN)
    yield
    torch_lazyplug.config.set("chunk_nodes", before)


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
    return median_us(samples[len(samples) // 4 :]) / CHAIN


@uncut()
def interpreter(rounds):
    """Microseconds per op of a whole graph of 1,000 tiny ops, over the same kernels called by eager's dispatcher.

    Both include the kernels; the difference is what the executor adds (negative: less than Python and the dispatcher).
    """
    x = torch.ones(1, device="lazy")
    cpu = torch.ones(1)
    lazy_samples, eager_samples = [], []
    for _ in range(rounds):
        y = chain(x)
        lazy_samples.append(seconds(y.cpu))
        with torch.no_grad():
            eager_samples.append(seconds(lambda: chain(cpu)))
    skip = rounds // 4
    return median_us(lazy_samples[skip:]) / CHAIN, median_us(eager_samples[skip:]) / CHAIN


def training(device, read, steps, at_half=lambda: None):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 10)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.randn(128, 64, device=device)
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
    """Seconds of a training loop that reads its loss every step, and never, and of eager."""
    samples = {"never": [], "every": [], "eager": []}
    for number in range(rounds + 2):
        for name, device, read in (("never", "lazy", False), ("every", "lazy", True), ("eager", "cpu", True)):
            taken = seconds(lambda device=device, read=read: training(device, read, steps))
            if number >= 2:
                samples[name].append(taken)
    every = [e / n for e, n in zip(samples["every"], samples["never"], strict=True)]
    eager = [e / c for e, c in zip(samples["every"], samples["eager"], strict=True)]
    return statistics.median(every), statistics.median(eager)


def compiled():
    return torch_lazyplug.metrics.counter_value("Compile") or 0


@contextlib.contextmanager
def symbolic():
    """Sizes are expected to vary."""
    torch_lazyplug.config.set("symbolic_shape_mode", True)
    yield
    torch_lazyplug.config.set("symbolic_shape_mode", False)


def new_sizes(rounds, run):
    """`run(device, first)`, with sizes from `first` on that are new to the process, relative to eager; and the graphs
    that it compiles."""
    ratios, compiles = [], []
    for number in range(rounds):
        first = number * 200 + 1
        before = compiled()
        lazy = seconds(lambda first=first: run("lazy", first))
        compiles.append(compiled() - before)
        ratios.append(seconds(lambda first=first: run("cpu", first)) / lazy)
    return statistics.median(ratios), max(compiles)


def shapes(rounds, *rows):
    """A loop over 200 shapes of 1 to 200, 201 to 400 ... columns."""

    def run(device, first):
        for size in range(first, first + 200):
            x = torch.ones(*rows, size, device=device)
            ((x * 2 + 1).relu() / 3).sum().item()

    return new_sizes(rounds, run)


class Decoder(torch.nn.Module):
    """A language model of one layer, which is given the keys and values of the tokens so far."""

    def __init__(self, vocabulary=256, width=64, heads=4):
        super().__init__()
        self.heads = heads
        self.embed = torch.nn.Embedding(vocabulary, width)
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
        self.project = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.feed = torch.nn.Sequential(
            torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)
        )
        self.head = torch.nn.Linear(width, vocabulary)

    def forward(self, token, cache):
        x = self.embed(token)
        parts = self.project(self.norms[0](x)).chunk(3, -1)
        query, *fresh = (part.view(1, 1, self.heads, -1).transpose(1, 2) for part in parts)
        cache = [torch.cat(pair, 2) for pair in zip(cache, fresh, strict=True)]
        x = x + self.out(F.scaled_dot_product_attention(query, *cache).transpose(1, 2).reshape(1, 1, -1))
        return self.head(x + self.feed(self.norms[1](x))), cache


def decoding(rounds, prompt=0):
    """200 steps of a decoder whose cache grows by one token each step, with 1, 201 ... tokens before the first."""
    torch.manual_seed(0)
    model = Decoder().eval()
    models = {"cpu": model, "lazy": copy.deepcopy(model).to("lazy")}

    @torch.no_grad()
    def run(device, first):
        cache = [torch.zeros(1, model.heads, prompt + first, 16, device=device) for _ in range(2)]
        token = torch.zeros(1, 1, dtype=torch.long, device=device)
        for _ in range(200):
            logits, cache = models[device](token, cache)
            token = logits.argmax(-1)
            token.item()

    return new_sizes(rounds, run)


def resident_mb():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1e6


def endurance(steps):
    """Growth of the process in MB, and graphs compiled, over the second half of a long training run without a cut."""
    readings = []

    def take_reading():
        readings.append((resident_mb(), torch_lazyplug.metrics.counter_value("Compile")))

    training("lazy", read=False, steps=steps, at_half=take_reading)
    take_reading()
    return [after - before for before, after in zip(*readings, strict=True)]


FIRST_STEPS = """
import sys, time, torch
import torch_lazyplug
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


def first_steps(rounds):
    """The first forward pass, and the first training step, of a process, relative to eager's."""
    ratios = []
    for _ in range(rounds):
        taken = {}
        for device in ("lazy", "cpu"):
            text = subprocess.run(
                [sys.executable, "-c", FIRST_STEPS, device], capture_output=True, text=True, check=True
            )
            taken[device] = [float(word) for word in text.stdout.split()]
        ratios.append([lazy / eager for lazy, eager in zip(taken["lazy"], taken["cpu"], strict=True)])
    return [statistics.median(column) for column in zip(*ratios, strict=True)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=10_000, help="of the long training run")
    parser.add_argument("--json")
    options = parser.parse_args()
    lazy_op, eager_op = interpreter(options.rounds)
    every, against_eager = reading(max(3, options.rounds // 4))
    loops = {"200 new shapes, eager / lazy": shapes(9, 1), "the same, 1,000 times as large": shapes(3, 1000)}
    loops["200 steps of decoding, eager / lazy"] = decoding(5)
    with symbolic():
        loops["200 new shapes, symbolic_shape_mode"] = shapes(9, 1, 1)
        loops["200 steps of decoding, symbolic_shape_mode"] = decoding(5, prompt=1000)
    forward, step = first_steps(3)
    growth, recompiles = endurance(options.steps)
    rows = [
        ("warm flush, us per op of 1,000", warm_flush(options.rounds), "<= 0.05"),
        ("graph of 1,000 tiny ops, us per op with its kernels", lazy_op, ""),
        ("the same ops called by eager, us per op", eager_op, ""),
        ("loss.item() every step / never", every, "<= 1.05"),
        ("training step that reads its loss / eager", against_eager, ""),
        *((name, speed, ">= 0.9") for name, (speed, _) in loops.items()),
        *((f"{name}: graphs compiled", graphs, "<= 10") for name, (_, graphs) in loops.items()),
        (f"{options.steps} training steps: MB that the second half adds", growth, "flat"),
        ("graphs that it compiles", recompiles, "0"),
        ("first forward pass of a process / eager's", forward, "<= 1.5"),
        ("first training step of a process / eager's", step, "<= 1.5"),
    ]
    print(f"{torch.get_num_threads()} intra-op threads")
    for name, value, bar in rows:
        print(f"{name:62s} {value:8.3f}  {bar}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({name: value for name, value, _ in rows}, file, indent=1)


if __name__ == "__main__":
    main()
