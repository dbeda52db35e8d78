"""One process: runs all calls of one cell (op x variant x dtype) and says what came out."""

import faulthandler
import os
import re
import time
import warnings
from dataclasses import asdict, dataclass, field

import torch
from python.absent_devices import leave_unseeded

from . import compare
from .cases import DTYPES, LARGER_ON_CPU, UNINITIALIZED, NotApplicable, cases_of, ops

metrics = compare.torch_lazyplug.metrics


@dataclass(frozen=True)
class Cell:
    op: str
    variant: str
    dtype: str


@dataclass
class Result:
    op: str
    variant: str
    dtype: str
    status: str = "passed"  # passed, failed, crashed, timeout, none (nothing the CPU can do)
    cases: int = 0  # that the CPU passes
    rejected: int = 0  # that the CPU rejects
    inexact: int = 0  # equal within the tolerance only
    random: int = 0
    failures: list = field(default_factory=list)  # {"case", "kind", "message"}
    fallbacks: dict = field(default_factory=dict)  # op that ran on the CPU: why
    seconds: float = 0.0


# Fallbacks -----------------------------------------------------------------------------------------------------------

_WARNING = re.compile(
    r"(\w+::\S+) runs on the CPU at once instead of being recorded: (.*?)(?: \(at .*)?(?: \(Trigg.*)?$"
)
_reasons: dict[str, str] = {}  # the plugin says each reason once


def _note_reason(message, *_args, **_kwargs):
    match = _WARNING.match(str(message).splitlines()[0])
    if match:
        _reasons[match[1]] = match[2]
        _reasons.setdefault(match[1].split(".")[0], match[2])


def _fallback_counts():
    return {name: metrics.counter_value(name) or 0 for name in metrics.executed_fallback_ops()}


def _new_fallbacks(before):
    return {name: _reasons.get(name, "") for name, count in _fallback_counts().items() if count > before.get(name, 0)}


# Running -------------------------------------------------------------------------------------------------------------


def run_cell(cell: Cell, limit: int | None) -> Result:
    op, dtype = ops()[cell.op], DTYPES[cell.dtype]
    result = Result(cell.op, cell.variant, cell.dtype)
    start, before = time.monotonic(), _fallback_counts()
    try:
        for case in cases_of(op, cell.variant, dtype, limit):
            _run_case(op, dtype, case, result)
    except NotApplicable:
        pass
    except Exception as error:  # the database cannot make samples of this kind
        result.failures.append({"case": "", "kind": "samples", "message": f"{type(error).__name__}: {error}"[:300]})
    result.status = _status(result)
    result.fallbacks = _new_fallbacks(before)
    result.seconds = round(time.monotonic() - start, 3)
    return result


def _run_case(op, dtype, case, result):
    tolerance = compare.tolerance_of(op, dtype)
    verdict, found = compare.differences(case, tolerance, metadata_only=op.name in UNINITIALIZED)
    result.cases += verdict != "rejected"
    result.rejected += verdict == "rejected"
    result.inexact += verdict == "inexact"
    result.random += verdict == "random"
    known = {"storage"} if op.name in LARGER_ON_CPU else set()
    result.failures += [
        {"case": case.label, "kind": d.kind, "message": d.message} for d in found if d.kind not in known
    ]


def _status(result):
    if any(failure["kind"] != "samples" for failure in result.failures):
        return "failed"
    return "passed" if result.cases or result.rejected else "none"


def serve(connection, stderr_path, limit):
    """Answers cells with results until the driver hangs up."""
    stderr = os.open(stderr_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(stderr, 2)
    faulthandler.enable()
    torch.set_num_threads(1)
    leave_unseeded()
    warnings.simplefilter("always")
    warnings.showwarning = _note_reason
    # The samples of an op differ in sizes. Each is to be recorded: that is what is tested.
    compare.torch_lazyplug.config.set("max_size_variants", 0)
    while True:
        try:
            cell = connection.recv()
        except EOFError:
            return
        connection.send(asdict(run_cell(cell, limit)))
