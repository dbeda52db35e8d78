"""The journal as a trace in Chrome's format, and how its events are put into rows and steps."""

import collections
import gzip
import itertools
import json
import threading
import time

import pytest
import torch
from helpers import finish_everything

import torch_lazyplug
from torch_lazyplug import debug, ir_cache
from torch_lazyplug.spans import op_times, spans_of, steps_of, thread_names

pytestmark = [pytest.mark.lazy_only, pytest.mark.own_schedule("asserts what cuts a trace")]

# What numbers of the profiler's size are rounded by, in microseconds.
ROUNDING = 0.002


def run_steps(count=3):
    """Steps that record, compile, run, wait and fall back, and a thread that reads."""
    ir_cache.reset()
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).to("lazy")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.randn(8, 16).to("lazy")
    finish_everything()
    debug.clear_events()
    for _ in range(count):
        loss = model(data).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
    (data > 0.5).nonzero()
    reader = threading.Thread(target=lambda: (data * 2).tolist(), name="reader")
    reader.start()
    reader.join()
    torch_lazyplug.mark_step(wait=True)


@pytest.fixture
def saved(tmp_path, debugging):
    def save(profile=None):
        debug.save_trace(tmp_path / "trace.json", profile)
        return json.loads((tmp_path / "trace.json").read_text())

    return save


def of_phase(trace, phase):
    return [entry for entry in trace["traceEvents"] if entry["ph"] == phase]


def rows(trace):
    found = collections.defaultdict(list)
    for entry in of_phase(trace, "X"):
        found[entry["pid"], entry["tid"]].append((entry["ts"], entry["ts"] + entry["dur"], entry))
    return found


def within(inner, outer):
    return outer[0] - ROUNDING <= inner[0] and inner[1] <= outer[1] + ROUNDING


def assert_nested(spans):
    for a, b in itertools.combinations(spans, 2):
        apart = a[1] <= b[0] + ROUNDING or b[1] <= a[0] + ROUNDING
        assert apart or within(a, b) or within(b, a), (a, b)


def test_what_happened_is_in_it(saved):
    run_steps()
    trace = saved()
    spans = of_phase(trace, "X")
    kinds = collections.Counter(span["cat"] for span in spans)
    happened = collections.Counter(event["kind"] for event in debug.events())
    for kind in ("sync", "wait", "fallback", "compile", "run"):
        assert kinds[kind] == happened[kind] > 0, kind
    assert kinds["op"] == sum(len(event["ops"]) for event in debug.events("run")) > 0
    (fallback,) = [span for span in spans if span["cat"] == "fallback"]
    assert fallback["name"] == "aten::nonzero" and "depends on data" in fallback["args"]["detail"]
    assert "test_timeline.py:" in fallback["args"]["line"] and fallback["args"]["source"] == "(data > 0.5).nonzero()"
    assert any(span["cat"] == "op" and "test_timeline.py:" in span["args"]["line"] for span in spans)


def test_every_row_is_named(saved):
    run_steps()
    trace = saved()
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in of_phase(trace, "M") if e["name"] == "thread_name"}
    assert set(rows(trace)) <= set(names)
    assert "MainThread" in names.values() and "steps" in names.values()
    (process,) = [entry for entry in of_phase(trace, "M") if entry["name"] == "process_name"]
    assert process["args"]["name"] == "torch_lazyplug"


def test_spans_of_a_row_are_nested(saved):
    run_steps()
    for spans in rows(saved()).values():
        assert_nested(spans)


def test_ops_are_within_their_run(saved):
    run_steps()
    for spans in rows(saved()).values():
        runs = [span for span in spans if span[2]["cat"] == "run"]
        ops = [span for span in spans if span[2]["cat"] == "op"]
        assert all(any(within(op, run) for run in runs) for op in ops)
        for run in runs:
            mine = [op for op in ops if within(op, run)]
            assert sum(op[2]["dur"] for op in mine) <= run[2]["dur"] + ROUNDING * len(mine)


def test_each_arrow_has_both_ends(saved):
    run_steps()
    trace = saved()
    starts, ends = ({e["id"]: e for e in of_phase(trace, phase)} for phase in "sf")
    assert len(starts) == len(of_phase(trace, "s")) >= 4 and set(starts) == set(ends)
    for number, kind, ties in ((n, k, t) for n in starts for k, t in (("sync", starts), ("run", ends))):
        at = ties[number]
        (span,) = [s for s in of_phase(trace, "X") if s["cat"] == kind and s["args"]["trace"] == number]
        assert span["tid"] == at["tid"] and span["ts"] <= at["ts"] <= span["ts"] + span["dur"]
        assert starts[number]["ts"] <= ends[number]["ts"]


def test_steps_and_memory(saved):
    run_steps(3)
    trace = saved()
    steps = [span for span in of_phase(trace, "X") if span["cat"] == "step"]
    assert [step["name"] for step in steps] == ["step 1", "step 2", "step 3", "step 4"]
    assert all(step["args"]["source"] == "optimizer.step()" for step in steps[:3]) and steps[3]["args"] == {}
    counters = of_phase(trace, "C")
    assert max(counter["args"]["bytes"] for counter in counters) > 0
    assert [c["ts"] for c in counters] == sorted(c["ts"] for c in counters)


def test_without_events_there_are_only_names(saved):
    debug.clear_events()
    assert {entry["ph"] for entry in saved()["traceEvents"]} == {"M"}


# Together with torch.profiler ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_a_profile_is_merged(suffix, saved, tmp_path):
    path = str(tmp_path / f"profile{suffix}")
    finish_everything()
    debug.clear_events()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for number in range(3):
            with torch.profiler.record_function(f"region {number}"):
                (torch.ones(50, 50, device="lazy") @ torch.ones(50, 50, device="lazy")).sum().item()
            time.sleep(0.01)
    profile.export_chrome_trace(path)
    with gzip.open(path, "rt") if suffix.endswith("gz") else open(path) as file:
        theirs = json.load(file)
    trace = saved(path)
    count = len(theirs["traceEvents"])
    assert trace["traceEvents"][:count] == theirs["traceEvents"]
    assert {k: v for k, v in trace.items() if k != "traceEvents"} == {
        k: v for k, v in theirs.items() if k != "traceEvents"
    }
    ours = [entry for entry in trace["traceEvents"][count:] if entry["ph"] == "X"]
    assert not {entry["pid"] for entry in ours} & {entry.get("pid") for entry in theirs["traceEvents"]}
    regions = [e for e in theirs["traceEvents"] if e["ph"] == "X" and e["name"].startswith("region")]
    runs = [entry for entry in ours if entry["cat"] == "run"]
    assert len(runs) == len(regions) == 3
    for run, region in zip(runs, sorted(regions, key=lambda region: region["ts"]), strict=True):
        assert region["ts"] <= run["ts"] and run["ts"] + run["dur"] <= region["ts"] + region["dur"]


def test_a_compressed_trace(tmp_path, debugging):
    run_steps(1)
    debug.save_trace(tmp_path / "trace.json.gz")
    with gzip.open(tmp_path / "trace.json.gz", "rt") as file:
        assert of_phase(json.load(file), "X")


# Rows ----------------------------------------------------------------------------------------------------------------


def event(kind, start, end, thread=1, location="a.py:1", ops=()):
    fields = {"kind": kind, "cause": "c", "detail": "", "location": location, "trace": 0, "allocated": 0, "bytes": 0}
    return {**fields, "start_ns": start, "duration_ns": end - start, "thread": thread, "ops": list(ops)}


def placed(*events):
    return [(span.event["kind"], span.start, span.end, span.lane) for span in spans_of(events)]


def test_a_recording_ends_where_the_wait_that_cut_it_begins():
    assert placed(event("wait", 50, 100), event("sync", 0, 60)) == [("sync", 0, 50, 0), ("wait", 50, 100, 0)]


def test_what_ends_in_a_wait_began_in_it():
    assert placed(event("wait", 50, 100), event("fallback", 48, 90)) == [("wait", 50, 100, 0), ("fallback", 50, 90, 0)]


def test_spans_that_cross_have_lanes():
    crossing = (event("sync", 0, 60), event("sync", 40, 100), event("sync", 70, 90))
    assert placed(*crossing) == [("sync", 0, 60, 0), ("sync", 40, 100, 1), ("sync", 70, 90, 0)]
    apart = (event("sync", 0, 60), event("sync", 40, 100, thread=2))
    assert [lane for *_, lane in placed(*apart)] == [0, 0]


def test_ops_stay_within_their_run():
    (run,) = spans_of([event("run", 0, 100, ops=[("a", "", 60e-9), ("b", "", 60e-9), ("c", "", 1e-9)])])
    assert op_times(run) == [("a", "", 0, 60), ("b", "", 60, 100), ("c", "", 100, 100)]


def test_threads_that_ended_have_names():
    assert thread_names([threading.get_native_id(), 2**22]) == {
        threading.get_native_id(): threading.current_thread().name,
        2**22: f"thread {2**22} (ended)",
    }


def test_steps_end_at_the_line_that_marks_most():
    marks = [event("step", at, at, location=line) for at, line in ((10, "a:1"), (20, "a:1"), (25, "b:2"))]
    steps = steps_of([event("sync", 0, 5), *marks])
    assert [(step.start, step.end, step.location) for step in steps] == [(0, 10, "a:1"), (10, 20, "a:1")]
    steps = steps_of([event("sync", 0, 5), *marks, event("run", 15, 30)])
    assert [(step.start, step.end, step.location) for step in steps[2:]] == [(20, 30, "")]
    assert [(step.start, step.end) for step in steps_of([event("sync", 3, 5)])] == [(3, 5)]
    assert steps_of([]) == []
