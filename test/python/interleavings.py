"""Random programs of threads, streams, events and devices that know what must come out of them.

    python test/python/interleavings.py --programs 10000

runs as many, each with its own seed, and prints the seeds that failed. What is checked, while work is in flight:

- values: each thread changes tensors of its own, on whatever stream is current, by steps that do not commute, so
  the order of the program must be kept across streams and devices, and what was read before a write keeps its value,
  whoever looks at it;
- order in time: what was recorded before an event, on its stream or on one that the stream waited for, has run when
  the event is reached; the same for what waits for a stream or a device;
- errors: each op that fails raises its own error whenever its result is read, and no other result ever does; of those
  that nobody has seen, the first one is raised, once, to whoever waits for the stream.
"""

import argparse
import dataclasses
import itertools
import os
import random
import re
import sys
import threading
import time

# Programs that are drawn never repeat, and would run at once: errors would be raised at their lines.
os.environ.setdefault("LAZYPLUG_MAX_UNUSED_GRAPHS", "0")
os.environ.setdefault("LAZYPLUG_RUN_AT_ONCE", "never")
os.environ.setdefault("LAZYPLUG_COMPILE", "always")
# Every product beside the next, if it can be.
os.environ.setdefault("LAZYPLUG_SIDE_CALLS", "0")

import torch  # noqa: E402

import torch_lazyplug  # noqa: E402

SIZE = 16
MODULUS = 1_000_003
LIMIT = 1000  # indices from here on are out of range; each failing op has its own
FAILING = itertools.count(LIMIT)


@dataclasses.dataclass
class Place:
    """A place in the order of execution: the results that must be there once it is reached."""

    event: torch.Event
    results: list
    timed: bool


@dataclasses.dataclass
class Tracked:
    """A tensor, and what it must hold: one number in its first half, and one in its second."""

    tensor: torch.Tensor
    values: tuple

    def check(self):
        expected = [value for value in self.values for _ in range(SIZE // 2)]
        actual = self.tensor.tolist()
        if actual != expected:
            raise AssertionError(f"holds {actual}, should hold {self.values}")


class Program:
    """What the threads of one program share."""

    def __init__(self, seed, devices):
        self.seed = seed
        self.devices = devices
        self.places = []
        self.snapshots = []
        self.problems = []
        self.raised_by_waits = []
        self.threads = 0

    def run(self, threads, steps):
        """What went wrong, as a list of texts."""
        self.threads = threads
        workers = [threading.Thread(target=self.guard, args=(number, steps)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        repeated = {index for index in self.raised_by_waits if self.raised_by_waits.count(index) > 1}
        if repeated:
            self.problems.append(f"waits raised the same error again: {repeated}")
        return self.problems

    def guard(self, number, steps):
        try:
            Actor(self, number).run(steps)
        except Exception as error:
            self.problems.append(f"thread {number}: {error!r}")


class Actor:
    """One thread of a program."""

    def __init__(self, program, number):
        self.program = program
        self.random = random.Random(program.seed * 1000 + number)
        self.streams = {
            device: [torch.lazy.Stream(device=f"lazy:{device}") for _ in range(2)] for device in range(program.devices)
        }
        self.mine = {
            device: Tracked(torch.zeros(SIZE, dtype=torch.int64, device=f"lazy:{device}"), (0, 0))
            for device in range(program.devices)
        }
        self.recorded = {}  # by stream: results that its next event stands for
        self.failed = []
        self.unseen = {}  # by stream: indices of failing ops that nobody has read, recorded since a wait raised one

    def run(self, steps):
        actions = [
            (5, self.change),
            (2, self.change_half),
            (2, self.replace),
            (2, self.work_long),
            (2, self.keep_snapshot),
            (2, self.check_snapshot),
            (1, self.check_mine),
            (3, self.record_event),
            (2, self.wait_in_stream),
            (3, self.wait_here),
            (1, self.wait_for_stream),
            (1, self.wait_for_device),
            (1, self.cut),
            (1, self.move),
            (1, self.fail),
            (1, self.check_failed),
        ]
        weights = [weight for weight, _ in actions]
        for _ in range(steps):
            device = self.random.randrange(self.program.devices)
            stream = self.random.choice(self.streams[device])
            with stream if self.random.random() < 0.7 else torch.lazy.device(device):
                _, action = self.random.choices(actions, weights)[0]
                action(device, torch.lazy.current_stream(device))
        for tracked in self.mine.values():
            tracked.check()
        while self.failed:
            self.check_failed(0, None)

    # ---- values ----

    def change(self, device, stream):
        tracked = self.mine[device]
        factor, summand = self.random.randrange(2, 9), self.random.randrange(100)
        tracked.tensor.mul_(factor).add_(summand).remainder_(MODULUS)
        tracked.values = tuple((value * factor + summand) % MODULUS for value in tracked.values)

    def change_half(self, device, stream):
        tracked = self.mine[device]
        tracked.tensor[: SIZE // 2].mul_(3).remainder_(MODULUS)
        tracked.values = (tracked.values[0] * 3 % MODULUS, tracked.values[1])

    def replace(self, device, stream):
        tracked = self.mine[device]
        self.mine[device] = Tracked(tracked.tensor.flip(0) + 7, tuple(value + 7 for value in reversed(tracked.values)))

    def work_long(self, device, stream):
        """Keeps the stream busy for a while, so that what comes later on others may overtake it, if it is free to."""
        tracked = self.mine[device]
        busy = torch.ones(96, 96, device=f"lazy:{device}")
        for _ in range(self.random.randrange(1, 6)):
            left, right = busy @ busy, busy.t() @ busy
            busy = left / 96 * (right / 96)
        tracked.tensor.add_(busy.sum().to(torch.int64))
        tracked.values = tuple(value + 96 * 96 for value in tracked.values)
        self.note(stream, busy)

    def keep_snapshot(self, device, stream):
        tracked = self.mine[device]
        self.program.snapshots.append(Tracked(tracked.tensor * 1, tracked.values))

    def check_snapshot(self, device, stream):
        try:
            snapshot = self.program.snapshots.pop(self.random.randrange(3))
        except IndexError:
            return
        snapshot.check()

    def check_mine(self, device, stream):
        self.mine[device].check()

    def move(self, device, stream):
        other = self.random.randrange(self.program.devices)
        tracked = self.mine[device]
        self.mine[other] = Tracked(tracked.tensor.to(f"lazy:{other}", copy=True), tracked.values)

    # ---- order in time ----

    def note(self, stream, result):
        self.recorded.setdefault(stream, []).append(result)

    def record_event(self, device, stream):
        result = self.mine[device].tensor * 2
        self.note(stream, result)
        timed = self.random.random() < 0.3
        event = torch.lazy.Event(enable_timing=timed)
        event.record(stream)
        self.program.places.append(Place(event, self.recorded[stream][-8:], timed))
        del self.program.places[:-12]

    def wait_in_stream(self, device, stream):
        """What comes after this on the stream comes after the other place as well."""
        places = list(self.program.places)
        if not places:
            return
        earlier = self.random.choice(places)
        stream.wait_event(earlier.event)
        result = torch.ones(4, device=f"lazy:{device}") + 1
        event = torch.lazy.Event(enable_timing=earlier.timed)
        event.record(stream)
        later = Place(event, [*earlier.results, result], earlier.timed)
        if self.random.random() < 0.5:
            self.program.places.append(later)
        if self.wait_for(later) and earlier.timed and earlier.event.elapsed_time(event) < 0:
            raise AssertionError("a stream went on before the event that it waits for")

    def wait_here(self, device, stream):
        places = list(self.program.places)
        if places:
            self.wait_for(self.random.choice(places))

    def wait_for(self, place):
        """Whether the place has been reached; sometimes without waiting for it."""
        if self.random.random() < 0.4:
            if not place.event.query():
                return False
        else:
            self.wait(place.event.synchronize)
        self.expect_ready(place.results, "an event was reached before what it stands for")
        if not place.event.query():
            raise AssertionError("an event that was reached is not reached any more")
        return True

    def wait_for_stream(self, device, stream):
        if self.random.random() < 0.5:
            if not stream.query():
                return
        else:
            self.wait(stream.synchronize)
            self.expect_raised(stream)
        self.expect_ready(self.recorded.pop(stream, []), "a stream was done before its work")

    def wait_for_device(self, device, stream):
        self.wait(lambda: torch.lazy.synchronize(device))
        for other in [*self.streams[device], torch.lazy.default_stream(device)]:
            self.expect_raised(other)
            self.expect_ready(self.recorded.pop(other, []), "a device was done before its work")

    def cut(self, device, stream):
        self.wait(lambda: torch_lazyplug.mark_step(wait=self.random.random() < 0.3))

    def wait(self, function):
        """Who waits may get the error of another thread, if nobody has seen it yet; then it waits again."""
        while True:
            try:
                return function()
            except IndexError as error:
                raised = _index_in(error)
                self.program.raised_by_waits.append(raised)
                for index, stream, _ in self.failed:
                    if index == raised:
                        self.unseen.pop(stream, None)  # with it, the stream forgets those behind it

    def expect_ready(self, results, problem):
        if not all(torch_lazyplug._C._lazy._is_ready(result) for result in results):
            raise AssertionError(problem)

    # ---- errors ----

    def fail(self, device, stream):
        index = next(FAILING)
        where = torch.full((600,), index, device=f"lazy:{device}")
        self.failed.append((index, stream, torch.zeros(LIMIT, device=f"lazy:{device}")[where]))
        self.unseen.setdefault(stream, set()).add(index)

    def check_failed(self, device, stream):
        if not self.failed:
            return
        index, stream, result = self.failed.pop(self.random.randrange(len(self.failed)))
        self.unseen.get(stream, set()).discard(index)
        for _ in range(2):
            try:
                result.cpu()
            except IndexError as error:
                if _index_in(error) != index:
                    raise AssertionError(f"the error of index {_index_in(error)} instead of {index}") from error
            else:
                raise AssertionError("no error")

    def expect_raised(self, stream):
        """After a wait: with several threads, the error may have gone to another that has not told yet."""
        indices = self.unseen.pop(stream, None)
        if indices and self.program.threads == 1:
            raise AssertionError(f"nobody was told of the errors of {indices}")


def _index_in(error):
    return int(re.search(r"index (\d+) is out of bounds", str(error))[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=100, help="how many (100)")
    parser.add_argument("--seed", type=int, default=0, help="of the first; the others count on from it (0)")
    parser.add_argument("--threads", type=int, default=0, help="in each program (from 1 to 4, in turn)")
    parser.add_argument("--steps", type=int, default=100, help="of each thread (100)")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    failed = []
    start = time.monotonic()
    for seed in range(arguments.seed, arguments.seed + arguments.programs):
        devices = 1 + seed // 4 % torch.lazy.device_count()
        program = Program(seed, devices)
        problems = program.run(arguments.threads or 1 + seed % 4, arguments.steps)
        if problems:
            failed.append(seed)
            print(f"seed {seed}: {problems[:3]}", flush=True)
        if (seed + 1) % 500 == 0:
            print(f"{seed + 1 - arguments.seed} programs, {time.monotonic() - start:.0f} s", flush=True)
    print(f"{arguments.programs} programs in {time.monotonic() - start:.0f} s, {len(failed)} failed {failed[:20]}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
