"""Threads, streams, events and devices in random order: nothing hangs, nothing is lost, every number is right."""

import pytest
from helpers import run_fresh

# Each thread changes tensors of its own, on whatever stream is current, and knows what they must hold: program order
# counts, not the streams. Events go from thread to thread; some ops fail, and nobody else may notice.
PROGRAM = """
import random, sys, threading

STEPS, THREADS, SEED, DEVICES = {steps}, {threads}, {seed}, {devices}
shared = [torch.full((16,), float(i), device=f"lazy:{{i}}") for i in range(DEVICES)]
events = []
problems = []


def wait_with(function):
    try:
        function()
    except IndexError:
        pass  # who waits may get an error of another thread that nobody has seen yet


def work(number):
    rng = random.Random(SEED * 1000 + number)
    streams = [torch.lazy.Stream(device=f"lazy:{{d}}") for d in range(DEVICES) for _ in range(2)]
    mine = {{d: [torch.zeros(16, device=f"lazy:{{d}}"), 0.0] for d in range(DEVICES)}}
    for _ in range(STEPS):
        device = rng.randrange(DEVICES)
        tensor, value = mine[device]
        stream = rng.choice([s for s in streams if s.device_index == device])
        with stream if rng.random() < 0.7 else torch.lazy.device(device):
            action = rng.randrange(10)
            if action < 3:
                amount = rng.randrange(1, 4)
                tensor.add_(amount)
                mine[device][1] += amount
            elif action == 3:
                mine[device][0] = tensor + shared[device]
                mine[device][1] += device
            elif action == 4:
                if tensor.sum().item() != 16 * value:
                    problems.append((number, tensor.tolist(), value))
            elif action == 5:
                event = torch.lazy.Event(enable_timing=rng.random() < 0.3)
                event.record(torch.lazy.current_stream(device))
                events.append(event)
                del events[:-20]
            elif action == 6 and events:
                event = rng.choice(events)
                wait_with(rng.choice([event.query, event.synchronize, lambda: stream.wait_event(event)]))
            elif action == 7:
                wait_with(
                    rng.choice([stream.synchronize, stream.query, torch.lazy.synchronize, torch_lazyplug.mark_step])
                )
            elif action == 8:
                other = rng.randrange(DEVICES)
                mine[other][0] = tensor.to(f"lazy:{{other}}")
                mine[other][1] = value
            elif action == 9:
                outside = torch.full((600,), 2000, device=f"lazy:{{device}}")
                failed = torch.zeros(1000, device=f"lazy:{{device}}")[outside]
                try:
                    failed.cpu()
                    problems.append((number, "no error"))
                except IndexError:
                    pass
    for tensor, value in mine.values():
        if tensor.tolist() != [value] * 16:
            problems.append((number, tensor.tolist(), value))


def guarded(number):
    try:
        work(number)
    except BaseException as error:
        problems.append((number, repr(error)))


threads = [threading.Thread(target=guarded, args=(n,)) for n in range(THREADS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not problems, problems[:3]
"""


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("threads", "devices"), [(1, 1), (3, 1), (4, 2)], ids=["alone", "threads", "devices"])
def test_random_interleavings(threads, devices, seed):
    code = PROGRAM.format(steps=300, threads=threads, seed=seed, devices=devices)
    run_fresh(code, devices=devices)


def test_exit_with_work_in_flight():
    """Prompt, and clean: no result that nobody reads is waited for."""
    run_fresh(
        """
        x = torch.ones(256, 256, device="lazy")
        for _ in range(200):
            x = x @ x / 256
        torch_lazyplug.mark_step()
        failed = torch.zeros(1000, device="lazy")[torch.full((600,), 2000, device="lazy")]
        torch_lazyplug.mark_step()
        torch_lazyplug.add_step_closure(lambda: None, run_async=True)
        torch_lazyplug.mark_step()
        y = torch.ones(8, device="lazy", requires_grad=True)
        (y * 2).sum().backward()
        """
    )
