"""Errors of Python's that many threads meet at once, in every way, the worker's and autograd's threads among them."""

import pytest
from helpers import run_fresh

pytestmark = pytest.mark.lazy_only

PROGRAM = """
import faulthandler, sys, threading, time
faulthandler.dump_traceback_later(90, exit=True)  # a program that hangs says where
sys.setswitchinterval(1e-5)

class Mine(Exception):
    pass

library = torch.library.Library("error_threads", "DEF")
library.define("picky(Tensor x) -> Tensor")

def picky_on_cpu(x):
    if x.sum() != 0:
        raise Mine("mine")
    return x.clone()

library.impl("picky", picky_on_cpu, "CPU")
library.impl("picky", torch.empty_like, "Meta")
picky = torch.ops.error_threads.picky

x = torch.ones(8, device="lazy")

def raised(call):
    try:
        call()
    except Mine:
        return True
    return False

def failed():
    y = picky(x)
    torch_lazyplug.mark_step(wait=False)
    return y

lost = failed()
assert raised(lost.tolist)

def use():
    assert raised(lambda: lost + 1) and raised(lambda: lost.add_(1)) and raised(lambda: lost[:4].neg_())

def read():
    assert raised(lost.tolist) and raised(lost.sum) and raised(lost.data_ptr)

def die():  # while Python's lock is held: PyTorch lets go of it for tensors, but not for storages
    for _ in range(100):
        (x * 2).untyped_storage()

def overwrite():
    y = failed()
    raised(y.tolist)
    y.copy_(torch.zeros(8))
    assert y.tolist() == [0] * 8

def resize():
    y = failed()
    raised(lambda: y.resize_(20))
    raised(lambda: y.untyped_storage().resize_(0))

def free():
    y = failed()
    raised(lambda: (y * 2, y.view(2, 4).add_(1)))

def write_in_vain():
    y = x * 2
    raised(lambda: y.add_(failed()))
    raised(y.tolist)

def wait():
    failed()
    raised(lambda: torch_lazyplug.mark_step(wait=True))

class FailsBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return failed() + 1

def differentiate():
    w = x.clone().requires_grad_()
    raised(lambda: FailsBackward.apply(w).sum().backward())
    raised(lambda: w.grad is None or w.grad.tolist())

def repeat(function):
    while time.monotonic() < end:
        function()
        rounds[function.__name__] = rounds.get(function.__name__, 0) + 1

rounds = {}
end = time.monotonic() + 3
functions = [FUNCTIONS]
threads = [threading.Thread(target=repeat, args=(function,)) for function in functions]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
raised(torch.lazy.synchronize)
assert set(rounds) == {function.__name__ for function in functions}, rounds
assert (x + 1).tolist() == [2] * 8
"""


@pytest.mark.parametrize(
    "functions",
    [
        "use, read, die, die",
        "overwrite, overwrite, die",
        "resize, free, write_in_vain, die",
        "differentiate, differentiate, wait, die",
    ],
)
def test_errors_of_python_hang_nobody(functions):
    run_fresh(PROGRAM.replace("FUNCTIONS", functions))
