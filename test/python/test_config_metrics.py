"""The settings and the metrics, seen from Python."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers import work

import torch_lazyplug
from torch_lazyplug import config, metrics

pytestmark = pytest.mark.lazy_only


@pytest.fixture
def restored_flags():
    before = {name: config.get(name) for name in config.names()}
    yield
    for name, value in before.items():
        config.set(name, value)


def test_every_flag_has_value_documentation_and_variable():
    for name, flag in config.describe().items():
        assert isinstance(flag["value"], (bool, int, str)), name
        assert flag["doc"] and flag["env"], name
        assert all(variable.startswith(("LAZYPLUG_", "LTC_")) for variable in flag["env"]), name


def test_the_document_lists_every_flag():
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, str(root / "tools" / "generate_settings_doc.py"), "--check"]
    # Its defaults are those of the program, whatever the environment says.
    env = {**os.environ, "LAZYPLUG_DEBUG": "1", "PYTHONPATH": str(Path(torch_lazyplug.__file__).parents[1])}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "value"), [("debug", True), ("debug", False), ("cache_size", 7), ("force_fallback", "aten::relu")]
)
def test_flags_keep_value_and_type(name, value, restored_flags):
    config.set(name, value)
    assert config.get(name) == value
    assert type(config.get(name)) is type(value)


def test_flags_can_be_changed_for_a_block():
    before = config.get("cache_size"), config.get("fallback")
    with pytest.raises(KeyError), config.changed({"cache_size": 7, "fallback": "error"}):
        assert (config.get("cache_size"), config.get("fallback")) == (7, "error")
        raise KeyError
    with pytest.raises(ValueError), config.changed({"cache_size": 7, "fallback": "sometimes"}):
        pass
    assert (config.get("cache_size"), config.get("fallback")) == before


@pytest.mark.parametrize("name", ["debug", "launch_blocking", "fallback", "force_fallback"])
def test_named_helpers(name, restored_flags):
    value = {"debug": True, "launch_blocking": True, "fallback": "error", "force_fallback": "aten::relu"}[name]
    getattr(config, f"set_{name}")(value)
    assert getattr(config, f"get_{name}")() == config.get(name) == value


@pytest.mark.parametrize(
    ("name", "value"), [("no_such_flag", 1), ("cache_size", 0), ("cache_size", "x"), ("debug", 2), ("fallback", "no")]
)
def test_bad_flags_raise_and_change_nothing(name, value):
    before = config.describe()
    with pytest.raises(ValueError, match=name):
        config.set(name, value)
    assert config.describe() == before


def test_unknown_metrics():
    assert metrics.counter_value("NoSuchCounter") is None
    assert metrics.metric_data("NoSuchTimer") is None


def ops_counted():
    return {name: metrics.counter_value(name) for name in metrics.counter_names() if name.startswith("lazy::")}


def test_ops_are_counted_when_they_are_recorded():
    x = torch.ones(3, device="lazy")
    for step in range(3):  # the last one is predicted
        metrics.reset()
        y = ((x + step) + 2).sigmoid()
        y.mul_(y)
        del y
        assert ops_counted() == {"lazy::add": 2, "lazy::sigmoid": 1, "lazy::mul_": 1}
        torch_lazyplug.mark_step(wait=True)
        assert ops_counted() == {"lazy::add": 2, "lazy::sigmoid": 1, "lazy::mul_": 1}
    assert metrics.executed_fallback_ops() == []


def test_ops_that_are_not_recorded_are_not_counted_as_such(restored_flags):
    x = torch.ones(3, device="lazy")
    metrics.reset()
    x.view(3, 1).t()
    assert ops_counted() == {}
    config.set_force_fallback("aten::relu")
    x.relu()
    assert ops_counted() == {}
    assert metrics.executed_fallback_ops() == ["aten::relu"]


@pytest.mark.parametrize("value_of", [metrics.counter_value, torch_lazyplug._C._lazy._counter_value])
def test_a_counter_without_a_count_has_no_value(value_of):
    torch.ones(3, device="lazy").relu()
    assert value_of("lazy::relu") > 0
    metrics.reset()
    assert value_of("lazy::relu") is None


@pytest.mark.own_schedule("counts graphs")
def test_work_is_counted_and_reset():
    metrics.reset()
    (torch.ones(2, device="lazy") + 1).tolist()
    names = metrics.counter_names()
    assert names == sorted(names)
    assert metrics.counter_value("Flush") == 1
    assert "Flush" in torch_lazyplug.metrics_report()
    assert "Flush" in metrics.short_report()
    for name in metrics.metric_names():
        data = metrics.metric_data(name)
        assert 0 < data["min_ns"] <= data["max_ns"] <= data["total_ns"], name
    metrics.reset()
    assert metrics.counter_names() == []
    assert metrics.executed_fallback_ops() == []


@pytest.mark.own_schedule("counts cuts")
def test_graph_text():
    x = torch.ones(2, device="lazy") + 1
    assert "add" in torch_lazyplug.get_tensors_text([x])
    with pytest.raises(ValueError, match="Unrecognized IR format: 'png'"):
        torch_lazyplug.debug.dump_ir([x], "png")


@pytest.mark.own_schedule("counts cuts")
def test_to_cpu_synchronizes_once():
    x = torch.ones(2, device="lazy")
    with work() as done:
        result = torch_lazyplug.to_cpu({"a": x + 1, "b": [x + 2, torch.zeros(1), "text"]})
    assert result["a"].tolist() == [2, 2]
    assert result["b"][0].tolist() == [3, 3]
    assert result["b"][2] == "text"
    assert done.flushes == 1


def test_to_cpu_copies_what_occurs_twice_once():
    x = torch.ones(2, device="lazy") + 1
    first, (second, other) = torch_lazyplug.to_cpu((x, [x, torch.zeros(1)]))
    assert first is second and first.device.type == other.device.type == "cpu"


@pytest.mark.own_schedule("counts graphs")
def test_save_writes_cpu_tensors(tmp_path):
    model = torch.nn.Linear(2, 2).to("lazy")
    with work() as done:
        torch_lazyplug.save({"model": model.state_dict(), "x": model(torch.ones(1, 2, device="lazy"))}, tmp_path / "a")
    assert done.flushes == 1
    loaded = torch.load(tmp_path / "a")
    assert loaded["x"].device.type == loaded["model"]["weight"].device.type == "cpu"
    torch.testing.assert_close(loaded["model"]["bias"], model.bias.detach().cpu())


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("aten::nope", "'aten::nope' selects nothing: no operator has that name"),
        ("aten::add,aten::linear", "'aten::linear' selects nothing: it is made of other operators"),
    ],
)
def test_forced_fallbacks_that_select_nothing_warn_at_once(names, message, restored_flags):
    with pytest.warns(UserWarning, match=message):
        config.set_force_fallback(names)
