"""A process that builds cases and runs them when it is asked to, and sleeps otherwise.

    python bench/contestant.py lazy models lines    # the kind of contestant, and the modules with its cases

Requests come as lines of JSON on standard input, and each is answered by one on standard output (`contest.py` asks).
"""

import gc
import importlib
import json
import os
import resource
import sys
import time
import traceback

import registry
import torch

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


class Compile(Eager):
    """The whole step under torch.compile: graphs break at reads and at backward()."""

    def prepare(self, step):
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

    def counts(self):
        return {name: self.plugin.metrics.counter_value(counter) or 0 for name, counter in self.counters.items()}


KINDS = {"eager": Eager, "compile": Compile, "lazy": Lazy}


class Contestant:
    """Answers requests: each public method is one."""

    def __init__(self, kind):
        self.kind = kind
        self.step = self.result = None
        self.steps = 0
        self.early_compiles = None

    def hello(self):
        cases = [{"name": c.name, "warm_up": c.warm_up, "block": c.block} for c in registry.CASES.values()]
        return {"torch": torch.__version__, "threads": torch.get_num_threads(), "cases": cases}

    def build(self, case):
        """Prepares a case. Returns the seconds that its first step takes."""
        torch.manual_seed(0)
        self.step = self.kind.prepare(registry.CASES[case].make(self.kind.device))
        self.steps, self.early_compiles = 0, None
        self.kind.finish()
        return {"seconds": self.run(1)["seconds"]}

    def run(self, steps):
        """Runs steps until everything is computed. Returns wall and CPU seconds of the process, page faults, counts."""
        gc.collect()
        before = self._readings()
        self._advance(steps)
        self.kind.finish()
        return {name: value - before[name] for name, value in self._readings().items()} | {"late": self._late()}

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

    def _late(self):
        return 0 if self.early_compiles is None else self.kind.counts().get("compiles", 0) - self.early_compiles

    def _readings(self):
        usage = resource.getrusage(resource.RUSAGE_SELF)
        counts = self.kind.counts()
        return counts | {"seconds": time.perf_counter(), "cpu": time.process_time(), "faults": usage.ru_minflt}


def answer(contestant, request):
    try:
        return getattr(contestant, request.pop("do"))(**request)
    except Exception:
        return {"error": traceback.format_exc()}


def main():
    replies = os.fdopen(os.dup(1), "w")
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115  (what cases print, until the process ends)
    kind, *modules = sys.argv[1:]
    for module in modules:
        importlib.import_module(module)
    contestant = Contestant(KINDS[kind]())
    for line in sys.stdin:
        print(json.dumps(answer(contestant, json.loads(line))), file=replies, flush=True)


if __name__ == "__main__":
    main()
