"""Step closures: when they run, in which order, and that none is lost."""

import os
import subprocess
import sys
import threading
import time

import pytest
import torch

import torch_lazyplug
from torch_lazyplug.closure import AsyncClosureHandler, ClosureHandler, add_step_closure, run_step_closures
from torch_lazyplug.device_context import get_device_context

PATIENCE = 30  # seconds until a test is taken to hang
EARLIER_ERROR = "Cannot run asynchronous closure due to previously raised exception"


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.001)


def fail():
    raise ValueError("broken closure")


def fail_and_wait(handler):
    """Makes the handler's loop die of an error that nobody has seen yet."""
    handler.run(fail)
    wait_for(lambda: handler._error is not None)


@pytest.fixture
def fresh_context(monkeypatch):
    """Closures and handlers of this test only."""
    context = get_device_context()
    monkeypatch.setattr(context, "__dict__", {"device": context.device, "lock": context.lock})
    return context


# Synchronous ---------------------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_closures_run_in_order_when_the_step_ends(fresh_context):
    seen = []
    for i in range(3):
        torch_lazyplug.add_step_closure(seen.append, args=(i,))
    assert seen == []
    torch_lazyplug.mark_step()
    assert seen == [0, 1, 2]
    torch_lazyplug.mark_step()
    assert seen == [0, 1, 2]


def test_run_returns_the_context(fresh_context):
    assert run_step_closures() is get_device_context()


def test_closures_run_after_the_barrier(fresh_context):
    x = torch.ones(2, device="lazy") + 1
    seen = []
    add_step_closure(lambda t: seen.append((torch_lazyplug._C._lazy._live_nodes(), t.tolist())), args=(x,))
    torch_lazyplug.mark_step(wait=True)
    assert seen == [(0, [2, 2])]


def test_asynchronous_closures_are_started_first(fresh_context):
    order = []
    both_ran = threading.Event()

    def synchronous():
        order.append("started" if async_ran.wait(PATIENCE) else "not started")
        both_ran.set()

    async_ran = threading.Event()
    add_step_closure(synchronous)
    add_step_closure(async_ran.set, run_async=True)
    torch_lazyplug.mark_step()
    assert both_ran.is_set() and order == ["started"]


def test_an_error_reaches_the_caller_and_the_rest_waits_for_the_next_step(fresh_context):
    seen = []
    for closure in (lambda: seen.append(1), fail, lambda: seen.append(2), lambda: seen.append(3)):
        add_step_closure(closure)
    with pytest.raises(ValueError, match="broken closure"):
        torch_lazyplug.mark_step()
    assert seen == [1]
    torch_lazyplug.mark_step()
    assert seen == [1, 2, 3]


def test_closures_added_by_closures_belong_to_the_next_step(fresh_context):
    seen = []
    add_step_closure(lambda: (seen.append("outer"), add_step_closure(seen.append, args=("inner",))))
    torch_lazyplug.mark_step()
    assert seen == ["outer"]
    torch_lazyplug.mark_step()
    assert seen == ["outer", "inner"]


def test_a_closure_may_end_a_step(fresh_context):
    seen = []
    add_step_closure(lambda: (add_step_closure(seen.append, args=(1,)), torch_lazyplug.mark_step(), seen.append(2)))
    torch_lazyplug.mark_step()
    assert seen == [1, 2]


def test_the_handler_can_be_replaced(fresh_context):
    class Recorder(ClosureHandler):
        def __init__(self):
            super().__init__()
            self.count = 0

        def run(self, closure):
            self.count += 1
            super().run(closure)

    fresh_context.closure_handler = Recorder()
    for _ in range(3):
        add_step_closure(lambda: None)
    torch_lazyplug.mark_step()
    assert fresh_context.closure_handler.count == 3


def test_closures_of_many_threads(fresh_context):
    seen = []

    def add():
        for _ in range(200):
            add_step_closure(seen.append, args=(0,))
            add_step_closure(seen.append, args=(0,), run_async=True)
            run_step_closures()

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    wait_for(lambda: len(seen) == 4 * 200 * 2)


# Asynchronous --------------------------------------------------------------------------------------------------------


def test_the_program_does_not_wait_for_asynchronous_closures(fresh_context):
    may_go, done = threading.Event(), threading.Event()
    add_step_closure(lambda: (may_go.wait(PATIENCE), done.set()), run_async=True)
    torch_lazyplug.mark_step()
    assert not done.is_set()
    may_go.set()
    assert done.wait(PATIENCE)


def test_asynchronous_closures_read_tensors(fresh_context):
    done, seen = threading.Event(), []
    x = torch.arange(3, device="lazy") * 2
    add_step_closure(lambda t: (seen.extend(t.tolist()), done.set()), args=(x,), run_async=True)
    torch_lazyplug.mark_step()
    assert done.wait(PATIENCE)
    assert seen == [0, 2, 4]


def test_an_asynchronous_error_surfaces_at_the_next_run_with_its_cause():
    handler = AsyncClosureHandler()
    fail_and_wait(handler)
    with pytest.raises(RuntimeError, match=EARLIER_ERROR) as raised:
        handler.run(lambda: None)
    assert isinstance(raised.value.__cause__, ValueError)
    handler.run(lambda: None)


def test_an_asynchronous_error_surfaces_from_the_next_step(fresh_context):
    add_step_closure(fail, run_async=True)
    torch_lazyplug.mark_step()
    wait_for(lambda: fresh_context.async_closure_handler._error is not None)
    seen = []
    add_step_closure(seen.append, args=("async",), run_async=True)
    add_step_closure(seen.append, args=("sync",))
    with pytest.raises(RuntimeError, match=EARLIER_ERROR):
        torch_lazyplug.mark_step()
    assert seen == ["sync"]
    add_step_closure(seen.append, args=("later",), run_async=True)
    torch_lazyplug.mark_step()
    wait_for(lambda: seen == ["sync", "async", "later"])


def test_closures_behind_one_that_failed_are_not_lost():
    handler = AsyncClosureHandler()
    may_go, seen = threading.Event(), []
    handler.run(lambda: (may_go.wait(PATIENCE), fail()))
    for i in range(5):
        handler.run(lambda i=i: seen.append(i))
    may_go.set()
    wait_for(lambda: handler._error is not None)
    assert seen == []
    with pytest.raises(RuntimeError, match=EARLIER_ERROR):
        handler.run(lambda: seen.append(5))
    assert seen == []
    handler.run(lambda: seen.append(6))
    wait_for(lambda: seen == [0, 1, 2, 3, 4, 5, 6])


def test_a_list_of_closures_is_queued_whole_although_one_has_failed():
    handler = AsyncClosureHandler()
    fail_and_wait(handler)
    seen = []
    with pytest.raises(RuntimeError, match=EARLIER_ERROR):
        handler([lambda i=i: seen.append(i) for i in range(4)])
    wait_for(lambda: seen == [0, 1, 2, 3])


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_errors_that_are_no_exceptions_surface_too(error):
    handler = AsyncClosureHandler()

    def leave():
        raise error

    handler.run(leave)
    wait_for(lambda: handler._error is not None)
    with pytest.raises(RuntimeError, match=EARLIER_ERROR) as raised:
        handler.run(lambda: None)
    assert isinstance(raised.value.__cause__, error)


def in_time(call):
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "hangs"


def test_a_full_queue_whose_loop_has_died_does_not_hang():
    handler = AsyncClosureHandler(max_queue_size=1)
    may_go, seen, errors = threading.Event(), [], []
    handler.run(lambda: (may_go.wait(PATIENCE), fail()))
    wait_for(lambda: not handler._queue)
    handler.run(lambda: seen.append(0))

    def run_more():
        for i in range(1, 4):
            try:
                handler.run(lambda i=i: seen.append(i))
            except RuntimeError as error:
                errors.append(error)

    may_go.set()
    in_time(run_more)
    wait_for(lambda: seen == [0, 1, 2, 3])
    assert len(errors) == 1


def test_the_queue_is_bounded():
    handler = AsyncClosureHandler(max_queue_size=2)
    may_go, queued, seen = threading.Event(), [], []
    handler.run(lambda: may_go.wait(PATIENCE))
    wait_for(lambda: not handler._queue)

    def fill():
        for i in range(5):
            handler.run(lambda i=i: seen.append(i))
            queued.append(i)

    thread = threading.Thread(target=fill, daemon=True)
    thread.start()
    wait_for(lambda: len(queued) == 2)
    time.sleep(0.05)
    assert queued == [0, 1]
    may_go.set()
    thread.join(PATIENCE)
    wait_for(lambda: seen == [0, 1, 2, 3, 4])


def test_a_closure_may_queue_closures_however_full_the_queue_is():
    handler = AsyncClosureHandler(max_queue_size=1)
    seen = []
    handler.run(lambda: [handler.run(lambda i=i: seen.append(i)) for i in range(3)])
    wait_for(lambda: seen == [0, 1, 2])


@pytest.mark.parametrize(("variable", "bound"), [("3", 3), ("0", 0)])
def test_the_environment_bounds_the_queue(monkeypatch, variable, bound):
    monkeypatch.setenv("LTC_MAX_ASYNC_QUEUE", variable)
    assert AsyncClosureHandler(max_queue_size=7)._max_queue_size == bound


def test_a_wrong_bound_is_named(monkeypatch):
    monkeypatch.setenv("LTC_MAX_ASYNC_QUEUE", "many")
    with pytest.raises(ValueError, match="LTC_MAX_ASYNC_QUEUE is 'many'"):
        AsyncClosureHandler()


def test_no_closure_is_lost_when_the_loop_comes_and_goes():
    handler = AsyncClosureHandler(max_queue_size=3)
    seen = []
    for i in range(2000):
        handler.run(lambda i=i: seen.append(i))
    wait_for(lambda: seen == list(range(2000)))


def test_finished_handlers_are_let_go():
    from torch_lazyplug import closure

    handler = AsyncClosureHandler()
    handler.run(lambda: None)
    wait_for(lambda: handler not in closure._unfinished)


# Contexts ------------------------------------------------------------------------------------------------------------


def test_contexts_are_one_per_device():
    context = get_device_context()
    assert context.device == "lazy"
    assert get_device_context("lazy") is context
    assert get_device_context(torch.device("lazy:0")) is get_device_context("lazy:0") is not context
    with pytest.raises(RuntimeError, match="expected a lazy device, got 'cpu'"):
        get_device_context("cpu")


def test_contexts_are_the_same_in_every_thread():
    barrier, seen = threading.Barrier(8), []

    def get():
        barrier.wait(PATIENCE)
        seen.append(get_device_context("lazy:5"))

    threads = [threading.Thread(target=get) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(seen) == 8 and len(set(seen)) == 1


# Exit ----------------------------------------------------------------------------------------------------------------

PRELUDE = """
import os, sys, threading, time, torch, torch_lazyplug
from torch_lazyplug import add_step_closure, mark_step
"""


def exit_of(program, **environment):
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + program],
        capture_output=True,
        text=True,
        timeout=300,  # on a busy machine importing torch alone takes a minute
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("end", ["", "sys.exit(0)"])
def test_closures_that_are_queued_at_exit_run(end):
    done = exit_of(
        "x = torch.ones(2, device='lazy')\n"
        "for i in range(5):\n"
        "    add_step_closure(lambda i, t: (time.sleep(0.05), print(i, t.sum().item())), (i, x * i), run_async=True)\n"
        "mark_step()\n" + end
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{i} {2.0 * i}" for i in range(5)]


TRAIN = """
class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, grad):
        time.sleep(0.1)
        return grad * 2

def train(name):
    time.sleep(0.2)
    w = torch.ones(3, device="lazy", requires_grad=True)
    Slow.apply(w).sum().backward()
    print(name, *w.grad.tolist(), flush=True)

def train_once_more():
    train("first")
    add_step_closure(train, ("second",), run_async=True)
    mark_step()

def train_elsewhere():
    train("first")
    torch_lazyplug.closure.AsyncClosureHandler().run(lambda: train("second"))

def train_and_fail():
    train("first")
    raise ValueError("broken closure")

def add(closure, *args):
    add_step_closure(closure, args, run_async=True)

"""


@pytest.mark.parametrize(
    ("program", "names"),
    [
        ("add(train, 'first')", ["first"]),
        ("train('early'); add(train, 'first')", ["early", "first"]),
        ("add(train_once_more)", ["first", "second"]),
        ("add(train_elsewhere)", ["first", "second"]),
        ("add(train_and_fail); add(train, 'second')", ["first", "second"]),
        (
            "threading.Thread(target=train, args=('beside',)).start(); time.sleep(2); add(train, 'first')",
            ["beside", "first"],
        ),
    ],
)
def test_closures_that_run_at_exit_may_differentiate(program, names):
    done = exit_of(TRAIN + program + "\nmark_step()\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{name} 2.0 2.0 2.0" for name in names]


def test_exit_reports_errors_that_nobody_has_seen_and_goes_on():
    done = exit_of(
        "all_queued = threading.Event()\n"
        "def fail():\n    all_queued.wait()\n    raise ValueError('broken closure')\n"
        "for closure in (fail, lambda: print('second'), fail, lambda: print('fourth')):\n"
        "    add_step_closure(closure, run_async=True)\n"
        "mark_step()\nall_queued.set()\n"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["second", "fourth"]
    assert done.stderr.count("Exception in asynchronous step closure:") == 2
    assert done.stderr.count("ValueError: broken closure") == 2


def test_a_closure_that_never_returns_does_not_keep_the_interpreter():
    done = exit_of(
        "add_step_closure(lambda: threading.Event().wait(), run_async=True)\n"
        "add_step_closure(print, ('never',), run_async=True)\nmark_step()\n",
        LAZYPLUG_CLOSURE_EXIT_TIMEOUT="1",
    )
    assert done.returncode == 0
    assert "the interpreter exits without it and without the 1 behind it" in done.stderr
    assert done.stdout == ""


def test_an_idle_handler_does_not_delay_the_exit():
    done = exit_of(
        "import atexit\n"
        "add_step_closure(lambda: None, run_async=True)\nmark_step()\ntime.sleep(0.1)\n"
        "start = time.monotonic()\n"
        "from torch_lazyplug import closure\nclosure._finish_all()\n"
        "print(threading.active_count(), closure._unfinished)\n"
    )
    assert done.stdout.split() == ["1", "set()"], done.stdout + done.stderr


def test_an_exception_of_the_program_loses_no_closure():
    done = exit_of(
        "add_step_closure(lambda: (time.sleep(0.2), print('ran')), run_async=True)\nmark_step()\nraise KeyError('x')\n"
    )
    assert done.returncode == 1
    assert "ran" in done.stdout and "KeyError" in done.stderr


def test_a_forked_child_leaves_the_closures_to_its_parent():
    done = exit_of(
        "import warnings; warnings.simplefilter('ignore')\n"
        "may_go = threading.Event()\n"
        "add_step_closure(may_go.wait, run_async=True)\n"
        "add_step_closure(lambda: print('ran', flush=True), run_async=True)\nmark_step()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    from torch_lazyplug.closure import AsyncClosureHandler\n"
        "    AsyncClosureHandler().run(lambda: print('child', flush=True))\n"
        "    sys.exit(0)\n"
        "os.waitpid(pid, 0)\nmay_go.set()\n"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["child", "ran"]
