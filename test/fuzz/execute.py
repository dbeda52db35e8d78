"""Runs a program on the CPU and on the device, statement by statement, and compares."""

import contextlib
import functools
import re

import torch
from python.error_texts import say_the_same

from . import prelude
from .compare import Mismatch, check_metadata, check_observed, check_sharing, check_tensor
from .mode import applied
from .program import Ref, Statement, map_arguments, references


@functools.lru_cache(None)
def compiled(code):
    """The code as a function of the device and the arguments, some of which it may not use."""
    count = max((int(n) + 1 for n in re.findall(r"{(\d+)}", code)), default=0)
    names = [f"_{i}" for i in range(count)]
    text = code.format(*names)
    try:
        compile(text, code, "eval")
        text = f"return {text}"
    except SyntaxError:
        pass  # a statement
    scope = dict(vars(prelude))
    exec(f"def function({', '.join(['device', *names, '*unused'])}):\n    {text}", scope)
    return scope["function"]


class Machine:
    """A device and the variables that live there."""

    def __init__(self, device):
        self.device, self.variables = device, {}

    def call(self, statement):
        args = map_arguments(self._resolve, statement.args)
        return compiled(statement.code)(self.device, *args)

    def attempt(self, statement):
        """Returns the value, or the error."""
        try:
            return self.call(statement), None
        except Exception as error:  # noqa: BLE001  (any kind: its kind is what is compared)
            return None, error.with_traceback(None)

    def has(self, names):
        return all(name in self.variables for name in names)

    def assign(self, names, value):
        values = [value] if isinstance(value, torch.Tensor) else value or []
        for name, tensor in zip(names, values, strict=False):
            self.variables[name] = tensor

    def drop(self, names):
        for name in names:
            self.variables.pop(name, None)

    def aliases(self, names):
        """The variables that share memory with those named."""
        targets = [self.variables[name] for name in names if name in self.variables]
        return [n for n, t in self.variables.items() if any(torch._C._is_alias_of(t, x) for x in targets)]

    def _resolve(self, leaf):
        return self.variables[leaf.name] if isinstance(leaf, Ref) else leaf


class Suspect:
    """A statement that raised on the CPU and not on the device, which may do so when its results are read."""

    def __init__(self, statement, error, tensors):
        self.statement, self.error, self.tensors = statement, error, tensors

    def check(self):
        for tensor in self.tensors:
            try:
                tensor.detach().cpu()
            except Exception as error:  # noqa: BLE001
                return check_error(self.error, error, self.statement)
        raise Mismatch("no error", f"nothing raised {_told(self.error)}", self.statement)


def _told(error):
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def check_error(expected, actual, statement):
    if type(expected) is not type(actual):
        raise Mismatch("error type", f"raised {_told(actual)}, on the CPU {_told(expected)}", statement)
    if not say_the_same(actual, expected):
        raise Mismatch("error message", f"raised {_told(actual)}, on the CPU {_told(expected)}", statement)


def _is_about_indices(error):
    return any(text in str(error) for text in ("index out of range in self", "out of DATA bounds"))


def tensors_in(value):
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for item in value for t in tensors_in(item)] if isinstance(value, (list, tuple)) else []


class Comparison:
    """One run of one program on both sides."""

    def __init__(self, program, device="lazy"):
        self.program, self.blocking = program, program.mode.launch_blocking
        self.cpu, self.other = Machine("cpu"), Machine(device)
        self.suspects = []
        # Gradients and views of them: whether they are added in place depends on who else holds them.
        self.unversioned = set()
        self.uncounted = False  # a write that failed later than on the CPU has been counted as a version

    def run(self):
        self._run_all(self.program.statements)
        self._check_suspects()
        self._compare_variables()

    def _run_all(self, statements):
        for statement in statements:
            try:
                self._run(statement)
            except Mismatch as mismatch:
                mismatch.statement = mismatch.statement or statement
                raise

    def _run(self, statement):
        if not self.cpu.has(references(statement.args)) or (self.uncounted and ".backward(" in statement.code):
            return
        if statement.kind == "call":
            self._run_call(statement)
        elif statement.kind == "if":
            self._run_if(statement)
        elif statement.kind == "for":
            for _ in range(statement.args[0]):
                self._run_all(statement.body)
        else:
            with torch.no_grad():
                self._run_all(statement.body)

    def _run_if(self, statement):
        taken = self._run_call(statement)
        if taken:
            self._run_all(statement.body)

    def _run_call(self, statement):
        if "wait=True" in statement.code:
            self._check_suspects()
        expected, expected_error = self.cpu.attempt(statement)
        actual, actual_error = self.other.attempt(statement)
        if expected_error is not None:
            return self._after_error(statement, expected_error, actual, actual_error)
        if actual_error is not None:
            raise Mismatch("raises", _told(actual_error), statement)
        self._after_success(statement, expected, actual)
        return expected

    def _after_success(self, statement, expected, actual):
        if isinstance(expected, torch.Tensor) or statement.results:
            self.cpu.assign(statement.results, expected)
            self.other.assign(statement.results, actual)
        elif not statement.writes:
            check_observed(expected, actual)
        if statement.code == "{0}.grad" or self.unversioned.intersection(self.cpu.aliases(statement.results)):
            self.unversioned.update(statement.results)
        for name in (*statement.results, *statement.writes):
            if name in self.cpu.variables:
                self._check_metadata(name)
        self._check_identity(statement, expected, actual)

    def _check_identity(self, statement, expected, actual):
        if statement.writes and isinstance(expected, torch.Tensor):
            target = statement.writes[0]
            same = expected is self.cpu.variables.get(target)
            if same != (actual is self.other.variables.get(target)):
                raise Mismatch("identity", f"returns {target} itself on one side only", statement)

    def _after_error(self, statement, expected_error, actual, actual_error):
        if actual_error is not None:
            self._check_error(expected_error, actual_error, statement)
        else:
            self._suspect(statement, expected_error, actual)
        if actual_error is None or statement.fragile:
            names = self.cpu.aliases(statement.writes)
            self.cpu.drop(names)
            self.other.drop(names)

    def _check_error(self, expected, actual, statement):
        """Of several ops, the CPU may fail over data in an earlier one. If a later one fails, the device never runs the
        earlier one, or tells of it when somebody waits."""
        reads_first = "{0}.index_select" in statement.code and _is_about_indices(expected)
        if self.blocking or not reads_first:
            check_error(expected, actual, statement)
        else:
            finish_pending(self.other.device)

    def _suspect(self, statement, error, actual):
        if self.blocking:
            raise Mismatch("no error", f"not raised in blocking mode: {_told(error)}", statement)
        self.uncounted = self.uncounted or bool(statement.writes)
        targets = [self.other.variables[name] for name in statement.writes if name in self.other.variables]
        if ".backward(" in statement.code:
            targets = [t.grad for t in self.other.variables.values() if t.grad is not None]
        self.suspects.append(Suspect(statement, error, tensors_in(actual) + targets))
        if not self.program.read_errors_late:
            self._check_suspects()

    def _check_suspects(self):
        suspects, self.suspects = self.suspects, []
        for suspect in suspects:
            suspect.check()
        if suspects:
            finish_pending(self.other.device)  # a statement may have failed in several ops

    def _compare_variables(self):
        for name in self.cpu.variables:
            self._check_metadata(name)
        check_sharing(self.cpu.variables, self.other.variables)
        for name, tensor in self.cpu.variables.items():
            self._compare_contents(name, tensor, self.other.variables[name])

    def _check_metadata(self, name):
        any_version = self.uncounted or name in self.unversioned
        check_metadata(name, self.cpu.variables[name], self.other.variables[name], any_version)

    def _compare_contents(self, name, expected, actual):
        read = Statement("{0}.detach().cpu()", (Ref(name),))
        error = self.cpu.attempt(read)[1]
        if error is not None:
            return check_error(error, self.other.attempt(read)[1], None)
        try:
            check_tensor(name, expected, actual)
        except Mismatch:
            raise
        except Exception as error:  # noqa: BLE001
            raise Mismatch("raises", f"reading {name}: {_told(error)}") from None


def run(program, device="lazy"):
    """The mismatch of a program, or None. Whatever it has left pending is finished, so that it hurts no other."""
    with applied(program.mode, device):
        try:
            for _ in range(program.runs):
                Comparison(program, device).run()
        except Mismatch as mismatch:
            return mismatch
    return None


def finish_pending(device):
    with contextlib.suppress(Exception):
        prelude.mark_step(device, wait=True)
