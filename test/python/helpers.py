"""What the tests share: a count of the work done, and the comparison with the CPU.

`LAZYPLUG_TEST_DEVICE=cpu` runs the suite without the plugin, comparing the CPU with itself: a test that fails
there is wrong, whatever the plugin does.
"""

import contextlib
import dataclasses
import itertools
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import torch
from torch.overrides import TorchFunctionMode

DEVICE = os.environ.get("LAZYPLUG_TEST_DEVICE", "lazy")
IS_LAZY = DEVICE.startswith("lazy")

if IS_LAZY:
    import torch_lazyplug

# How the inputs of a comparison reach the device, and when their writes run.
AVAILABLE = "available"  # inputs have memory
PENDING = "pending"  # inputs are themselves results of recorded ops
STEPWISE = "stepwise"  # everything pending runs after each line, so each op meets memory
STATES = (AVAILABLE, PENDING, STEPWISE)


# Work ----------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Work:
    """Counters of the block it was made by; filled in when the block ends."""

    compiles: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    flushes: int = 0
    recorded: int = 0
    executed: int = 0
    fallbacks: int = 0
    fallback_ops: dict = dataclasses.field(default_factory=dict)


_COUNTERS = {
    "compiles": "Compile",
    "cache_hits": "CacheHit",
    "cache_misses": "CacheMiss",
    "flushes": "Flush",
    "recorded": "NodesRecorded",
    "executed": "NodesExecuted",
    "fallbacks": "FallbackTotal",
}


def _counters():
    if not IS_LAZY:
        return {}
    metrics = torch_lazyplug.metrics
    return {name: metrics.counter_value(name) or 0 for name in metrics.counter_names()}


@contextlib.contextmanager
def work():
    """Measures the work of the block. Ops recorded before it do not count; ops still pending at its end neither."""
    finish_pending()
    before = _counters()
    done = Work()
    yield done
    after = _counters()
    delta = {name: value - before.get(name, 0) for name, value in after.items()}
    for field, counter in _COUNTERS.items():
        setattr(done, field, delta.get(counter, 0))
    done.fallback_ops = {name: n for name, n in delta.items() if name.startswith("aten::") and n}


def finish_pending():
    if IS_LAZY:
        torch_lazyplug.mark_step(wait=True)


def live_nodes():
    return torch_lazyplug._C._lazy._live_nodes() if IS_LAZY else 0


def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# Other processes -----------------------------------------------------------------------------------------------------


def run_fresh(code, devices=1, **environment):
    """Runs code in an interpreter of its own, with the given number of devices. Returns its standard output."""
    root = Path(torch_lazyplug.__file__).resolve().parents[1]
    env = {**os.environ, "LAZYPLUG_DEVICE_COUNT": str(devices), "PYTHONPATH": str(root), **environment}
    code = "import torch, torch_lazyplug\n" + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


# What forked children of a process that has used the device are told.
BAD_FORK = (
    "Cannot re-initialize LAZY in forked subprocess. To use LAZY with multiprocessing, "
    "you must use the 'spawn' start method"
)

# The beginning of a program: in_child(function) says whether the function succeeds in a forked child.
IN_CHILD = """
import gc, os, sys, traceback

def in_child(function):
    child = os.fork()
    if child == 0:
        try:
            function()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0
"""


# Comparison with the CPU ---------------------------------------------------------------------------------------------


class _FinishEachOp(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        finish_pending()
        return result


def tensors_in(tree):
    """The tensors of nested containers, in order."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    if isinstance(tree, dict):
        tree = tree.values()
    elif not isinstance(tree, (list, tuple)):
        return []
    return list(itertools.chain.from_iterable(map(tensors_in, tree)))


def copies(tensors, device, pending=False):
    """Copies with the same strides, offsets and sharing: inputs that alias each other still do."""
    bases, result = {}, []
    for tensor in tensors:
        key = (tensor.untyped_storage()._cdata, tensor.dtype)
        if key not in bases:
            whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
            base = whole.clone().to(device)
            bases[key] = base.clone() if pending else base
        copy = bases[key].as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
        result.append(copy.requires_grad_(tensor.requires_grad))
    return result


def both(fn, *cpu_tensors, state=AVAILABLE, exact=False, fallbacks=0, rtol=None, atol=None):
    """Runs `fn` on the CPU and on the device under test, each on its own copies of the tensors, and compares
    everything a user can see: results and inputs afterwards (values, dtypes, shapes, strides, offsets, gradients)
    and which of them share storage. `fallbacks=None` allows any number. Returns the device's results."""
    expected_inputs = copies(cpu_tensors, "cpu")
    expected = fn(*expected_inputs)

    inputs = copies(cpu_tensors, DEVICE, pending=state == PENDING)
    with work() as done, _FinishEachOp() if state == STEPWISE else contextlib.nullcontext():
        actual = fn(*inputs)
    if fallbacks is not None:
        assert done.fallbacks == fallbacks, f"fallbacks: {done.fallback_ops}"

    tolerances = {"rtol": 0, "atol": 0} if exact else {"rtol": rtol, "atol": atol}
    assert_same_sharing((inputs, actual), (expected_inputs, expected))
    assert_same(actual, expected, "result", **tolerances)
    assert_same(inputs, expected_inputs, "input", **tolerances)
    return actual


def assert_same(actual, expected, where="result", rtol=None, atol=None):
    if isinstance(expected, torch.Tensor):
        _assert_same_tensor(actual, expected, where, rtol, atol)
    elif isinstance(expected, dict):
        assert list(actual) == list(expected), where
        for key in expected:
            assert_same(actual[key], expected[key], f"{where}[{key!r}]", rtol, atol)
    elif isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected), where
        for index, (a, e) in enumerate(zip(actual, expected, strict=True)):
            assert_same(a, e, f"{where}[{index}]", rtol, atol)
    elif isinstance(expected, (float, complex)):
        torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=True, msg=_prefix(where))
    elif not isinstance(expected, torch.device):
        assert actual == expected, f"{where}: {actual!r} != {expected!r}"


def _assert_same_tensor(actual, expected, where, rtol, atol):
    assert isinstance(actual, torch.Tensor), f"{where}: {type(actual)} is no tensor"
    same = ("dtype", "shape", "requires_grad", "is_leaf", "layout")
    for name in same:
        a, e = getattr(actual, name), getattr(expected, name)
        assert a == e, f"{where}: {name} is {a}, on the CPU {e}"
    assert actual.stride() == expected.stride(), f"{where}: strides {actual.stride()}, on the CPU {expected.stride()}"
    assert actual.storage_offset() == expected.storage_offset(), f"{where}: storage offsets differ"
    assert actual.is_conj() == expected.is_conj() and actual.is_neg() == expected.is_neg(), where
    if actual.device.type != "meta":
        torch.testing.assert_close(
            actual.detach().cpu(), expected.detach(), rtol=rtol, atol=atol, equal_nan=True, msg=_prefix(where)
        )
    if expected.is_leaf:
        assert (actual.grad is None) == (expected.grad is None), f"{where}: only one has a gradient"
        if expected.grad is not None:
            _assert_same_tensor(actual.grad, expected.grad, f"{where}.grad", rtol, atol)


def _prefix(where):
    return lambda message: f"{where}: {message}"


def assert_same_sharing(actual, expected):
    actual, expected = tensors_in(actual), tensors_in(expected)
    assert len(actual) == len(expected)
    for i, j in itertools.combinations(range(len(expected)), 2):
        a = torch._C._is_alias_of(actual[i], actual[j])
        e = torch._C._is_alias_of(expected[i], expected[j])
        assert a == e, f"tensors {i} and {j}: sharing storage is {a}, on the CPU {e}"
        assert (actual[i] is actual[j]) == (expected[i] is expected[j]), f"tensors {i} and {j}: same object?"


# Training side by side -----------------------------------------------------------------------------------------------


def train_both(model, batches, make_optimizer, compute_loss, **tolerances):
    """Trains copies of a CPU model on both devices. Each step's loss and gradients and the final parameters and
    buffers must agree. Returns the work of the lazy side."""
    import copy

    reference = (model, make_optimizer(model.parameters()))
    candidate_model = copy.deepcopy(model).to(DEVICE)
    candidate = (candidate_model, make_optimizer(candidate_model.parameters()))
    with work() as done:
        for step, batch in enumerate(batches):
            expected = _train_step(*reference, batch, compute_loss)
            on_device = tuple(part.to(DEVICE) for part in batch)
            actual = _train_step(*candidate, on_device, compute_loss)
            assert_same(actual, expected, f"step {step}: loss", **tolerances)
            for (name, p), q in zip(model.named_parameters(), candidate_model.parameters(), strict=True):
                assert_same(q.grad, p.grad, f"step {step}: gradient of {name}", **tolerances)
    assert_same(dict(candidate_model.named_buffers()), dict(model.named_buffers()), "buffers", **tolerances)
    return done


def _train_step(model, optimizer, batch, compute_loss):
    optimizer.zero_grad()
    loss = compute_loss(model, *batch)
    loss.backward()
    optimizer.step()
    return loss.detach()
