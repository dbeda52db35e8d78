"""torch.lazy.set_sync_debug_mode: where a program waits for the device."""

import warnings

import pytest
import torch
from helpers import run_fresh, work

pytestmark = pytest.mark.lazy_only

READS = {
    "item": lambda x: x.sum().item(),
    "bool": lambda x: bool(x.sum() > 0),
    "float": lambda x: float(x.sum()),
    "tolist": lambda x: x.tolist(),
    "cpu": lambda x: x.cpu(),
    "to": lambda x: x.to("cpu", torch.float64),
    "copy_": lambda x: torch.empty(3).copy_(x),
    "print": lambda x: repr(x),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 0],
    "equal": lambda x: torch.equal(x, x),
    "linalg": lambda x: torch.linalg.cholesky(x.diag()),
    "data_ptr": lambda x: x.data_ptr(),
}

WITHOUT_READING = {
    "arithmetic": lambda x: (x * 2).sum(),
    "write": lambda x: x.add_(1),
    "view": lambda x: x[1:].reshape(2, 1),
    "upload": lambda x: x + torch.ones(3).to("lazy"),
    "synchronize": lambda x: torch.lazy.synchronize(),
    "stream": lambda x: torch.lazy.current_stream().synchronize(),
    "random": lambda x: torch.rand_like(x),
    "shape": lambda x: (x.shape, x.numel(), x.stride()),
    "backward": lambda x: (x.clone().requires_grad_() * 2).sum().backward(),
}


@pytest.fixture(autouse=True)
def default_mode():
    yield
    torch.lazy.set_sync_debug_mode("default")


@pytest.fixture
def x():
    return torch.ones(3, device="lazy") + 1


@pytest.mark.own_schedule("asserts that nothing has run")
@pytest.mark.parametrize("name", READS)
def test_reads_raise_before_anything_runs(x, name):
    torch.lazy.set_sync_debug_mode("error")
    with work_without_sync() as done, pytest.raises(RuntimeError, match="called a synchronizing LAZY operation"):
        READS[name](x)
    assert done == []
    torch.lazy.set_sync_debug_mode("default")
    READS[name](x)
    assert x.tolist() == [2, 2, 2]


class work_without_sync:  # noqa: N801
    """Collects the graphs that run in the block; unlike `work` it waits for nothing first."""

    def __enter__(self):
        self.before = self.executions()
        self.done = []
        return self.done

    def __exit__(self, *exc_info):
        self.done.extend(range(self.executions() - self.before))

    @staticmethod
    def executions():
        from torch_lazyplug import metrics

        return (metrics.counter_value("Compile") or 0) + (metrics.counter_value("CacheHit") or 0)


@pytest.mark.parametrize("name", WITHOUT_READING)
def test_what_reads_nothing_is_silent(x, name):
    torch.lazy.set_sync_debug_mode("error")
    WITHOUT_READING[name](x)


@pytest.mark.parametrize("name", READS)
def test_warnings_name_the_line(x, name):
    torch.lazy.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        READS[name](x)
    messages = [str(w.message) for w in caught if "called a synchronizing LAZY operation" in str(w.message)]
    assert messages
    definition = READS[name].__code__
    assert f"{definition.co_filename}:{definition.co_firstlineno}" in messages[0]


def test_one_print_is_one_read(x):
    torch.lazy.set_sync_debug_mode("warn")
    with work() as done, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        repr(x * 2)
    assert len([w for w in caught if "synchronizing" in str(w.message)]) == 1
    assert done.flushes == 1


def test_modes():
    for number, name in enumerate(("default", "warn", "error")):
        torch.lazy.set_sync_debug_mode(name)
        assert torch.lazy.get_sync_debug_mode() == number
        torch.lazy.set_sync_debug_mode("default")
        torch.lazy.set_sync_debug_mode(number)
        assert torch.lazy.get_sync_debug_mode() == number
    for wrong in ("loud", 3, -1):
        with pytest.raises(RuntimeError, match="expected one of `default`, `warn`, `error`"):
            torch.lazy.set_sync_debug_mode(wrong)
    assert torch.lazy.get_sync_debug_mode() == 2


def test_mode_of_the_environment():
    run_fresh("assert torch.lazy.get_sync_debug_mode() == 1", LAZYPLUG_SYNC_DEBUG="warn")
