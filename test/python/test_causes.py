"""Nothing is silent: every sync, fallback and recompile has a cause, and a line when debugging is on."""

import pytest
import torch
from helpers import finish_pending

import torch_lazyplug
from torch_lazyplug import config, debug, ir_cache, metrics

pytestmark = [pytest.mark.lazy_only, pytest.mark.own_schedule("asserts what cuts a trace")]


@pytest.fixture
def counted():
    """The metrics of the test only, and no graph cached."""
    finish_pending()
    ir_cache.reset()
    metrics.reset()


def lazy(*values):
    return torch.tensor(values, dtype=torch.float32, device="lazy")


def counts(prefix):
    return {n.removeprefix(prefix): metrics.counter_value(n) for n in metrics.counter_names() if n.startswith(prefix)}


SYNCS = {
    "item": lambda x: x.sum().item(),
    "copy to CPU": lambda x: x.cpu(),
    "mark_step": lambda x: torch_lazyplug.mark_step(),
    "wait_device_ops": lambda x: torch_lazyplug.wait_device_ops(),
    "sync_multi": lambda x: torch_lazyplug.sync_multi([x], []),
    "synchronize": lambda x: torch.lazy.synchronize(),
    "memory access": lambda x: x.data_ptr(),
    "fallback": lambda x: x.nonzero(),
}


@pytest.mark.parametrize("cause", SYNCS)
def test_syncs_are_counted_by_cause(cause, counted):
    x = lazy(1, 2) + 1
    SYNCS[cause](x)
    assert counts("Sync/") == {cause: 1}
    finish_pending()
    assert metrics.counter_value("TraceCut") == metrics.counter_value("Flush") == 1
    assert f"Sync/{cause}" in metrics.metrics_report()


def test_a_full_trace_is_a_cause(counted):
    before = config.get("max_pending_nodes"), config.get("min_cut_nodes")
    config.set("max_pending_nodes", 3)
    config.set("min_cut_nodes", 1)
    try:
        x = lazy(1, 2)
        for _ in range(4):
            x = x.sigmoid()
    finally:
        config.set("max_pending_nodes", before[0])
        config.set("min_cut_nodes", before[1])
    assert counts("Sync/")["trace full"] >= 1


def test_events_name_the_line(debugging, counted):
    x = lazy(1, 2) + 1
    x.nonzero()
    (x * 2).tolist()
    syncs = debug.events("sync")
    assert [event["cause"] for event in syncs] == ["fallback", "copy to CPU"]
    (fallback,) = debug.events("fallback")
    assert fallback["cause"] == "aten::nonzero" and "depends on data" in fallback["detail"]
    assert all("test_causes.py:" in event["location"] for event in (*syncs, fallback))
    assert [event["cause"] for event in debug.events("compile")][0] == "first"
    starts = [event["start_ns"] for event in debug.events()]
    assert starts == sorted(starts)
    debug.clear_events()
    assert debug.events() == []


def test_the_report_names_lines(debugging, counted):
    x = lazy(1, 2)
    for _ in range(3):
        (x + 1).sum().item()
    report = metrics.metrics_report()
    assert "test_causes.py:" in report and "sync, item: 3" in report
    metrics.reset()
    assert "test_causes.py:" not in metrics.metrics_report()


def test_nothing_is_kept_without_debugging(counted):
    (lazy(1, 2) + 1).tolist()
    assert debug.events() == []


def scaled(size, factor=2.0, dim=0, extra=False):
    x = torch.ones(size, size).to("lazy")
    y = torch.cat([x, x], dim)
    z = y.sigmoid() if extra else y.tanh()
    return z.mul(factor).tolist()


CAUSES = {
    "shape": ({"size": 3}, "Float[3, 3] strides=[3, 1], was Float[2, 2] strides=[2, 1]"),
    "constant": ({"size": 2, "dim": 1}, "argument 'dim' is 1, was 0"),
    "op": ({"size": 2, "extra": True}, "the op is aten::sigmoid, was aten::tanh"),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_recompiles_are_explained(cause, counted, debugging):
    change, what = CAUSES[cause]
    scaled(2)
    scaled(2, factor=3.0)
    assert metrics.counter_value("Compile") == 1
    assert "is like no graph in the cache" in debug.explain_recompile()
    scaled(**change)
    assert counts("Recompile/") == {"first": 1, cause: 1}
    explanation = debug.explain_recompile()
    assert what in explanation
    now, before = explanation.splitlines()[-3:-1]
    assert "test_causes.py:" in now and "test_causes.py:" in before, explanation
    assert "ended by copy to CPU at" in explanation and "what helps: " in explanation
    assert debug.events("compile")[-1]["detail"] == explanation


def test_results_that_live_longer_are_a_cause(counted):
    def step(keep):
        x = lazy(1, 2)
        y = x.exp()
        z = y + 1
        kept = y if keep else None
        del y
        z.tolist()
        return kept

    step(False)
    kept = step(True)
    assert kept is not None
    assert counts("Recompile/") == {"first": 1, "results": 1}
    assert "in its results: %1, of aten::exp, lives on" in debug.explain_recompile()


def test_the_nearest_graph_is_compared(counted):
    scaled(2)
    lazy(1, 2).exp().sqrt().tolist()
    scaled(3)
    assert "was Float[2, 2]" in debug.explain_recompile()
    assert "(the setting debug shows Python lines)" in debug.explain_recompile()
