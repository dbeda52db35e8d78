"""Running a program whole on one device, and comparing what has become of it."""

import contextlib
import dataclasses
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils._pytree import keystr, tree_flatten_with_path

from torch_lazyplug import _C, config
from torch_lazyplug.bisection.copies import Copies
from torch_lazyplug.bisection.differences import Difference, Tolerances, find_difference
from torch_lazyplug.bisection.locations import line_of_error

__all__ = ["Outcome", "Program", "find_difference_of_outcomes", "generators_restored"]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Of one run: every value that it left, by name, or the error that it raised, and the user's line that did."""

    values: dict[str, Any]
    error: Exception | None = None
    line: str = ""


class Program:
    """A function and its arguments, to be run on fresh copies of these."""

    def __init__(self, fn: Callable[..., Any], inputs: Sequence[Any], seed: int) -> None:
        self._fn, self._inputs, self._seed = fn, tuple(inputs), seed

    def run(self, device: torch.device, mode: Any = None, settings: dict[str, Any] | None = None) -> Outcome:
        """Runs on copies on ``device``, under a mode and with other settings, until all results are on the CPU."""
        with config.changed(settings or {}):
            copies = Copies(device)
            fn, inputs = copies.of((self._fn, self._inputs))
            self._seed_generators()
            try:
                with mode or contextlib.nullcontext():
                    results = fn(*inputs)
                return Outcome({**_values("result", results), **_values("inputs", inputs), **_values("fn", fn)})
            except Exception as error:
                return Outcome({}, error, line_of_error(error))
            finally:
                _finish_pending()

    def _seed_generators(self) -> None:
        torch.manual_seed(self._seed)
        random.seed(self._seed)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(self._seed % 2**32)


def _finish_pending() -> None:
    # What fails now belongs to a run that has been judged.
    with contextlib.suppress(Exception):
        _C._lazy._mark_step("", [], True)


@contextlib.contextmanager
def generators_restored() -> Iterator[None]:
    """Has the global generators of PyTorch, its lazy devices, Python and NumPy go on where they were."""
    lazy_states = torch.lazy.get_rng_state_all()  # type: ignore[attr-defined]
    cpu_state, python_state = torch.get_rng_state(), random.getstate()
    numpy = sys.modules.get("numpy")
    numpy_state = numpy.random.get_state() if numpy else None
    try:
        yield
    finally:
        torch.set_rng_state(cpu_state)
        torch.lazy.set_rng_state_all(lazy_states)  # type: ignore[attr-defined]
        random.setstate(python_state)
        if numpy:
            numpy.random.set_state(numpy_state)


def _values(name: str, tree: Any) -> dict[str, Any]:
    """The tensors, their gradients, and other values of nested containers and modules, copied to the CPU, by name."""
    values: dict[str, Any] = {}
    for path, leaf in tree_flatten_with_path(tree)[0]:
        where = name + keystr(path)
        if isinstance(leaf, torch.nn.Module):
            for key, tensor in (*leaf.named_parameters(), *leaf.named_buffers()):
                _add(values, f"{where}.{key}", tensor)
        else:
            _add(values, where, leaf)
    return values


def _add(values: dict[str, Any], name: str, leaf: Any) -> None:
    if not isinstance(leaf, torch.Tensor):
        values[name] = leaf
        return
    values[name] = leaf.detach().cpu()
    if leaf.is_leaf and leaf.grad is not None:
        values[f"{name}.grad"] = leaf.grad.detach().cpu()


def find_difference_of_outcomes(actual: Outcome, expected: Outcome, tolerances: Tolerances) -> Difference | None:
    """What the device's run differs in from the other, or None. Errors are equal if their types are."""
    errors = [type(outcome.error).__name__ if outcome.error else "no error" for outcome in (actual, expected)]
    if errors[0] != errors[1]:
        return Difference("error", f"{_describe_error(actual)} instead of {_describe_error(expected)}")
    if list(actual.values) != list(expected.values):
        names = sorted(set(actual.values) ^ set(expected.values))
        return Difference("result", f"only one device has {', '.join(names)}" if names else "comes in another order")
    differences = (
        find_difference(name, actual.values[name], expected.values[name], tolerances) for name in expected.values
    )
    return next((difference for difference in differences if difference is not None), None)


def _describe_error(outcome: Outcome) -> str:
    return f"{type(outcome.error).__name__} ({outcome.error})" if outcome.error else "no error"
