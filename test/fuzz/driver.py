"""Spreads seeds over worker processes, outlives their crashes and hangs, and shrinks what failed."""

import contextlib
import json
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import re
import signal
import sys
import tempfile
import time

import torch

from . import programs, worker
from .program import Program

# Forked from this process, which has everything imported already. It must never run a program itself: neither the
# device nor autograd's threads survive a fork.
_processes = multiprocessing.get_context("fork")


def warm_up():
    """Imports what the device would import at its first op, once instead of in every process."""
    meta = torch.empty(2, 2, device="meta")
    for op in (torch.relu, torch.sum, torch.nn.functional.gelu):
        op(meta + 1)


def cause_of_death(process, stderr=None):
    process.join(timeout=5)
    code = process.exitcode
    name = signal.Signals(-code).name if code and code < 0 else f"exit code {code}"
    last = pathlib.Path(stderr).read_text(errors="replace").strip()[-400:] if stderr else ""
    return f"{name} {' '.join(last.split())}".strip()


def whereabouts(process, stderr):
    """What a process that hangs is doing: how each of its threads waits, and its Python stack."""
    threads = []
    with contextlib.suppress(OSError):  # a thread, or all of them, may end meanwhile
        os.kill(process.pid, worker.TELL)
        time.sleep(1)
        for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir():
            name, state, waits_in = ((task / part).read_text().strip() for part in ("comm", "stat", "wchan"))
            threads.append(f"{name} {state.rpartition(')')[2].split()[0]} {waits_in}")
    stack = pathlib.Path(stderr).read_text(errors="replace").strip()[-2000:]
    return "; ".join(threads) + "\n" + stack


class Worker:
    def __init__(self, driver):
        descriptor, self.stderr = tempfile.mkstemp(prefix="fuzz")
        os.close(descriptor)
        self.shared = worker.Shared(_processes)
        self.connection, theirs = _processes.Pipe()
        args = (self.shared, driver.counter, driver.last, driver.device, driver.campaign, theirs, self.stderr)
        self.process = _processes.Process(target=worker.serve, args=args, daemon=True)
        self.process.start()
        theirs.close()

    def stuck(self, timeout):
        return self.shared.seed.value >= 0 and time.monotonic() - self.shared.since.value > timeout

    def end(self):
        self.connection.close()
        self.process.kill()
        self.process.join()
        pathlib.Path(self.stderr).unlink(missing_ok=True)


class Driver:
    """Runs the seeds from `first` up to `last`; `failures` has one dictionary for each that failed."""

    def __init__(self, first, last, campaign, device="lazy", jobs=1, timeout=20.0):
        self.first, self.last, self.campaign, self.device, self.timeout = first, last, campaign, device, timeout
        self.counter = _processes.Value("q", first)
        self.failures, self.finished = [], 0
        self.start = self.told = time.monotonic()
        self.workers = [Worker(self) for _ in range(jobs)]

    def run(self):
        """Until all is done, or somebody interrupts it."""
        with contextlib.suppress(KeyboardInterrupt):
            self._run()
        for each in list(self.workers):
            self._remove(each)
        return self.failures

    def _run(self):
        while self.workers:
            ready = multiprocessing.connection.wait([w.connection for w in self.workers], timeout=0.5)
            for each in list(self.workers):
                if each.connection in ready:
                    self._receive(each)
                elif each.stuck(self.timeout):
                    detail = f"more than {self.timeout} s: {whereabouts(each.process, each.stderr)}"
                    self._bury(each, "timeout", detail)
            self._report()

    def _receive(self, each):
        try:
            failure = each.connection.recv()
        except (EOFError, OSError):
            self._bury(each, "crash", cause_of_death(each.process, each.stderr))
        else:
            if failure is None:
                self._remove(each)
            else:
                self._fail(failure)

    def _bury(self, each, kind, detail):
        self._fail({"seed": each.shared.seed.value, "kind": kind, "detail": detail, "code": ""})
        self._remove(each)
        self.workers.append(Worker(self))

    def _fail(self, failure):
        self.failures.append(failure)
        print(f"seed {failure['seed']}: {failure['kind']}: {failure['detail'][:300]}", file=sys.stderr, flush=True)

    def _remove(self, each):
        self.finished += each.shared.done.value
        self.workers.remove(each)
        each.end()

    def done(self):
        return self.finished + sum(w.shared.done.value for w in self.workers)

    def _report(self):
        now = time.monotonic()
        if now - self.told > 10:
            self.told = now
            rate = self.done() / (now - self.start)
            print(f"{self.done()} programs, {len(self.failures)} failures, {rate:.0f}/s", file=sys.stderr, flush=True)


# Shrinking -----------------------------------------------------------------------------------------------------------


class Judge:
    """Runs one program in a fresh process."""

    def __init__(self, device, timeout=20.0):
        self.device, self.timeout = device, timeout

    def __call__(self, program):
        return self.ask(worker.verdict, program, self.device, timeout=self.timeout)

    def ask(self, function, *args, timeout=300.0):
        """What a function of worker.py answers, or the failure that kept it from answering."""
        ours, theirs = _processes.Pipe()
        process = _processes.Process(target=function, args=(theirs, *args))
        process.start()
        theirs.close()
        answer = self._receive(ours, process, timeout)
        process.kill()
        process.join()
        return answer

    def _receive(self, connection, process, timeout):
        if not connection.poll(timeout):
            return {"kind": "timeout", "detail": "", "code": ""}
        with contextlib.suppress(EOFError, OSError):
            return connection.recv()
        return {"kind": "crash", "detail": cause_of_death(process), "code": ""}


def shrink(failure, device, campaign):
    """Returns the smallest program found and its failure, or None for it if the seed alone does not fail."""
    judge = Judge(device)
    program = judge.ask(worker.send_program, failure["seed"], campaign)
    if isinstance(program, dict):  # it kills the CPU
        return Program(failure["seed"], ()), None
    first = judge(program)
    if first is None:
        return program, None
    fatal = first["kind"] in ("crash", "timeout")
    smaller = _shrink_here(judge, program, first) if fatal else judge.ask(worker.shrink, program, first, device)
    smallest = None if isinstance(smaller, dict) else judge(smaller)
    return (smaller, smallest) if worker.same(smallest, first) else (program, first)


def _shrink_here(judge, program, failure):
    """A process for each attempt, because the failing ones die."""
    return programs.shrink_with(lambda candidate: worker.same(judge(candidate), failure), program, budget=200)


def group_key(failure):
    """Failures that look alike. Names and numbers do not matter, nor does the op if an error is told."""
    told = re.sub(r"\bt\d+\b|-?\d+", "#", failure["detail"])[:100]
    return failure["kind"], told if "Error" in told else failure["code"]


def choose(failures, each):
    """The first few of each group, crashes first."""
    groups = {}
    for failure in sorted(failures, key=lambda f: (f["kind"] not in ("crash", "timeout"), f["seed"])):
        groups.setdefault(group_key(failure), []).append(failure)
    return [failure for group in groups.values() for failure in group[:each]]


def save(directory, program, failure):
    path = pathlib.Path(directory)
    path.mkdir(parents=True, exist_ok=True)
    (path / f"seed-{program.seed}.py").write_text(programs.script(program, f"{failure['kind']}: {failure['detail']}"))
    with open(path / "failures.jsonl", "a") as file:
        print(json.dumps(failure), file=file)
