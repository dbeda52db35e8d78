"""The search for the first place where the devices part."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_lazyplug import _C
from torch_lazyplug.bisection.differences import Difference, Tolerances
from torch_lazyplug.bisection.finding import Finding
from torch_lazyplug.bisection.runs import Outcome, Program, find_difference_of_outcomes, generators_restored
from torch_lazyplug.bisection.switches import Switch, switches
from torch_lazyplug.bisection.watching import CallLog, OpChecker
from torch_lazyplug.lazy.devices import current_device

__all__ = ["bisect"]

_CPU = torch.device("cpu")


def bisect(
    fn: Callable[..., Any],
    inputs: Any = (),
    *,
    rtol: float | None = None,
    atol: float | None = None,
    seed: int = 0,
) -> Finding:
    """Runs ``fn(*inputs)`` on the CPU and on the lazy device, and finds the first op, or the pass, where they part.

    Compared are what ``fn`` returns, its inputs afterwards, and gradients of leaves. If they differ, the program runs
    again op by op, and each op also on the CPU with the same operands: the first that differs is named, with the user's
    line. If there is none, the program runs once for each setting that leaves something out, such as a pass.

    ``inputs`` is a tuple or list of arguments (anything else is the only argument): tensors of any device, modules, and
    nested tuples, lists and dicts of these. Each run has copies of its own, which share memory as the originals do;
    ``fn`` itself may be a module. ``fn`` must take its device from its inputs, and should neither read nor change
    anything else; it may call backward, write in place and make optimizers.

    The tolerances are absolute and relative, as in ``torch.testing.assert_close``, and by default the same; NaN equals
    NaN. All generators are seeded with ``seed``. The devices draw other random numbers, so ops that draw are compared
    in shape and dtype only, and a program that draws on the device is compared with its own run op by op.

    Ops on other threads, of tensor subclasses, and collectives are not compared. Settings and generators are as before
    afterwards. Raises ``TypeError`` for an optimizer among the inputs, and the error of work that was pending.
    """
    _C._lazy._mark_step("", [], True)
    given = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
    with generators_restored():
        return _Search(Program(fn, given, seed), Tolerances(rtol, atol)).find()


class _Search:
    def __init__(self, program: Program, tolerances: Tolerances) -> None:
        self._program, self._tolerances = program, tolerances
        self._lazy = torch.device("lazy", current_device())

    def find(self) -> Finding:
        log = CallLog()
        on_cpu = self._program.run(_CPU, log)
        whole = self._program.run(self._lazy)
        if self._difference(whole, on_cpu) is None:
            return Finding("equal")
        checker = OpChecker(self._tolerances)
        watched = self._program.run(self._lazy, checker)
        if checker.finding is not None:
            return checker.finding
        if checker.draws:
            return self._judge_by(watched, whole, "random numbers were drawn: compared with the run op by op")
        difference = self._difference(watched, on_cpu)
        if difference is not None:
            return _without_a_wrong_op(difference, watched, on_cpu, _first_other_call(checker.calls, log.calls))
        return self._judge_by(watched, whole, "")

    def _difference(self, actual: Outcome, expected: Outcome) -> Difference | None:
        return find_difference_of_outcomes(actual, expected, self._tolerances)

    def _judge_by(self, reference: Outcome, whole: Outcome, detail: str) -> Finding:
        """The whole run must do what the run op by op did, of which each op was right."""
        difference = self._difference(whole, reference)
        if difference is None:
            return Finding("equal", detail=detail)
        if self._difference(self._program.run(self._lazy), reference) is None:
            return Finding("schedule", difference=difference, detail="the next run, with the same settings, was right")
        mending = [switch for switch in switches() if self._mends(switch, reference)]
        if not mending:
            return Finding("unexplained", difference=difference, detail="it stays with all passes and schedules off")
        return _blame(mending, difference, detail)

    def _mends(self, switch: Switch, reference: Outcome) -> bool:
        return self._difference(self._program.run(self._lazy, settings=switch.settings), reference) is None


def _blame(mending: list[Switch], difference: Difference, detail: str) -> Finding:
    first = mending[0]
    details = [detail] if detail else []
    if not first.is_single:
        details.append("no single setting mends it")
    return Finding(
        first.kind,
        difference=difference,
        pass_name=first.name,
        mended_by=tuple(map(str, mending)),
        detail="; ".join(details),
    )


def _without_a_wrong_op(difference: Difference, watched: Outcome, on_cpu: Outcome, other_calls: str) -> Finding:
    """Each op is right, and yet the run op by op is not the CPU's: the program does something else on the device."""
    kind = "error" if (watched.error is None) != (on_cpu.error is None) else "unexplained"
    return Finding(kind, location=watched.line or on_cpu.line, difference=difference, detail=other_calls)


def _first_other_call(actual: Sequence[tuple[str, str]], expected: Sequence[tuple[str, str]]) -> str:
    """Where the devices call different ops, which PyTorch does by design here and there."""
    for (name, line), (cpu_name, cpu_line) in zip(actual, expected, strict=False):
        if name != cpu_name:
            return f"the first call that differs is {name} at {line}, on the CPU {cpu_name} at {cpu_line}"
    return "each op alone is right, and the devices call the same ops"
