"""The benchmarks' runner: contestants in processes of their own, measured in rounds."""

import pytest
from helpers import DEVICE
from process import Failed, Process, environment, settings_of
from registry import CASES, load
from rounds import Entry, Failure, Row, run_case, spread, stop, summary

CASE = {"name": "linear SVM", "suite": "programs", "warm_up": 4, "block": 2, "rivals": [], "host": False}
OTHER = "eager:OMP_NUM_THREADS=2"


@pytest.fixture
def processes():
    pair = [Process("eager", ["programs"], "1"), Process(OTHER, ["programs"], "1")]
    yield pair
    stop(pair)


def test_contestants_are_asked_in_turn(processes):
    hello, other = (process.ask("hello") for process in processes)
    assert {**CASE, "warm_up": 60, "block": None} in hello["cases"]
    assert (hello["threads"], other["threads"]) == (1, 2)
    (row,) = run_case(CASE, processes, 1, rounds=3)
    assert (row.case, row.suite, row.contestant, row.reference) == ("linear SVM", "programs", OTHER, "eager")
    assert (row.threads, row.steps, len(row.rounds_ms)) == (1, 2, 3)
    assert row.reference_ms > 0 and row.speed_p10 <= row.speed <= row.speed_p90
    assert (row.compiles, row.fallbacks, row.late) == (0, 0, 0)
    assert (row.peak_mb, row.reference_peak_mb) == (None, None)


def test_rounds_of_new_processes_know_the_first_step_and_memory(processes):
    (row,) = run_case(CASE, processes, 1, rounds=2, fresh=True)
    assert len(row.rounds_ms) == 2
    assert row.first_ms > 0 and row.peak_mb > 0 and row.reference_peak_mb > 0
    assert all(process._process is None for process in processes)


def test_failures_are_reported_and_survived(processes):
    process = processes[0]
    with pytest.raises(Failed, match="KeyError: 'none'"):
        process.ask("build", case="none")
    process._process.kill()
    with pytest.raises(Failed, match="no answer"):
        process.ask("drop")
    assert process.ask("drop") == {}


def test_who_fails_is_left_out_and_the_others_go_on(processes):
    broken = Process("none", ["programs"], "1")
    failure, row = run_case(CASE, [processes[0], broken, processes[1]], 1, rounds=2)
    assert isinstance(failure, Failure) and isinstance(row, Row)
    assert (failure.case, failure.contestant, failure.threads, failure.suite) == ("linear SVM", "none", 1, "programs")
    assert "KeyError: 'none'" in failure.error
    assert row.contestant == OTHER


def test_nobody_is_compared_with_a_reference_that_fails(processes):
    failures = run_case(CASE, [Process("none", ["programs"], "1"), processes[0]], 1, rounds=2)
    assert [failure.contestant for failure in failures] == ["none", "eager"]
    assert all("KeyError: 'none'" in failure.error for failure in failures)


def test_the_environment_of_contestants(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert "OMP_NUM_THREADS" not in environment("lazy", "default")
    lazy = environment("lazy:LAZYPLUG_CHUNK_NODES=64", "1")
    chosen = (lazy["OMP_NUM_THREADS"], lazy["LAZYPLUG_CHUNK_NODES"], lazy["TORCH_DEVICE_BACKEND_AUTOLOAD"])
    assert chosen == ("1", "64", "1")
    assert all(environment(name, "1")["TORCH_DEVICE_BACKEND_AUTOLOAD"] == "0" for name in ("eager", "torch_lazy"))
    assert settings_of("lazy:A=1,B=x=y") == {"A": "1", "B": "x=y"}


def entry(name, seconds, first, **counts):
    made = Entry(Process(name, [], "1"))
    made.firsts = [first]
    made.blocks = [{"seconds": s, "cpu": 2 * s, "faults": 4, "late": 3, "peak_mb": 9.0, **counts} for s in seconds]
    return made


def test_ratios_are_of_rounds():
    reference = entry("eager", [1.0, 10.0, 2.0], 0.5)
    slow = entry("lazy", [2.0, 20.0, 1.0], 0.25, compiles=1, fallbacks=4)
    row = summary(CASE, slow, reference, 1, 2, fresh=False)
    assert (row.reference_ms, row.speed, row.cpu) == (1000.0, 0.5, 2.0)
    assert (row.compiles, row.fallbacks, row.at_once, row.late) == (0.5, 2.0, 0.0, 3)
    assert (row.faults, row.reference_faults) == (2.0, 2.0)
    assert (row.first_ms, row.reference_first_ms) == (250.0, 500.0)
    assert (row.peak_mb, summary(CASE, slow, reference, 1, 2, fresh=True).peak_mb) == (None, 9.0)


def test_a_spread_is_the_median_and_two_percentiles():
    assert spread([2.0]) == (2.0, 2.0, 2.0)
    assert spread([3.0, 1.0, 2.0]) == (2.0, 1.2, 2.8)


def test_models_of_libraries_are_the_same_on_both_devices():
    pytest.importorskip("transformers", reason="part of the extra `test`")
    load("libraries")
    steps = [CASES["Mamba of transformers, training"].make(device) for device in ("cpu", DEVICE)]
    expected, losses = [[step() for _ in range(2)] for step in steps]
    assert losses == pytest.approx(expected, rel=1e-5) and losses[0] != losses[1]
