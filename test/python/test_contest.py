"""The benchmarks' runner: contestants in processes of their own."""

import pytest
from contest import Failed, Process, Row, environment, run_case, spread, stop, summary

CASE = {"name": "linear SVM", "warm_up": 4, "block": 2}


@pytest.fixture
def processes():
    pair = [Process("eager", ["programs"], "1"), Process("eager:OMP_NUM_THREADS=2", ["programs"], "1")]
    yield pair
    stop(pair)


def test_contestants_are_asked_in_turn(processes):
    assert "linear SVM" in [case["name"] for case in processes[0].hello()]
    assert [p.threads for p in processes if p.hello()] == [1, 2]
    (row,) = run_case(CASE, processes, rounds=3)
    assert (row.case, row.contestant, row.threads, row.steps) == ("linear SVM", "eager:OMP_NUM_THREADS=2", 2, 2)
    assert len(row.rounds_ms) == 3
    assert row.reference_ms > 0 and row.speed_p10 <= row.speed <= row.speed_p90
    assert (row.compiles, row.fallbacks, row.late) == (0, 0, 0)


def test_failures_are_reported_and_survived(processes):
    process = processes[0]
    with pytest.raises(Failed, match="KeyError: 'none'"):
        process.ask("build", case="none")
    process._process.kill()
    with pytest.raises(Failed, match="no answer"):
        process.ask("drop")
    assert process.ask("drop") == {}


def test_the_environment_of_contestants(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert "OMP_NUM_THREADS" not in environment("lazy", {}, "default")
    lazy = environment("lazy", {"LAZYPLUG_CHUNK_NODES": "64"}, "1")
    chosen = (lazy["OMP_NUM_THREADS"], lazy["LAZYPLUG_CHUNK_NODES"], lazy["TORCH_DEVICE_BACKEND_AUTOLOAD"])
    assert chosen == ("1", "64", "1")
    assert environment("eager", {}, "1")["TORCH_DEVICE_BACKEND_AUTOLOAD"] == "0"


def test_ratios_are_of_rounds():
    def blocks(seconds, **counts):
        return [{"seconds": s, "cpu": 2 * s, "faults": 0, "late": 3, **counts} for s in seconds]

    process = Process("lazy", [], "1")
    reference, slow = blocks([1.0, 10.0, 2.0]), blocks([2.0, 20.0, 1.0], compiles=1, fallbacks=4)
    row = summary(CASE, process, 2, reference, slow, 0.5, 0.25)
    assert isinstance(row, Row)
    assert (row.reference_ms, row.speed, row.cpu) == (1000.0, 0.5, 2.0)
    assert (row.compiles, row.fallbacks, row.at_once, row.late) == (0.5, 2.0, 0.0, 3)
    assert (row.first_ms, row.reference_first_ms) == (250.0, 500.0)
    assert spread([2.0]) == (2.0, 2.0, 2.0)
