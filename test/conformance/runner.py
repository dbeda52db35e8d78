"""The driver: hands cells to worker processes, and outlives their crashes and hangs."""

import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import tempfile
import time
from collections import deque
from dataclasses import asdict

from . import worker
from .worker import Cell, Result

# Started from this process, which has not touched the device, workers have everything imported already.
_processes = multiprocessing.get_context("fork")


class Worker:
    """A process and the cells it still has to do, the current one first."""

    def __init__(self, limit, directory):
        self.limit, self.directory = limit, directory
        self.cells: deque[Cell] = deque()
        self.retrying = False
        self.start()

    def start(self):
        handle, self.stderr = tempfile.mkstemp(dir=self.directory)
        os.close(handle)
        self.connection, theirs = _processes.Pipe()
        self.process = _processes.Process(target=worker.serve, args=(theirs, self.stderr, self.limit), daemon=True)
        self.process.start()
        theirs.close()

    def send_next(self):
        self.started = time.monotonic()
        self.connection.send(self.cells[0])

    def stop(self):
        self.connection.close()
        self.process.kill()
        self.process.join()

    def cause_of_death(self):
        self.process.join(timeout=5)
        code = self.process.exitcode
        name = signal.Signals(-code).name if code and code < 0 else f"exit code {code}"
        return f"{name}: {_last_words(self.stderr)}"


def _last_words(path):
    """What the process wrote before it died: an exception's text, else its innermost Python frame."""
    with open(path, errors="replace") as file:
        lines = [line.strip() for line in file if line.strip()]
    told = [line for line in lines if "what():" in line or "terminate called" in line or "Assert" in line]
    frames = [line for line in lines if line.startswith("File")]
    return " | ".join(told[-2:] + frames[:2])[:400]


class Driver:
    def __init__(self, cells_by_op, jobs, limit, timeout, emit, directory):
        self.queue = deque(cells_by_op)
        self.total, self.done = sum(map(len, cells_by_op)), 0
        self.timeout, self.emit = timeout, emit
        self.results: list[dict] = []
        self.workers = [Worker(limit, directory) for _ in range(min(jobs, len(cells_by_op)))]

    def run(self):
        for each in list(self.workers):
            self._advance(each)
        while self.workers:
            ready = multiprocessing.connection.wait([w.connection for w in self.workers], timeout=1)
            for each in list(self.workers):
                if each.connection in ready:
                    self._receive(each)
                elif time.monotonic() - each.started > self.timeout:
                    self._give_up(each)
        return self.results

    def _advance(self, each):
        if not each.cells and self.queue:
            each.cells.extend(self.queue.popleft())
        if each.cells:
            each.send_next()
        else:
            each.stop()
            self.workers.remove(each)

    def _receive(self, each):
        try:
            result = each.connection.recv()
        except (EOFError, OSError):
            self._survive(each)
            return
        if each.retrying:
            result["failures"].append(each.retrying)
            result["status"] = "crashed"
        self._record(each, result)

    def _survive(self, each):
        """After a crash, tries the cell once more in a process of its own: was it to blame, or what ran before?"""
        failure = {"case": "", "kind": "crash", "message": each.cause_of_death()}
        each.stop()
        each.start()
        if each.retrying:
            self._record(each, asdict(Result(*_names(each.cells[0]), status="crashed", failures=[failure])))
        else:
            each.retrying = failure | {"message": f"only after other cells: {failure['message']}"}
            each.send_next()

    def _give_up(self, each):
        os.kill(each.process.pid, signal.SIGABRT)
        failure = {"case": "", "kind": "timeout", "message": each.cause_of_death()}
        each.stop()
        each.start()
        self._record(each, asdict(Result(*_names(each.cells[0]), status="timeout", failures=[failure])))

    def _record(self, each, result):
        each.retrying = False
        each.cells.popleft()
        self.results.append(result)
        self.emit(result)
        self.done += 1
        if self.done % 200 == 0 or result["status"] in ("crashed", "timeout"):
            note = f"{result['status']} {result['op']} {result['variant']} {result['dtype']}"
            print(f"[{self.done}/{self.total}] {note}", file=sys.stderr, flush=True)
        self._advance(each)


def _names(cell):
    return cell.op, cell.variant, cell.dtype


def run(cells_by_op, jobs=2, limit=6, timeout=60.0, emit=lambda result: None):
    """Runs lists of cells, one list for each op. Calls `emit` with every result, and returns all of them."""
    with tempfile.TemporaryDirectory(prefix="conformance") as directory:
        return Driver(cells_by_op, jobs, limit, timeout, emit, directory).run()
