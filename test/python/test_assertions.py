"""Assertions about contents: recorded, and raised when the program has waited."""

import pytest
import torch
from helpers import run_fresh

import torch_lazyplug
from torch_lazyplug import metrics

ZERO = "Expected Tensor with single nonzero value, but got zero"


def check(tensor, message):
    torch._assert_async(tensor) if message is None else torch._assert_async(tensor, message)


def error_of(function):
    with pytest.raises(RuntimeError) as raised:
        function()
    return str(raised.value)


@pytest.mark.own_schedule("a trace that is cut is no longer pending")
def test_that_hold_neither_wait_nor_fall_back():
    x = torch.arange(4.0, device="lazy")
    torch.lazy.synchronize()
    syncs = metrics.counter_value("TraceCut")
    for message in (None, "positive"):
        check((x >= 0).all(), message)
    assert metrics.counter_value("TraceCut") == syncs
    assert (x + 1).sum().item() == 10
    torch.lazy.synchronize()
    assert not metrics.counter_value("FallbackTotal")


@pytest.mark.parametrize("value", [2, 0.5, True, 1j])
def test_any_number_but_zero_holds(value):
    check(torch.tensor(value, device="lazy"), None)
    torch.lazy.synchronize()


@pytest.mark.parametrize("message", [None, "must not be negative"])
def test_that_fail_are_raised_by_the_next_read(message):
    x = torch.arange(-1.0, 3.0).to("lazy")
    later = x * 2
    check((x >= 0).all(), message)
    later = later + 1
    raised = error_of(later.sum().item)
    assert raised.startswith(message or ZERO)
    assert error_of(lambda: check((x.cpu() >= 0).all(), message)).startswith(message or ZERO)
    assert later.tolist() == [-1, 1, 3, 5], "nothing is lost"
    torch.lazy.synchronize()  # raised once


def test_that_fail_are_raised_by_synchronize():
    check(torch.zeros((), device="lazy"), "never")
    assert error_of(torch.lazy.synchronize).startswith("never")
    torch.lazy.synchronize()


def test_each_that_fails_is_raised():
    x = torch.zeros(1, device="lazy")
    for message in ("first", "second"):
        check(x, message)
        assert error_of((x + 1).item).startswith(message)


def test_each_that_fails_is_raised_by_a_read_of_its_own():
    x = torch.zeros(1, device="lazy")
    later = x + 1
    for message in ("first", "second"):
        check(x, message)
    for message in ("first", "second"):
        assert error_of(later.item).startswith(message)
        later = later + 1
    assert later.item() == 3
    torch.lazy.synchronize()


def test_errors_that_have_been_seen_may_hold_pending_tensors():
    run_fresh("""
        import gc

        errors = []
        library = torch.library.Library("assertions", "DEF")
        library.define("refuse(Tensor x) -> Tensor")

        def refuse(x):
            if errors and x.sum() != 0:
                raise errors.pop()
            return x.clone()

        library.impl("refuse", refuse, "CPU")
        library.impl("refuse", torch.empty_like, "Meta")
        x = torch.ones(8, device="lazy")
        for _ in range(2):
            torch.ops.assertions.refuse(x).sum().item()
        other = torch.lazy.Stream()
        with torch.lazy.stream(other):
            payload = x * 3
        error = RuntimeError("bad data")
        error.payload = payload
        errors.append(error)
        del error
        torch._assert_async((torch.ops.assertions.refuse(x) > 0).all())
        try:
            torch.lazy.current_stream().synchronize()
        except RuntimeError:
            pass
        with torch.lazy.stream(other):
            payload.add_(1)
        del payload
        gc.collect()
        assert (x + 1).sum().item() == 16
    """)


def test_sizes_are_checked_at_once():
    for size in ((0,), (2,)):
        expected = error_of(lambda size=size: torch._assert_async(torch.ones(size)))
        assert error_of(lambda size=size: torch._assert_async(torch.ones(size, device="lazy"))) == expected


def test_in_a_module_that_is_trained():
    def step(device):
        torch.manual_seed(0)
        layer = torch.nn.Linear(3, 2)
        x = torch.rand(4, 3)
        layer, x = layer.to(device), x.to(device)
        for _ in range(4):
            torch._assert_async(torch.all(x >= 0), "inputs")
            loss = layer(x).square().mean()
            torch._assert_async(loss >= 0)
            loss.backward()
        return layer.weight.grad.cpu()

    assert torch.equal(step("lazy"), step("cpu"))
    assert not metrics.counter_value("FallbackTotal")


def test_nobody_need_ever_read():
    x = torch.ones((), device="lazy")
    for _ in range(50):
        check(x, None)
        torch_lazyplug.mark_step()
    torch.lazy.synchronize()
