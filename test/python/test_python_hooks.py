"""What the C++ side asks of Python: the user's line, errors that Python raised, and not to hold the GIL."""

import threading

import pytest
import torch
from helpers import DEVICE, run_fresh
from torch.library import Library

from torch_lazyplug import debug

pytestmark = pytest.mark.lazy_only


def raising(x):
    raise KeyError("mine")


_library = Library("lazyplug_hooks_test", "DEF")
_library.define("raising(Tensor x) -> Tensor")
_library.impl("raising", raising, "CPU")
_library.impl("raising", torch.empty_like, "Meta")


def large():
    """Not computed when it is recorded, as what is small may be."""
    return torch.ones(100, 100, device=DEVICE)


def line_of_last_sync():
    return debug.events("sync")[-1]["location"]


def test_the_line_is_the_innermost_that_is_not_pytorchs(debugging):
    def users_function(x):
        return torch.nn.functional.gelu(x).tolist()

    users_function(large())
    line = users_function.__code__.co_firstlineno + 1
    assert line_of_last_sync() == f"{__file__}:{line}"


@pytest.mark.own_schedule("asserts what cuts a trace")
def test_lines_of_code_without_a_file_are_passed_over(debugging):
    line = test_lines_of_code_without_a_file_are_passed_over.__code__.co_firstlineno + 3
    exec("x.tolist()", {"x": large()})
    assert line_of_last_sync() == f"{__file__}:{line}"


@pytest.mark.own_schedule("asserts what cuts a trace")
def test_threads_have_their_own_lines(debugging):
    def target():
        large().tolist()

    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
    assert line_of_last_sync() == f"{__file__}:{target.__code__.co_firstlineno + 1}"


def test_errors_of_python_are_raised_as_often_as_asked():
    failed = torch.ops.lazyplug_hooks_test.raising(large())
    tracebacks = []
    for read in (failed.cpu, failed.sum, failed.tolist):
        with pytest.raises(KeyError, match="mine") as raised:
            read()
        tracebacks.append(raised.traceback)
    assert all(traceback[-1].name == "raising" for traceback in tracebacks)


def test_who_waits_lets_others_run():
    """Who waits for a worker, which runs a kernel in Python, which waits for another thread."""
    run_fresh("""
import threading
from torch_lazyplug import mark_step
running, others_turn = threading.Event(), threading.Event()

def wait(x):
    running.set()
    assert others_turn.wait(20)
    return x.clone()

library = torch.library.Library("test", "DEF")
library.define("wait(Tensor x) -> Tensor")
library.impl("wait", wait, "CPU")
library.impl("wait", torch.empty_like, "Meta")
for look in (torch.Tensor.cpu, lambda x: x.sum().item(), lambda x: x.nonzero(), lambda x: torch.lazy.synchronize()):
    running.clear()
    others_turn.clear()
    x = torch.ops.test.wait(torch.ones(100, 100, device="lazy"))
    mark_step()
    assert running.wait(20)
    threading.Timer(0.05, others_turn.set).start()
    look(x)
    assert others_turn.is_set()
""")
