"""What the benchmarks' runner makes of its rows: bars, tables, JSON and a picture."""

import sys

import bars
import plot
import report
from process import Process
from registry import SUITES
from rounds import Failure, Row


def row(case, contestant, rounds_ms, suite="models", threads=1, **others):
    """Of a reference that takes 1 ms, and of processes that have run other cases."""
    speed = 1 / sorted(rounds_ms)[len(rounds_ms) // 2]
    figures = dict.fromkeys(("compiles", "fallbacks", "at_once", "faults", "late"), 0)
    figures |= dict.fromkeys(("speed", "speed_p10", "speed_p90"), speed)
    figures |= {"reference_ms": 1.0, "reference_rounds_ms": [1.0] * len(rounds_ms), "rounds_ms": rounds_ms}
    figures |= {"steps": 1, "cpu": 1 / speed, "first_ms": 2.0, "reference_first_ms": 1.0}
    return Row(case=case, contestant=contestant, suite=suite, threads=threads, **figures | others)


def judged(one, rows=()):
    return {str(bar): (value, bar.is_reached(value)) for bar, value in bars.judged(one, rows)}


def test_bars_are_of_the_device_at_a_number_of_threads():
    assert judged(row("LeNet, training", "lazy", [0.8])) == {"≥ 1.15": (1.25, True)}
    assert judged(row("LeNet, training", "lazy:LAZYPLUG_CHUNK_NODES=64", [1.0])) == {"≥ 1.15": (1.0, False)}
    assert judged(row("LeNet, training", "lazy", [1.0], threads=2)) == {"≥ 0.95": (1.0, True)}
    assert judged(row("LSTM cells, training", "lazy", [1.0], threads=2)) == {"≥ 1.15": (1.0, False)}
    assert judged(row("LeNet, training", "compile", [0.8])) == {}
    assert judged(row("game of life", "lazy", [1.25], suite="programs")) == {"≥ 0.85": (0.8, False)}


def test_a_bar_against_a_peer_compares_rounds():
    mine = row("AdamW over 70 small tensors", "lazy", [0.1, 0.1, 0.1], suite="ops")
    fused = row("AdamW over 70 small tensors", "fused", [0.2, 0.05, 0.3], suite="ops")
    assert judged(mine) == {"≥ 6": (10.0, True)}
    assert judged(mine, [mine, fused])["≥ 1 × fused"] == (2.0, True)


def test_the_time_of_reading_is_compared_with_never_reading():
    read = row("GPT-2, training", "lazy", [1.2])
    unread = row("GPT-2, training, never read", "lazy", [1.0])
    assert judged(read, [read, unread])["time ≤ 1.05 × never read"] == (1.2, False)


def test_first_results_and_memory_are_judged_in_new_processes_only():
    old = row("rope of 256x512", "lazy", [0.1], suite="ops")
    new = row("rope of 256x512", "lazy", [0.1], suite="ops", peak_mb=3.0, reference_peak_mb=4.0)
    peer = row("rope of 256x512", "compile", [0.1], suite="ops", first_ms=200.0)
    assert judged(old, [old, peer]) == {"≥ 3": (10.0, True)}
    assert judged(new, [new, peer])["first ≤ 1.5"] == (2.0, False)
    assert judged(new, [new, peer])["first ≤ 0.02 × compile"] == (0.01, True)


def test_every_bar_and_group_is_of_cases_that_exist():
    process = Process("eager", list(SUITES), "1")
    made = [row(case["name"], "lazy", [1.0], suite=case["suite"]) for case in process.ask("hello")["cases"]]
    process.stop()
    concerned = [bar.cases for bar in (*bars.EACH, *bars.MEANS)] + list(bars.GROUPS.values())
    assert [cases for cases in concerned if not any(bars.belongs(one, cases) for one in made)] == []
    assert sum(bars.belongs(one, bars.EIGHT_OPS) for one in made) == 8


ROWS = [
    row("GPT-2, training", "compile", [0.5]),
    row("GPT-2, training", "lazy", [0.5]),
    row("LeNet, training", "lazy", [1.25]),
]
FAILURE = Failure("LeNet, training", "compile", 1, "models", "Traceback\nRuntimeError: no compiler\n")


def test_the_table_marks_what_is_missed_and_leaves_failures_empty():
    header, gpt2, lenet = report.case_table(ROWS, [FAILURE])
    assert header == ["case", "eager ms", "compile", "CPU", "lazy", "CPU", "bars", ""]
    assert gpt2 == ["GPT-2, training", "1.000", *["2.00 (2.00 - 2.00)", "0.50"] * 2, "≥ 1.15", ""]
    assert lenet == ["LeNet, training", "1.000", "", "", "0.80 (0.80 - 0.80)", "1.25", "≥ 1.15", "missed"]
    assert report.line(FAILURE) == "LeNet, training: compile failed: RuntimeError: no compiler"


def test_means_have_bars_where_all_cases_were_measured():
    _, peer, device = report.mean_table(ROWS)
    assert peer == ["training of models", "1", "compile", "2.00", "2.00 (GPT-2, training)", "0 of 1", "0.50", "", ""]
    assert device[2:5] == ["lazy", "1.26", "0.80 (LeNet, training)"]
    assert device[5:] == ["1 of 2", "0.79", "≥ 1.75, cpu ≤ 1 (0.79)", "missed"]


def test_tables_are_printed_again_from_json(tmp_path, capsys, monkeypatch):
    path = tmp_path / "bench.json"
    report.save(path, [*ROWS, FAILURE])
    assert report.sorted_out(report.load([path])) == (ROWS, [FAILURE])
    monkeypatch.setattr(sys, "argv", ["report.py", str(path), "--markdown"])
    report.main()
    printed = capsys.readouterr().out
    assert "| LeNet, training | 1.000 |  |  | 0.80 (0.80 - 0.80) | 1.25 | ≥ 1.15 | missed |" in printed
    assert "LeNet, training: compile failed: RuntimeError: no compiler" in printed


def test_threads_stand_side_by_side(tmp_path, capsys, monkeypatch):
    path = tmp_path / "bench.json"
    report.save(path, [*ROWS, row("LeNet, training", "lazy", [0.5], threads=2)])
    monkeypatch.setattr(sys, "argv", ["report.py", str(path), "--markdown", "--side-by-side"])
    report.main()
    header, _, gpt2, lenet = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")][-4:]
    assert header == "| case | eager ms | 1 thread | CPU |  | eager ms | 2 threads | CPU |  |"
    assert gpt2 == "| GPT-2, training | 1.000 | 2.00 | 0.50 |  |  |  |  |  |"
    assert lenet == "| LeNet, training | 1.000 | 0.80 | 1.25 | missed | 1.000 | 2.00 | 0.50 |  |"


def test_columns_stand_below_each_other():
    assert report.plain([["a", "b"], ["long", ""]]) == "a     b\nlong"


def test_ratios_are_drawn(tmp_path):
    plot.save(tmp_path / "bench.png", [*ROWS, row("LeNet, training", "lazy", [2.0], threads=2)])
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_there_is_a_message(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    plot.save(tmp_path / "bench.png", ROWS)
    assert "matplotlib is missing" in capsys.readouterr().out
    assert not (tmp_path / "bench.png").exists()
