"""A process that builds cases and runs them when it is asked to, and sleeps otherwise.

    python bench/contestant.py lazy models ops    # the kind of contestant, and the suites with its cases

Requests come as lines of JSON on standard input, and each is answered by one on standard output (`process.py` asks).

The time to the first result is that of the first step, until it is computed; the model is built before. Peak memory is
what the resident set grows by from then on, the first step with its compilation included: meaningful in a process that
has run nothing else.
"""

import contextlib
import gc
import json
import os
import resource
import sys
import threading
import time
import traceback

import breakdown
import registry
import torch
from waiting import waiter

# Compilations after this step of a case are late: shapes and numbers should have been seen by then.
LATE = 50


class Eager:
    device = "cpu"

    def prepare(self, step):
        return step

    def finish(self):
        """Returns when everything is computed."""

    def counts(self):
        return {}


class FusedAdamW(torch.optim.AdamW):
    def __init__(self, *args, **options):
        super().__init__(*args, **options | {"foreach": None, "fused": True})


class Fused(Eager):
    """AdamW is one kernel for each parameter, whatever a case says."""

    def __init__(self):
        torch.optim.AdamW = FusedAdamW


class Compile(Eager):
    """The whole step under torch.compile: graphs break at reads and at backward()."""

    def prepare(self, step):
        torch._dynamo.reset()  # cases share code, and only so many graphs of it are compiled
        return torch.compile(step)

    def counts(self):
        return {"compiles": torch._dynamo.utils.counters["stats"]["unique_graphs"]}


class Lazy(Eager):
    device = "lazy"
    counters = {"compiles": "Compile", "fallbacks": "FallbackTotal", "at_once": "RunAtOnce"}

    def __init__(self):
        import torch_lazyplug

        self.plugin = torch_lazyplug

    def finish(self):
        self.plugin.mark_step(wait=True)

    def journal(self, action):
        """What it returns, and the events meanwhile."""
        self.plugin.debug.clear_events()
        self.plugin.config.set("debug", True)
        try:
            return action(), self.plugin.debug.events()
        finally:
            self.plugin.config.set("debug", False)

    def counts(self):
        return {name: self.plugin.metrics.counter_value(counter) or 0 for name, counter in self.counters.items()}


class TorchLazy(Eager):
    """PyTorch's own lazy device. Nothing but mark_step() bounds what it records, so each step ends with it."""

    device = "lazy"

    def __init__(self):
        import torch._lazy.metrics
        import torch._lazy.ts_backend

        torch._lazy.ts_backend.init()
        self.counter_value = torch._lazy.metrics.counter_value
        self.finish = waiter(self.device)

    def prepare(self, step):
        def marked():
            result = step()
            torch._lazy.mark_step()
            return result

        return marked

    def counts(self):
        return {"compiles": self.counter_value("UncachedCompile") or 0}


KINDS = {"eager": Eager, "fused": Fused, "compile": Compile, "torch_lazy": TorchLazy, "lazy": Lazy}


# Memory --------------------------------------------------------------------------------------------------------------


def status_mb(name):
    """A size from the kernel's account of this process."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name)) / 1024


def forget_peak():
    """The peak of the resident set is what it is now, where the kernel lets us."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


# Requests ------------------------------------------------------------------------------------------------------------


def describe(case, suite):
    """What the runner knows of a case."""
    known = {name: getattr(case, name) for name in ("name", "warm_up", "block", "rivals", "host")}
    return known | {"suite": suite}


def clocks():
    return {"seconds": time.perf_counter(), "cpu": time.process_time()}


class Contestant:
    """Answers requests: each public method is one."""

    def __init__(self, kind, suites):
        self.kind = kind
        self.suites = {suite: registry.load(suite) for suite in suites}
        self.step = self.result = self.case = self.early_compiles = None
        self.steps = self.resident_mb = 0
        self.untimed = {"seconds": 0.0, "cpu": 0.0}

    def hello(self):
        cases = [describe(case, suite) for suite, cases in self.suites.items() for case in cases]
        return {"torch": torch.__version__, "threads": torch.get_num_threads(), "cases": cases}

    def build(self, case):
        """Prepares a case. Returns the seconds that its first step takes."""
        torch.manual_seed(0)
        self.case = registry.CASES[case]
        self.step = self.kind.prepare(self.case.make(self.kind.device))
        self.steps, self.early_compiles = 0, None
        self.kind.finish()
        gc.collect()
        forget_peak()
        self.resident_mb = status_mb("VmRSS")
        return {"seconds": self.run(1)["seconds"]}

    def wake(self, steps):
        """Runs steps that nobody times, after what is garbage has been collected, which leaves caches cold."""
        gc.collect()
        self._advance(steps)
        self.kind.finish()
        return {}

    def run(self, steps):
        """Runs steps until everything is computed. Returns wall and CPU seconds of the process, page faults, counts,
        and the peak of memory since the case was built."""
        before = self._readings()
        self._advance(steps)
        self.kind.finish()
        used = {name: value - before[name] for name, value in self._readings().items()}
        return used | {"late": self._late(), "peak_mb": status_mb("VmHWM") - self.resident_mb}

    def profile(self, steps):
        """Where the time of steps goes, as `breakdown.py` tells it: this device only."""
        gc.collect()
        used, events = self.kind.journal(lambda: self.run(steps))
        return breakdown.of(events, threading.get_native_id(), used["seconds"], steps)

    def drop(self):
        self.step = self.result = None
        self.kind.finish()
        gc.collect()
        return {}

    def _advance(self, steps):
        early = max(0, min(steps, LATE - self.steps))
        self._repeat(early)
        if self.steps + early >= LATE and self.early_compiles is None:
            self.kind.finish()
            self.early_compiles = self.kind.counts().get("compiles", 0)
        self.steps += steps
        self._repeat(steps - early)

    def _repeat(self, steps):
        """The last result lives until the next one is there, so that it is computed."""
        for _ in range(steps):
            self.result = self.step()
            if self.case.host:
                self._finish_untimed()

    def _finish_untimed(self):
        before = clocks()
        self.kind.finish()
        for name, now in clocks().items():
            self.untimed[name] += now - before[name]

    def _late(self):
        return 0 if self.early_compiles is None else self.kind.counts().get("compiles", 0) - self.early_compiles

    def _readings(self):
        usage = resource.getrusage(resource.RUSAGE_SELF)
        times = {name: now - self.untimed[name] for name, now in clocks().items()}
        return self.kind.counts() | times | {"faults": usage.ru_minflt}


def answer(contestant, request):
    try:
        return getattr(contestant, request.pop("do"))(**request)
    except Exception:
        return {"error": traceback.format_exc()}


def main():
    replies = os.fdopen(os.dup(1), "w")
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115  (what cases print, until the process ends)
    kind, *suites = sys.argv[1:]
    contestant = Contestant(KINDS[kind](), suites)
    for line in sys.stdin:
        print(json.dumps(answer(contestant, json.loads(line))), file=replies, flush=True)


if __name__ == "__main__":
    main()
