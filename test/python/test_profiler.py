"""torch.profiler: kernels are rows of the device, in its table and in its traces."""

import json

import pytest
import torch
from helpers import finish_everything
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity

from torch_lazyplug import config

pytestmark = [pytest.mark.lazy_only, pytest.mark.own_schedule("asserts which kernels there are")]


@pytest.fixture(autouse=True)
def from_an_empty_trace():
    finish_everything()


def program(x):
    return (torch.mm(x, x).relu() * 2 + x).sum()


def device_rows(profile):
    return {row.key: row for row in profile.key_averages() if row.device_type == DeviceType.PrivateUse1}


def test_ops_are_rows_of_the_device():
    inputs = [torch.full((300, 300), 1.0 + i).to("lazy") for i in range(3)]  # equal ones would be computed once
    with config.changed({"fusion": 0}), torch.profiler.profile() as profile:
        totals = [program(x) for x in inputs]
    rows = device_rows(profile)
    assert {name: row.count for name, row in rows.items()} == {
        "aten::mm": 3,
        "aten::relu": 3,
        "aten::mul.Tensor": 3,
        "aten::add.Tensor": 3,
        "aten::sum": 3,
    }
    assert all(0 < row.self_device_time_total < 1e6 for row in rows.values())  # microseconds
    assert "Self LAZY" in profile.key_averages().table()
    assert [total.item() for total in totals] == pytest.approx([9e4 * (600 * x * x + x) for x in (1, 2, 3)])


def test_groups_are_rows_with_their_ops():
    x = torch.ones(300, 300).to("lazy")
    with config.changed({"fusion": 1}), torch.profiler.profile() as profile:
        total = program(x)
    assert total.item() == pytest.approx(9e4 * 601)
    assert set(device_rows(profile)) == {"aten::mm", "aten::relu, aten::mul.Tensor, aten::add.Tensor, aten::sum"}


def test_without_the_device_there_are_none():
    x = torch.ones(3, 3).to("lazy")
    with torch.profiler.profile(activities=[ProfilerActivity.CPU]) as profile:
        program(x).item()
    assert device_rows(profile) == {}


def test_traces_have_them_between_begin_and_end(tmp_path):
    x = torch.ones(300, 300).to("lazy")
    with torch.profiler.profile() as profile, torch.profiler.record_function("all of it"):
        program(x).item()
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    (whole,) = [event for event in events if event.get("name") == "all of it" and event.get("cat") == "user_annotation"]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    assert "aten::mm" in [kernel["name"] for kernel in kernels]
    for kernel in kernels:
        assert whole["ts"] <= kernel["ts"] and kernel["ts"] + kernel["dur"] <= whole["ts"] + whole["dur"] + 1
    ends = [kernel["ts"] + kernel["dur"] for kernel in kernels]
    assert all(end <= kernel["ts"] + 0.01 for end, kernel in zip(ends, kernels[1:], strict=False)), (
        "one after the other"
    )
