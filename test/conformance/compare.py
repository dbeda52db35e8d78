"""Runs one call on both devices and lists the differences a user can see."""

import itertools
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
import torch._lazy
from python.error_texts import say_the_same
from torch.testing._comparison import default_tolerances

import torch_lazyplug

from . import distributions
from .cases import Case, NotApplicable, map_tree, tensors_in

DEVICE = "lazy"

# The database takes every device of this name for the one inside PyTorch, and would step that.
torch._lazy.mark_step = lambda *args, **kwargs: None


@dataclass
class Difference:
    kind: str  # error, value, random, dtype, shape, strides, offset, storage, aliasing, device, type, error type, ...
    message: str


@dataclass
class Outcome:
    """What one run showed: an error, or results and inputs afterwards as trees of CPU tensors and their metadata."""

    error: Exception | None = None
    leaves: list = field(default_factory=list)
    aliases: list = field(default_factory=list)


@dataclass
class TensorLeaf:
    values: torch.Tensor
    dtype: torch.dtype
    shape: tuple
    stride: tuple | None
    offset: int | None
    nbytes: int | None  # of the storage
    device: str
    flags: tuple  # layout, conjugate, negative, requires_grad


@dataclass
class Tolerance:
    rtol: float | None = None
    atol: float | None = None


# Inputs --------------------------------------------------------------------------------------------------------------


def on_device(inputs, device):
    """Copies with the same strides, offsets and sharing: inputs that alias each other still do."""
    bases = {}

    def copy(leaf):
        if isinstance(leaf, torch.Tensor):
            return _copy_tensor(leaf, device, bases)
        if isinstance(leaf, torch.device) and leaf.type == "cpu":
            return torch.device(device)
        return device if isinstance(leaf, str) and leaf == "cpu" else leaf

    with torch.no_grad():
        return map_tree(copy, inputs)


def _copy_tensor(tensor, device, bases):
    if tensor.layout != torch.strided or tensor.device.type != "cpu" or tensor.is_quantized:
        return tensor.detach().clone().to(device if tensor.device.type == "cpu" else tensor.device)
    base = _copy_of_storage(tensor, device, bases)
    copy = base
    if base.shape != tensor.shape or base.stride() != tensor.stride():
        copy = base.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
    copy = copy.conj() if tensor.is_conj() else copy
    copy = torch._neg_view(copy) if tensor.is_neg() else copy
    return copy.requires_grad_() if tensor.requires_grad else copy


def _copy_of_storage(tensor, device, bases):
    """The whole memory behind a tensor, copied once. A tensor that covers it gets a copy of its own shape, no view."""
    key = (tensor.untyped_storage()._cdata, tensor.dtype)
    if key not in bases:
        whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
        if tensor.is_contiguous() and whole.numel() == tensor.numel():
            whole = whole.view(tensor.shape)
        bases[key] = whole.clone().to(device)
    return bases[key]


# Running -------------------------------------------------------------------------------------------------------------


def run(case: Case, device: str) -> Outcome:
    """Runs a case and reads everything back, so that whatever is wrong has shown itself."""
    try:
        inputs = on_device(case.inputs, device)
        torch.manual_seed(0)
        result = case.call(inputs)
        return Outcome(leaves=_leaves((result, inputs), device), aliases=_aliases(result, inputs))
    except NotApplicable:
        raise
    except Exception as error:
        return Outcome(error=error)
    finally:
        if device != "cpu":
            _forget_pending()


def _forget_pending():
    """What a failed run left pending must not run, or raise, inside the next one."""
    try:
        torch_lazyplug.mark_step(wait=True)
    except Exception:
        torch_lazyplug.mark_step(wait=True)


def _leaves(tree, device):
    leaves = []
    map_tree(lambda leaf: leaves.append(_leaf(leaf, device)), tree)
    return leaves


def _leaf(leaf, device) -> Any:
    if isinstance(leaf, torch.Tensor):
        return _tensor_leaf(leaf, device)
    if isinstance(leaf, torch.device):
        return leaf.type.replace(device, "cpu")
    return leaf


def _tensor_leaf(tensor, device):
    strided = tensor.layout == torch.strided
    flags = (tensor.layout, tensor.is_conj(), tensor.is_neg(), tensor.requires_grad)
    return TensorLeaf(
        values=_comparable(tensor.detach() if tensor.device.type in ("cpu", "meta") else tensor.detach().cpu()),
        dtype=tensor.dtype,
        shape=tuple(tensor.shape),
        stride=tensor.stride() if strided else None,
        offset=tensor.storage_offset() if strided else None,
        nbytes=tensor.untyped_storage().nbytes() if strided else None,
        device="device under test" if tensor.device.type == device else tensor.device.type,
        flags=flags,
    )


def _comparable(values):
    """PyTorch cannot compare numbers of this dtype."""
    return values.to(torch.complex64) if values.dtype == torch.complex32 else values


def _aliases(result, inputs):
    """Which results share storage with which inputs and results."""
    results, others = tensors_in(result), tensors_in(inputs)
    dense = [t for t in results + others if t.layout == torch.strided][:12]
    return [torch._C._is_alias_of(a, b) for a, b in itertools.combinations(dense, 2)]


# Comparing -----------------------------------------------------------------------------------------------------------


def differences(case: Case, tolerance: Tolerance, metadata_only=False) -> tuple[str, list[Difference]]:
    """("passed" | "rejected" | "random" | "inexact", differences). "rejected": the CPU raises, the device must, too."""
    expected = run(case, "cpu")
    actual = run(case, DEVICE)
    if expected.error or actual.error:
        return _compare_errors(actual, expected)
    if case.precision and tolerance == Tolerance():
        tolerance = Tolerance(*default_tolerances(case.precision))
    found = _compare_metadata(actual, expected)
    if metadata_only:
        return "random", found
    wrong, exact = _compare_values(actual, expected, tolerance)
    random = RandomLeaves(case, tolerance) if wrong else ()
    found += [
        Difference("value", f"leaf {index}: {message}") for index, message in wrong.items() if index not in random
    ]
    if random:
        return "random", found + _compare_seeds(case, actual) + _compare_distributions(case, random)
    return "passed" if exact else "inexact", found


def _compare_errors(actual, expected):
    verdict = "rejected" if expected.error else "passed"
    if not expected.error:
        return verdict, [Difference("error", _describe(actual.error))]
    if not actual.error:
        return verdict, [Difference("no error", f"the CPU raises {_describe(expected.error)}")]
    if type(actual.error) is not type(expected.error):
        message = f"{_describe(actual.error)} -- the CPU raises {_describe(expected.error)}"
        return verdict, [Difference("error type", message)]
    if not say_the_same(actual.error, expected.error):
        message = f"{_describe(actual.error)} -- the CPU raises {_describe(expected.error)}"
        return verdict, [Difference("error message", message)]
    return verdict, []


def _describe(error):
    lines = [line for line in str(error).splitlines() if line.strip()] or [""]
    return f"{type(error).__name__}: {lines[0][:300]}"


def _compare_metadata(actual, expected):
    if len(actual.leaves) != len(expected.leaves):
        return [Difference("type", f"{len(actual.leaves)} results and inputs, on the CPU {len(expected.leaves)}")]
    found = []
    for index, (a, e) in enumerate(zip(actual.leaves, expected.leaves, strict=True)):
        found += [Difference(kind, f"leaf {index}: {message}") for kind, message in _compare_leaf(a, e)]
    if not found and actual.aliases != expected.aliases:
        found.append(Difference("aliasing", f"{actual.aliases}, on the CPU {expected.aliases}"))
    return found


def _compare_leaf(actual, expected):
    if not isinstance(expected, TensorLeaf) or not isinstance(actual, TensorLeaf):
        if type(actual) is not type(expected):
            yield "type", f"{type(actual).__name__}, on the CPU {type(expected).__name__}"
        return
    for kind, name in (
        ("dtype", "dtype"),
        ("shape", "shape"),
        ("strides", "stride"),
        ("offset", "offset"),
        ("device", "device"),
        ("type", "flags"),
        ("storage", "nbytes"),
    ):
        a, e = getattr(actual, name), getattr(expected, name)
        if a != e:
            yield kind, f"{name} {a}, on the CPU {e}" + (f" (shape {expected.shape})" if kind == "strides" else "")
            return


def _compare_values(actual, expected, tolerance):
    """What differs, by leaf, and whether all bits agree."""
    found, exact = {}, True
    for index, (a, e) in enumerate(zip(actual.leaves, expected.leaves, strict=False)):
        if _same_bits(a, e):
            continue
        exact = False
        message = _mismatch(a, e, tolerance)
        if message:
            found[index] = message
    return found, exact


def _same_bits(actual, expected):
    if not isinstance(expected, TensorLeaf):
        return not isinstance(expected, (bool, int, float, complex)) or repr(actual) == repr(expected)
    if not isinstance(actual, TensorLeaf) or actual.dtype != expected.dtype or actual.shape != expected.shape:
        return False
    if expected.values.layout != torch.strided or expected.values.device.type == "meta":
        return False
    return torch.equal(actual.values, expected.values) or torch.equal(_bits(actual.values), _bits(expected.values))


def _bits(values):
    """Under which a NaN equals itself."""
    return values.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format).flatten().view(torch.uint8)


def _mismatch(actual, expected, tolerance):
    if isinstance(actual, TensorLeaf) and isinstance(expected, TensorLeaf):
        if expected.device == "meta" or actual.shape != expected.shape or actual.dtype != expected.dtype:
            return None  # already reported
        actual, expected = actual.values, expected.values
    elif not isinstance(expected, (bool, int, float, complex)):
        return None
    try:
        rtol, atol = tolerance.rtol, tolerance.atol
        torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=True, check_device=False)
    except Exception as error:
        return ". ".join(line.strip() for line in str(error).splitlines() if line.strip())[:300]
    return None


# Random ops ----------------------------------------------------------------------------------------------------------


SEEDS = range(9)
MORE_SEEDS = range(64)  # when the first few give the same, as a few numbers that are nearly certain may


class RandomLeaves(dict):
    """The leaves that differ with the seed on the CPU, and their numbers there: a row for each seed."""

    def __init__(self, case: Case, tolerance: Tolerance):
        for seeds in (SEEDS, MORE_SEEDS):
            first, *others = runs = _runs(case, "cpu", seeds)
            differing = set().union(*(_compare_values(other, first, tolerance)[0] for other in others))
            if differing:
                break
        super().__init__({index: _rows(runs, index) for index in sorted(differing)})


def _runs(case, device, seeds):
    return [_run_with_seed(case, seed, device) for seed in seeds]


def _run_with_seed(case, seed, device):
    """The database fixes the seed of some ops itself: here it gets another one."""
    manual_seed = torch.manual_seed
    with mock.patch.object(torch, "manual_seed", lambda fixed: manual_seed(fixed + seed)):
        return run(case, device)


def _rows(runs, index):
    """None if the leaf holds nothing that can be compared so."""
    leaves = [run.leaves[index] for run in runs if not run.error]
    values = [torch.as_tensor(getattr(leaf, "values", leaf)) for leaf in leaves]
    if any(v.layout != torch.strided or v.device.type != "cpu" or v.shape != values[0].shape for v in values):
        return None
    return torch.stack([distributions.numbers(v) for v in values])


def _compare_seeds(case, first):
    """The same seed must give the same numbers."""
    again = run(case, DEVICE)
    if again.error:
        return [Difference("error", f"second run: {_describe(again.error)}")]
    wrong, _ = _compare_values(again, first, Tolerance(0, 0))
    return [Difference("random", f"same seed, other numbers: leaf {i}: {text}") for i, text in wrong.items()]


def _compare_distributions(case, random):
    """With each of a few seeds, the numbers must be such as the CPU draws."""
    runs = _runs(case, DEVICE, SEEDS)
    errors = [Difference("error", f"with another seed: {_describe(run.error)}") for run in runs if run.error]
    if errors:
        return errors[:1]
    comparable = {index: (_rows(runs, index), rows) for index, rows in random.items() if rows is not None}
    return [
        Difference("random", f"leaf {index}: {problem}")
        for index, (actual, expected) in comparable.items()
        for problem in distributions.problems(actual, expected)
    ]


# Tolerances ----------------------------------------------------------------------------------------------------------


def tolerance_of(op, dtype) -> Tolerance:
    """The largest that PyTorch's own tests grant the op, or its default for the dtype."""
    overrides = list(_overrides(op, dtype))
    if not overrides:
        return Tolerance()
    rtol, atol = default_tolerances(dtype)
    return Tolerance(max([rtol, *(o.rtol for o in overrides)]), max([atol, *(o.atol for o in overrides)]))


def _overrides(op, dtype):
    for info in op.decorators or ():
        for decorator in getattr(info, "decorators", [info]):
            if getattr(info, "device_type", None) in (None, "cpu") and dtype in getattr(decorator, "d", {}):
                override = decorator.d[dtype]
                if hasattr(override, "rtol"):
                    yield override
