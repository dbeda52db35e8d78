"""Contestants as processes: each waits for requests, and sleeps while others work."""

import json
import os
import select
import subprocess
import sys
import tempfile
from pathlib import Path

BENCH = Path(__file__).resolve().parent
PATIENCE_SECONDS = 300


class Failed(Exception):
    """A contestant could not do what it was asked."""


def kind_of(name):
    """What a contestant is, without its settings."""
    return name.partition(":")[0]


def settings_of(name):
    """What a contestant's name says about its environment."""
    return dict(setting.split("=", 1) for setting in name.partition(":")[2].split(",") if setting)


def environment(name, threads):
    """Of a contestant: only this device's has the plugin."""
    variables = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, (str(BENCH.parent), os.environ.get("PYTHONPATH"))))
    variables["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "1" if kind_of(name) == "lazy" else "0"
    if threads != "default":
        variables["OMP_NUM_THREADS"] = threads
    return variables | settings_of(name)


class Process:
    """A contestant that is started when it is first asked, and again if it has died. When it starts, nothing is
    compiled: Inductor's cache is empty."""

    def __init__(self, name, suites, threads):
        self.name = name
        self._command = [sys.executable, str(BENCH / "contestant.py"), kind_of(name), *suites]
        self._environment = environment(name, threads)
        self._process = None

    def ask(self, request, **arguments):
        """What it answers. Failed, if that is an error, or nothing."""
        if self._process is None:
            self._start()
        reply = self._exchange(json.dumps({"do": request, **arguments}))
        if "error" in reply:
            raise Failed(f"{self.name}: {reply['error']}")
        return reply

    def stop(self):
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
            self._cache.cleanup()

    def _start(self):
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (until the process ends)
        self._cache = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        variables = self._environment | {"TORCHINDUCTOR_CACHE_DIR": self._cache.name}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._errors}
        self._process = subprocess.Popen(self._command, env=variables, text=True, **pipes)

    def _exchange(self, line):
        try:
            print(line, file=self._process.stdin, flush=True)
            ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE_SECONDS)
            return json.loads(self._process.stdout.readline() if ready else "")
        except (BrokenPipeError, json.JSONDecodeError):
            raise Failed(self._last_words()) from None

    def _last_words(self):
        process = self._process
        self.stop()
        self._errors.seek(0)
        return f"{self.name}: no answer, ended with {process.returncode}\n{self._errors.read()[-4000:]}"
