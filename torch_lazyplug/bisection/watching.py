"""Modes that see each op of a program: one notes what is called, the other has the CPU compute it as well."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from torch_lazyplug.bisection.copies import Copies
from torch_lazyplug.bisection.differences import Difference, Tolerances, describe_tensor, find_difference
from torch_lazyplug.bisection.finding import Finding
from torch_lazyplug.bisection.locations import current_line

__all__ = ["CallLog", "OpChecker"]

_CPU = torch.device("cpu")

# Ops that are not for two devices to do alike: they communicate, keep books, or ask for the device itself.
_APART = ("c10d::", "_c10d_functional::", "symm_mem::", "profiler::", "prim::")
_DEVICE_QUESTIONS = ("aten::_has_compatible_shallow_copy_type", "aten::is_pinned", "aten::record_stream")

# What they return, or add to what they are given, is not initialised.
_UNINITIALISED = ("aten::empty", "aten::new_empty", "aten::resize_", "aten::resize_as_", "aten::_resize_output_")

# Results that only the op's own backward reads, and which are not written as a whole.
_SCRATCH = {"aten::mkldnn_rnn_layer": ("result[3]",)}


class CallLog(TorchDispatchMode):
    """Notes the names of the ops that are called, each with the user's line."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, str]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append((_name_of(func), current_line()))
        return self.call(func, args, kwargs or {})

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs the op."""
        return func(*args, **kwargs)


class OpChecker(CallLog):
    """Runs each op of the lazy device when it is called, and on the CPU with the same operands; compares the two.

    ``finding`` is the first difference, or None; after it nothing is compared any more. ``draws``: whether the device
    drew random numbers, which are not compared.
    """

    def __init__(self, tolerances: Tolerances) -> None:
        super().__init__()
        self.finding: Finding | None = None
        self.draws = False
        self._tolerances = tolerances

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs the op on both devices; returns or raises what it does on the lazy one."""
        if self.finding is not None or not _can_be_compared(func, args, kwargs):
            return func(*args, **kwargs)
        call = _Call(func, args, kwargs)
        self.draws = self.draws or call.draws
        expected = call.on_cpu()
        actual = call.on_device()
        self.finding = call.compare(actual, expected, self._tolerances)
        if actual.error is not None:
            raise actual.error
        return actual.result


@dataclasses.dataclass
class _Attempt:
    """What a call has done on one device: ``values`` are CPU tensors and numbers by name, ``aliases`` tell which
    arguments each returned tensor shares memory with."""

    result: Any = None
    error: Exception | None = None
    values: dict[str, Any] = dataclasses.field(default_factory=dict)
    aliases: dict[str, list[int]] = dataclasses.field(default_factory=dict)


class _Call:
    """One call of an op on the lazy device, and the same on copies of its operands as they are before it runs."""

    def __init__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._func, self._args, self._kwargs = func, args, kwargs
        self.draws = torch.Tag.nondeterministic_seeded in func.tags
        self._has_values = not (self.draws or _name_of(func).split(".")[0].startswith(_UNINITIALISED))
        self._operands = _describe_operands(func, args, kwargs)
        copies = Copies(_CPU, with_autograd=False)
        self._cpu_args, self._cpu_kwargs = tree_map(_argument_for_cpu, copies.of((args, kwargs)))

    def on_cpu(self) -> _Attempt:
        # The program's own draws from the CPU's generator must not notice.
        with torch.random.fork_rng(devices=[]):
            return self._attempt(self._cpu_args, self._cpu_kwargs)

    def on_device(self) -> _Attempt:
        return self._attempt(self._args, self._kwargs)

    def _attempt(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Attempt:
        attempt = _Attempt()
        try:
            attempt.result = self._func(*args, **kwargs)
            named = {**_named("result", attempt.result), **self._written(args, kwargs)}
            attempt.values = {name: _value(leaf) for name, leaf in named.items()}
            attempt.aliases = _aliases(named, _tensors((args, kwargs)))
        except Exception as error:
            attempt.error = error
        return attempt

    def _written(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        named: dict[str, Any] = {}
        for i, argument in enumerate(self._func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                value = args[i] if i < len(args) else kwargs.get(argument.name)
                named.update(_named(argument.name, value))
        return named

    def compare(self, actual: _Attempt, expected: _Attempt, tolerances: Tolerances) -> Finding | None:
        """What the device does otherwise than the CPU, or None."""
        if isinstance(expected.error, NotImplementedError):
            return None  # it is not for the CPU
        if (actual.error is None) != (expected.error is None):
            return self._finding("error", detail=_whose_error(actual.error, expected.error))
        if actual.error is not None:
            return None
        difference = self._difference(actual, expected, tolerances)
        return self._finding("op", difference=difference) if difference else None

    def _difference(self, actual: _Attempt, expected: _Attempt, tolerances: Tolerances) -> Difference | None:
        if list(actual.values) != list(expected.values):
            return Difference("result", f"has {list(actual.values)} instead of {list(expected.values)}")
        for name, value in expected.values.items():
            with_values = self._has_values and name not in _SCRATCH.get(_name_of(self._func), ())
            difference = find_difference(name, actual.values[name], value, tolerances, with_values)
            difference = difference or _difference_of_aliases(name, actual.aliases, expected.aliases)
            if difference is not None:
                return difference
        return None

    def _finding(self, kind: str, difference: Difference | None = None, detail: str = "") -> Finding:
        return Finding(kind, _name_of(self._func), current_line(), self._operands, difference, detail=detail)


def _name_of(func: Any) -> str:
    """Such as ``aten::add.Tensor``."""
    schema = func._schema
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)


def _can_be_compared(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if _name_of(func).startswith((*_APART, *_DEVICE_QUESTIONS)):
        return False
    leaves = tree_leaves((args, kwargs))
    devices = {device.type for device in map(_device_of, leaves) if device is not None}
    return "lazy" in devices <= {"lazy", "cpu"} and all(map(_has_plain_memory, _tensors(leaves)))


def _has_plain_memory(tensor: torch.Tensor) -> bool:
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    return plain and not (tensor.is_nested or tensor._is_zerotensor())


def _device_of(leaf: Any) -> torch.device | None:
    """The device that an argument lies on, or names."""
    device = leaf.device if isinstance(leaf, torch.Tensor) else leaf
    return device if isinstance(device, torch.device) else None


def _argument_for_cpu(leaf: Any) -> Any:
    if isinstance(leaf, torch.Generator):
        return leaf.clone_state() if leaf.device.type == "cpu" else torch.Generator()
    return _CPU if isinstance(leaf, torch.device) and leaf.type == "lazy" else leaf


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _named(name: str, tree: Any) -> dict[str, Any]:
    """The leaves by name: that of the tree, numbered if there are several."""
    leaves = tree_leaves(tree)
    return {name if len(leaves) == 1 else f"{name}[{i}]": leaf for i, leaf in enumerate(leaves)}


def _value(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return torch.zeros(leaf.shape, dtype=leaf.dtype) if leaf._is_zerotensor() else leaf.detach().cpu()


def _storage_of(tensor: torch.Tensor) -> int | None:
    return tensor.untyped_storage()._cdata if torch._C._has_storage(tensor) else None


def _aliases(named: dict[str, Any], arguments: Sequence[torch.Tensor]) -> dict[str, list[int]]:
    """Of each tensor, the numbers of the arguments that it shares memory with."""
    storages = [_storage_of(argument) for argument in arguments]
    return {
        name: [i for i, storage in enumerate(storages) if storage is not None and storage == _storage_of(leaf)]
        for name, leaf in named.items()
        if isinstance(leaf, torch.Tensor)
    }


def _difference_of_aliases(
    name: str, actual: dict[str, list[int]], expected: dict[str, list[int]]
) -> Difference | None:
    shared = [aliases.get(name, []) for aliases in (actual, expected)]
    if shared[0] == shared[1]:
        return None
    listed = [f"arguments {aliases}" if aliases else "no argument" for aliases in shared]
    return Difference(name, f"shares memory with {listed[0]} instead of {listed[1]}")


def _describe_operands(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, ...]:
    names = [argument.name for argument in func._schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    return tuple(f"{name}: {_describe(value)}" for name, value in given.items() if value is not None)


def _describe(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        device = "" if value.device.type == "lazy" else f" on {value.device}"
        return describe_tensor(value) + device
    if isinstance(value, (list, tuple)) and _tensors(value):
        return f"[{', '.join(map(_describe, value))}]"
    if isinstance(value, torch.UntypedStorage):
        return f"{value.nbytes()} bytes of memory"
    return repr(value)


def _whose_error(actual: Exception | None, expected: Exception | None) -> str:
    error, device, other = (actual, "lazy", "the CPU") if actual is not None else (expected, "the CPU", "lazy")
    return f"on {device}, not on {other}: {type(error).__name__}: {error}"
