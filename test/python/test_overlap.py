"""Who computes: a worker, while the program records, or the program's own thread; and where steps are cut for it."""

import copy
import json
import os
import subprocess
import sys

import pytest
import torch
from helpers import DEVICE, work

import torch_lazyplug
from torch_lazyplug import config, metrics

pytestmark = [pytest.mark.lazy_only, pytest.mark.own_schedule("is about who computes")]

PROGRAM = """
import json, os, sys
threads, processors = int(sys.argv[1]), int(sys.argv[2])
os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:processors]))
import torch, torch_lazyplug
torch.set_num_threads(threads)
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(256, 256), torch.nn.GELU()] * 6)
wide = torch.randn(256, 256)
model, wide = model.to("lazy"), wide.to("lazy")
optimizer = torch.optim.AdamW(model.parameters())
losses = []
for _ in range(20):
    optimizer.zero_grad()
    loss = model(wide).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
count = torch_lazyplug.metrics.counter_value
names = sorted(open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task"))
print(json.dumps({"losses": losses, "fallbacks": count("FallbackTotal") or 0, "names": names}))
"""


def run(code, *arguments, **settings):
    """What it prints last, of a process of its own with these settings alone."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LAZYPLUG_")}
    environment.update({f"LAZYPLUG_{key.upper()}": value for key, value in settings.items()})
    command = [sys.executable, "-c", code, *map(str, arguments)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=300)
    return json.loads(result.stdout.splitlines()[-1])


def run_program(threads, processors, **settings):
    return run(PROGRAM, threads, processors, **settings)


def test_where_all_processors_compute_no_worker_does():
    """Of two pools of OpenMP threads each would wait for the other's processors."""
    processors = len(os.sched_getaffinity(0))
    told = run_program(max(2, processors), processors)
    assert not [name for name in told["names"] if name.startswith("lazy:")]
    assert told["fallbacks"] == 0


def test_on_one_processor_nothing_overlaps():
    told = run_program(1, 1)
    assert not [name for name in told["names"] if name.startswith("lazy:")]


def test_results_do_not_depend_on_who_computes():
    alone = run_program(1, 1)["losses"]
    assert run_program(1, 2)["losses"] == alone
    assert run_program(1, 2, overlap="always", chunk_nodes="5")["losses"] == alone


BITS = """
import copy, torch, torch_lazyplug
from torch import nn
torch.manual_seed(0)
rows, image = torch.randn(64, 128), torch.randn(8, 16, 12, 12)
flat = image.to(memory_format=torch.channels_last)
square = torch.randn(40, 40)
class Solve(nn.Module):
    def forward(self, x):
        return torch.linalg.solve(x @ x.mT + 1000 * torch.eye(40, device=x.device), x)
cases = [(nn.LayerNorm(128), rows), (nn.BatchNorm1d(128), rows), (nn.BatchNorm2d(16), flat),
         (nn.GroupNorm(4, 16), image), (nn.Conv2d(16, 8, 3), image), (nn.Conv2d(16, 32, 1), flat),
         (nn.Conv2d(16, 16, 3, groups=16), image), (nn.ConvTranspose2d(16, 8, 2, 2), image),
         (nn.Linear(128, 64), rows), (nn.Softmax(-1), rows), (Solve(), square)]
for module, x in cases:
    results = []
    for device, threads in (("lazy", 2), ("cpu", 1)):
        torch.set_num_threads(threads)
        moved = copy.deepcopy(module).to(device)
        leaf = x.detach().clone().to(device).requires_grad_()
        y = moved(leaf)
        y.square().mean().backward()
        results.append([t.detach().cpu() for t in (y, leaf.grad, *(p.grad for p in moved.parameters()))])
    assert all(torch.equal(a, b) for a, b in zip(*results)), module
"""


@pytest.mark.parametrize("run_at_once", ["never", "always"])
def test_small_calls_give_the_bits_of_one_thread(run_at_once):
    """However many there are, in a graph or not. Larger convolutions and norms have other bits on two threads."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LAZYPLUG_")}
    environment["LAZYPLUG_FUSION"] = "1"  # functions of our own have other bits
    environment["LAZYPLUG_RUN_AT_ONCE"] = run_at_once
    subprocess.run([sys.executable, "-c", BITS], env=environment, check=True, timeout=300)


SMALL_PRODUCTS = """
import json, os, sys
import torch, torch_lazyplug
torch.set_num_threads(2)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)).to("lazy")
x, labels = torch.randn(8, 32).to("lazy"), torch.randint(10, (8,)).to("lazy")
optimizer = torch.optim.AdamW(model.parameters())
losses = []
for _ in range(30):  # one graph, if nobody cuts it
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), labels)
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
gradients = [float(number).hex() for number in model[2].weight.grad.flatten()]
threads = torch.get_num_threads()
count = torch_lazyplug.metrics.counter_value
print(json.dumps({"bits": [loss.item() for loss in losses], "gradients": gradients, "threads": threads,
                  "at_once": count("RunAtOnce") or 0, "fallbacks": count("FallbackTotal") or 0}))
"""


def test_small_products_have_the_same_bits_in_a_graph_and_at_once():
    """BLAS has other bits for the gradient of the last weight on two threads than on one."""
    graphs = run(SMALL_PRODUCTS)
    assert graphs["at_once"] < 30, "most calls are computed by graphs"
    assert graphs["fallbacks"] == 0
    at_once = 0
    for seed in range(1, 4):
        told = run(SMALL_PRODUCTS, schedule=f"random:{seed}")
        assert (told["bits"], told["gradients"]) == (graphs["bits"], graphs["gradients"])
        assert told["threads"] == 2, "who waits for a job has its own number of threads afterwards"
        at_once += told["at_once"]
    assert at_once > 300, "a program that does not repeat is computed call by call"


@pytest.fixture
def planned():
    """Steps are cut as planned, with a worker."""
    torch_lazyplug.wait_device_ops()
    before = {name: config.get(name) for name in ("chunk_nodes", "overlap")}
    config.set("chunk_nodes", 0)
    config.set("overlap", "always")
    torch.ones(1, device=DEVICE).item()  # the settings are read when a trace begins
    torch_lazyplug._C._lazy._clear_ir_cache()  # a program begins, whatever ran before: that is when steps are planned
    metrics.reset()
    yield
    for name, value in before.items():
        config.set(name, value)


def make_step(device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(128, 128), torch.nn.Tanh()] * 10).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    data = torch.randn(256, 128, generator=torch.Generator().manual_seed(1)).to(device)

    def step():
        optimizer.zero_grad()
        loss = model(data).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def test_a_step_is_planned_once_and_computes_the_same(planned):
    """However its times turn out: it is settled after at most 46 steps, and tried again once until the 120th."""
    lazy, cpu = make_step(DEVICE), make_step("cpu")
    for _ in range(120):
        assert lazy() == cpu()
    settled = [metrics.counter_value(name) or 0 for name in ("StepsCut", "StepsKeptWhole")]
    assert sum(settled) == 1
    with work() as done:
        for _ in range(30):
            assert lazy() == cpu()
    assert done.compiles == 0
    assert done.fallbacks == 0
    assert [metrics.counter_value(name) or 0 for name in ("StepsCut", "StepsKeptWhole")] == settled


def test_steps_that_never_repeat_are_not_cut(planned):
    x = torch.ones(16, device=DEVICE)
    for length in range(1, 60):
        y = x
        for _ in range(length):
            y = y + x
        assert y[0].item() == length + 1
    assert metrics.counter_value("TraceCut") == 59


def test_with_the_program_computing_itself_mark_step_leaves_nothing_queued(planned):
    config.set("overlap", "never")
    torch.ones(1, device=DEVICE).item()
    y = torch.ones(4, device=DEVICE) + 1
    torch_lazyplug.mark_step(wait=False)
    event = torch.lazy.Event()
    event.record()
    assert event.query()
    assert y.tolist() == [2.0] * 4


WAITING = """
import os
import torch, torch_lazyplug
x = torch.ones(8, device="lazy")
for _ in range(5):
    x = x + 1
    torch.lazy.synchronize()
    x = x * 2
    torch_lazyplug.mark_step(wait=True)
names = [open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")]
print(x.tolist()[0], sorted(name for name in names if name.startswith("lazy:")))
"""


def test_who_waits_for_the_device_wakes_nobody():
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LAZYPLUG_")}
    command = [sys.executable, "-c", WAITING]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    assert result.stdout.split("\n")[0] == "94.0 []"


def trained(model, inputs, steps=4):
    """Losses and final parameters of a few steps."""
    model = model.to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(inputs.to(DEVICE)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [parameter.detach().cpu() for parameter in model.parameters()]


def networks():
    """Large enough for more than one thread: smaller calls stay on the thread that comes by them."""
    linear = torch.nn.Sequential(*[torch.nn.Linear(128, 128), torch.nn.GELU()] * 4)
    images = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(16, 16, 3), torch.nn.Flatten()
    )
    return [(linear, torch.randn(128, 128)), (images, torch.randn(8, 3, 24, 24))]


@pytest.mark.parametrize("which", [0, 1], ids=["linear", "convolutions"])
def test_side_calls_leave_every_bit(which):
    torch.manual_seed(0)
    model, inputs = networks()[which]
    results = []
    for overlap, side_calls in [("always", -1), ("always", 0), ("never", 0)]:
        with config.changed({"overlap": overlap, "side_calls": side_calls}):
            torch.ones(2, device=DEVICE).add(1).tolist()  # flags count from the next trace on
            before = metrics.counter_value("SideCalls") or 0
            results.append(trained(copy.deepcopy(model), inputs))
            offered = (metrics.counter_value("SideCalls") or 0) - before
        assert (offered > 0) == (overlap == "always" and side_calls == 0)
    expected_losses, expected = results[0]
    for losses, parameters in results[1:]:
        assert losses == expected_losses
        assert all(map(torch.equal, parameters, expected))


def test_flushed_denormals_are_those_of_the_users_thread():
    """Whichever thread computes: the flag is one of each thread's own."""
    tiny = torch.full((1000,), 2e-38)

    def shifted(x):
        return (x * 0.01) * 1e20  # on the way it is denormal

    assert torch.set_flush_denormal(True)
    try:
        for overlap in ("always", "never"):
            with config.changed({"overlap": overlap}):
                result = shifted(tiny.to(DEVICE))
                torch_lazyplug.mark_step()
                torch.lazy.synchronize()
                assert torch.equal(result.cpu(), shifted(tiny))
    finally:
        torch.set_flush_denormal(False)
    result = shifted(tiny.to(DEVICE))
    torch_lazyplug.mark_step(wait=True)
    assert torch.equal(result.cpu(), shifted(tiny)) and result.cpu().min() > 0
