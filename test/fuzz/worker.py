"""A process that runs programs by their seeds, and lives until one kills it."""

import faulthandler
import os
import signal
import time
import warnings

import torch
from python.absent_devices import leave_unseeded

from .programs import make, run, shrink_with

# Upon this signal, a worker writes its stack to its standard error.
TELL = signal.SIGUSR1


class Shared:
    """What the driver sees of a worker that can die at any moment."""

    def __init__(self, processes):
        self.seed = processes.Value("q", -1, lock=False)
        self.since = processes.Value("d", 0.0, lock=False)
        self.done = processes.Value("q", 0, lock=False)


def prepare(stderr=None):
    if stderr:
        descriptor = os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 2)
        faulthandler.register(TELL, file=2)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    leave_unseeded()
    import torch_lazyplug

    torch_lazyplug.config.set_fallback("silent")


def serve(shared, counter, last, device, campaign, connection, stderr):
    """Takes seeds from the counter; sends what does not match."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver ends it
    prepare(stderr)
    while True:
        with counter.get_lock():
            seed = counter.value
            counter.value += 1
        if seed >= last:
            return connection.send(None)
        shared.since.value, shared.seed.value = time.monotonic(), seed
        mismatch = run(make(seed, campaign), device)
        shared.done.value += 1
        if mismatch is not None:
            connection.send(describe(seed, mismatch))


def describe(seed, mismatch):
    code = mismatch.statement.code if mismatch.statement else ""
    return {"seed": seed, "kind": mismatch.kind, "detail": mismatch.detail, "code": code}


def send_program(connection, seed, campaign):
    prepare(os.devnull)
    connection.send(make(seed, campaign))


def verdict(connection, program, device):
    """For the shrinker: one program, in a process of its own."""
    prepare(os.devnull)
    mismatch = run(program, device)
    connection.send(None if mismatch is None else describe(program.seed, mismatch))


def shrink(connection, program, failure, device):
    """The same for a failure that kills no process: all attempts in this one."""
    prepare(os.devnull)
    import torch_lazyplug

    # What a run has taught about strides must not make the next one right.
    torch_lazyplug.config.set("signature_cache_size", 1)

    def fails(candidate):
        mismatch = run(candidate, device)
        return mismatch is not None and same(describe(program.seed, mismatch), failure)

    connection.send(shrink_with(fails, program, budget=3000))


def same(found, wanted):
    return found is not None and found["kind"] == wanted["kind"]
