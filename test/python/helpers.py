"""What the tests share: a count of the work done, and the comparison with the CPU.

`LAZYPLUG_TEST_DEVICE=cpu` runs the suite without the plugin, comparing the CPU with itself: a test that fails
there is wrong, whatever the plugin does.
"""

import contextlib
import copy
import dataclasses
import itertools
import os
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import torch
from error_texts import say_the_same
from torch.overrides import TorchFunctionMode

DEVICE = os.environ.get("LAZYPLUG_TEST_DEVICE", "lazy")
IS_LAZY = DEVICE.startswith("lazy")

if IS_LAZY:
    import torch_lazyplug
    from torch_lazyplug import closure

# Whether flags for tests cut traces anywhere, so that the number of graphs means nothing.
IS_SCHEDULED = any(os.environ.get(flag) for flag in ("LAZYPLUG_SCHEDULE", "LAZYPLUG_SCRAMBLE"))

# How the inputs of a comparison reach the device, and when their writes run.
AVAILABLE = "available"  # inputs have memory
PENDING = "pending"  # inputs are themselves results of recorded ops
STEPWISE = "stepwise"  # everything pending runs after each line, so each op meets memory
STATES = (AVAILABLE, PENDING, STEPWISE)


# Errors --------------------------------------------------------------------------------------------------------------


def assert_same_error(actual, expected):
    """The same type, and the same message, names of devices and the origin of a late error aside."""
    assert expected is not None
    assert say_the_same(actual, expected), f"{actual!r} instead of {expected!r}"


def error_of(function, *args):
    """What the call raises, or None."""
    try:
        function(*args)
    except Exception as error:  # noqa: BLE001  (any kind: its kind is what is compared)
        return error
    return None


# Settings ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def flag(name, value):
    """The setting has this value within the block."""
    before = torch_lazyplug.config.get(name)
    torch_lazyplug.config.set(name, value)
    try:
        yield
    finally:
        torch_lazyplug.config.set(name, before)


# Work ----------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Work:
    """Counters of the block it was made by; filled in when the block ends."""

    compiles: int = 0
    uncompiled: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    flushes: int = 0
    recorded: int = 0
    executed: int = 0
    fallbacks: int = 0
    fallback_ops: dict = dataclasses.field(default_factory=dict)


_COUNTERS = {
    "compiles": "Compile",
    "uncompiled": "RunUncompiled",
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


def groups():
    """How many groups have been compiled, of how many ops."""
    counted = torch_lazyplug.metrics.counter_value
    return counted("FusedGroups") or 0, counted("FusedNodes") or 0


def finish_pending():
    if IS_LAZY:
        torch_lazyplug.mark_step(wait=True)


def finish_everything():
    """Runs what is pending on every stream of every device, and closures. Raises an error that nobody has seen."""
    if not IS_LAZY:
        return
    torch_lazyplug.mark_step()
    for device in range(torch.lazy.device_count()):
        torch.lazy.synchronize(device)
    for handler in list(closure._unfinished):
        error, handler._error = handler._error, None
        if error is not None:
            raise RuntimeError("an asynchronous step closure has raised") from error


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


def both(fn, *cpu_tensors, state=AVAILABLE, fallbacks=0, rtol=0, atol=0, on_cpu=(), nbytes=True, history=True):
    """Runs `fn` on the CPU and on the device under test, each on its own copies of the tensors, and compares
    everything a user can see: results and inputs afterwards (values, dtypes, shapes, strides, offsets, gradients, and
    unless told otherwise what autograd knows and the sizes of storages) and which of them share storage. All must be on
    the device, but for the results with the numbers `on_cpu`. `fallbacks=None` allows any number. Returns the device's
    results."""
    expected_inputs = copies(cpu_tensors, "cpu")
    expected = fn(*expected_inputs)

    inputs = copies(cpu_tensors, DEVICE, pending=state == PENDING)
    with work() as done, _FinishEachOp() if state == STEPWISE else contextlib.nullcontext():
        actual = fn(*inputs)
    if fallbacks is not None:
        assert done.fallbacks == fallbacks, f"fallbacks: {done.fallback_ops}"

    assert_same_sharing((inputs, actual), (expected_inputs, expected))
    assert_same(actual, expected, "result", rtol, atol)
    assert_same(inputs, expected_inputs, "input", rtol, atol)
    if nbytes:
        assert_same_nbytes((inputs, actual), (expected_inputs, expected))
    if history:
        assert_same_history(actual, expected, "result")
        assert_same_history(inputs, expected_inputs, "input")
    assert [t._version for t in inputs] == [t._version for t in expected_inputs]
    _assert_devices(inputs, actual, on_cpu)
    assert_disjoint(inputs, actual, expected_inputs, expected)
    return actual


def assert_same(actual, expected, where="result", rtol=0, atol=0):
    """Compares nested results, to the bit unless told."""
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
        if rtol == atol == 0 and expected.is_floating_point():
            assert torch.equal(actual.detach().cpu().signbit(), expected.detach().signbit()), f"{where}: signs differ"
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


def assert_same_nbytes(actual, expected):
    for number, (a, e) in enumerate(zip(tensors_in(actual), tensors_in(expected), strict=True)):
        if e.layout == torch.strided:
            sizes = a.untyped_storage().nbytes(), e.untyped_storage().nbytes()
            assert sizes[0] == sizes[1], f"tensor {number}: {sizes[0]} bytes of storage, on the CPU {sizes[1]}"


def assert_same_history(actual, expected, where):
    """Whether they are views, and by which function they are differentiated."""
    for number, (a, e) in enumerate(zip(tensors_in(actual), tensors_in(expected), strict=True)):
        histories = [(t._is_view(), type(t.grad_fn).__name__) for t in (a, e)]
        assert histories[0] == histories[1], f"{where} {number}: {histories[0]}, on the CPU {histories[1]}"


def _assert_devices(inputs, results, on_cpu):
    results = tensors_in(results)
    assert set(on_cpu) <= set(range(len(results)))
    wanted = [DEVICE] * len(inputs) + ["cpu" if i in on_cpu else DEVICE for i in range(len(results))]
    for number, (tensor, device) in enumerate(zip([*inputs, *results], wanted, strict=True)):
        for t in (tensor, tensor.grad if tensor.is_leaf else None):
            assert t is None or t.device.type == torch.device(device).type, f"tensor {number} is on {t.device}"


def assert_all_at_once(gradients):
    """`gradients(device, samples)` are taken under vmap, and no sample by itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        counts = []
        for samples in (3, 30):
            with work() as done:
                actual = gradients(DEVICE, samples)
            counts.append(done.recorded)
            assert done.fallbacks == 0
        assert counts[1] < counts[0] + 9, "a few, which the device may have to learn first, but not one for each sample"
    for one, other in zip(actual, gradients("cpu", 30), strict=True):
        torch.testing.assert_close(one.cpu(), other)


def run_in_bfloat16(network, x):
    """What a recurrent network computes on the CPU under autocast to bfloat16.

    Where oneDNN has no bfloat16, autocast makes an LSTM raise that oneDNN would run; one in bfloat16 itself does not.
    """
    runs_on_onednn = isinstance(network, torch.nn.LSTM) and network.proj_size == 0
    if runs_on_onednn and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return copy.deepcopy(network).bfloat16()(x.bfloat16())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return network(x)


def assert_disjoint(*trees):
    """No two storages have memory in common, whatever devices they are on."""
    storages = {t.untyped_storage()._cdata: t.untyped_storage() for t in tensors_in(trees) if t.layout == torch.strided}
    ranges = sorted((s.data_ptr(), s.data_ptr() + s.nbytes()) for s in storages.values() if s.nbytes())
    for (_, end), (start, _) in itertools.pairwise(ranges):
        assert end <= start or not start, "memory of one storage is that of another"


# Training side by side -----------------------------------------------------------------------------------------------


def train_both(model, batches, make_optimizer, compute_loss, rtol=0, atol=0):
    """Trains copies of a CPU model on both devices. Each step's loss and gradients and the final parameters, buffers
    and state of the optimizer must agree, to the bit unless told. Returns the work of the lazy side."""
    reference = (model, make_optimizer(model.parameters()))
    candidate_model = copy.deepcopy(model).to(DEVICE)
    candidate = (candidate_model, make_optimizer(candidate_model.parameters()))
    with work() as done:
        for step, batch in enumerate(batches):
            expected = _train_step(*reference, batch, compute_loss)
            on_device = tuple(part.to(DEVICE) for part in batch)
            actual = _train_step(*candidate, on_device, compute_loss)
            assert_same(actual, expected, f"step {step}: loss", rtol, atol)
            for (name, p), q in zip(model.named_parameters(), candidate_model.parameters(), strict=True):
                assert_same(q.grad, p.grad, f"step {step}: gradient of {name}", rtol, atol)
    for kind in ("named_parameters", "named_buffers"):
        actual, expected = (dict(getattr(m, kind)()) for m in (candidate_model, model))
        assert_same(actual, expected, kind, rtol, atol)
    states = [optimizer.state_dict()["state"] for _, optimizer in (candidate, reference)]
    assert_same(*states, "state of the optimizer", rtol, atol)
    return done


def _train_step(model, optimizer, batch, compute_loss):
    optimizer.zero_grad()
    loss = compute_loss(model, *batch)
    loss.backward()
    optimizer.step()
    return loss.detach()
