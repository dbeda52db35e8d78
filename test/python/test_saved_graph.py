"""Recorded graphs as files: they compute, anywhere, what the tensors hold here, to the bit."""

import os
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from helpers import run_fresh, work

import torch_lazyplug
from torch_lazyplug import debug

pytestmark = [pytest.mark.lazy_only, pytest.mark.own_schedule("looks at a graph that is pending as a whole")]


def lazy(*values, **options):
    return torch.tensor(values, **options).to("lazy")


def chain():
    x, y = torch.randn(5, 33).to("lazy"), torch.randn(5, 33).to("lazy")
    z = torch.where(x > y, x * 1.5 - y, -x)
    return [(z.relu() / (y.abs() + 1)).sqrt()]


def writes_and_views():
    x = torch.arange(12.0).to("lazy")
    y = x.view(3, 4).t()
    y[1:, 0].mul_(2)
    x += 1
    return [x, y, y[2], x[4:8], x]


def numbers():
    x, half = lazy(0, 1, 2), lazy(1.0, 2.0, dtype=torch.float16)
    scalar = torch.tensor(2.5, dtype=torch.float64)
    return [
        x * 2.5,
        x + (1 + 2j),
        x * True,
        half * 3 + 0.1,
        x / scalar,
        half * scalar,
        x.clamp(min=1) - 2,
        x.add(x, alpha=3),
    ]


def random_numbers():
    x = torch.ones(50).to("lazy")
    return [
        torch.rand_like(x),
        F.dropout(x, 0.5),
        torch.randperm(9, device="lazy"),
        x.normal_(),
        torch.bernoulli(x.sigmoid()),
    ]


def training_step(make_optimizer):
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.GELU(), torch.nn.Linear(8, 3)
    ).to("lazy")
    optimizer = make_optimizer(model.parameters())
    loss = F.cross_entropy(model(torch.randn(4, 6).to("lazy")), torch.tensor([0, 1, 2, 1]).to("lazy"))
    loss.backward()
    optimizer.step()
    return [loss.detach(), *(p.grad for p in model.parameters()), *(p.detach() for p in model.parameters())]


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def adam(parameters):
    return torch.optim.AdamW(parameters, lr=0.1, foreach=False)


def layouts():
    base = torch.arange(24.0).to("lazy")
    torch_lazyplug.mark_step(wait=True)
    turned, later = base.view(4, 6).t()[1:], base[8:]
    complex_ = torch.complex(base, base).conj()
    return [turned @ turned.t(), later.cumsum(0) + turned[0, 0], complex_ * 2, complex_.imag, turned + 1]


PROGRAMS = {
    "chain": chain,
    "matmul": lambda: [F.linear(torch.randn(4, 3).to("lazy"), torch.randn(5, 3).to("lazy"), torch.randn(5).to("lazy"))],
    "writes and views": writes_and_views,
    "numbers": numbers,
    "random numbers": random_numbers,
    "training step": lambda: training_step(sgd),
    "training step, tensor by tensor": lambda: training_step(adam),
    "layouts": layouts,
    "several results of an op": lambda: list(torch.randn(4, 5).to("lazy").sort(0)),
    "nothing is pending": lambda: [torch.arange(3.0).to("lazy")],
    "empty": lambda: [torch.ones(0, 3).to("lazy") + 1, torch.empty(2, 0, device="lazy")],
    "attention": lambda: [F.scaled_dot_product_attention(*torch.randn(3, 1, 2, 4, 8).to("lazy").unbind())],
    "convolution": lambda: [F.conv2d(torch.randn(1, 2, 5, 5).to("lazy"), torch.randn(3, 2, 3, 3).to("lazy"))],
    "an op that has fallen back": lambda: [lazy(0, 1, 2).nonzero() + 1],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_files_compute_what_the_tensors_hold(name, tmp_path):
    tensors = PROGRAMS[name]()
    debug.save_graph(tmp_path / "graph", tensors)
    graph = debug.load_graph(tmp_path / "graph")
    first, second = graph.run(), graph.run()
    for actual, again, expected in zip(first, second, tensors, strict=True):
        assert actual.device.type == "cpu" and actual.dtype == expected.dtype
        assert (actual.shape, actual.stride()) == (expected.shape, expected.stride())
        assert torch.equal(actual, expected.cpu()) and torch.equal(actual, again)


def test_groups_are_saved_as_they_are_compiled(tmp_path):
    debug.save_graph(tmp_path / "graph", chain())
    graph = debug.load_graph(tmp_path / "graph")
    assert "lazyplug::pointwise" in graph.text and "aten::where" in graph.recorded
    assert len(graph.inputs) == 2 + len(re.findall(r"%\d+ : (?:int|float|Float\(\))", graph.text.split("):\n")[0]))


def test_saving_leaves_everything_pending(tmp_path):
    x = torch.ones(3).to("lazy")
    y = x * 2
    with work() as done:
        z, w = y + x, x.exp()
        debug.save_graph(tmp_path / "graph", [z])
    assert (done.flushes, done.executed, done.recorded) == (0, 0, 2)
    x.mul_(5)
    assert z.tolist() == [3] * 3 and w.sum().item() == pytest.approx(3 * 2.7182817)
    assert [t.tolist() for t in debug.load_graph(tmp_path / "graph").run()] == [[3] * 3]


def test_results_share_memory_as_the_tensors_do(tmp_path):
    debug.save_graph(tmp_path / "graph", writes_and_views())
    results = debug.load_graph(tmp_path / "graph").run()
    assert len({result.untyped_storage().data_ptr() for result in results}) == 1
    assert [result.storage_offset() for result in results] == [0, 0, 2, 4, 0]


def test_inputs_lie_as_the_graph_reads_them(tmp_path):
    whole = torch.arange(20.0).to("lazy")
    x = whole[2:14].view(3, 4).t()
    debug.save_graph(tmp_path / "graph", [x.exp(), whole.view(4, 5), whole.t()])
    graph = debug.load_graph(tmp_path / "graph")
    given, offset = graph.inputs
    assert offset == 2
    assert given.untyped_storage().nbytes() == 80 and given.tolist() == list(range(20))
    assert "%0 : Float(20, strides=[1])" in graph.text


def test_parameters_that_are_read_turned_can_be_results(tmp_path):
    weight = torch.randn(5, 3).to("lazy")
    expected = [F.linear(torch.ones(2, 3).to("lazy"), weight), weight.mul_(2), weight]
    debug.save_graph(tmp_path / "graph", expected)
    graph = debug.load_graph(tmp_path / "graph")
    assert {tuple(t.shape): t.stride() for t in graph.inputs if torch.is_tensor(t)}[3, 5] == (1, 3)
    assert all(torch.equal(a, e.cpu()) for a, e in zip(graph.run(), expected, strict=True))


def test_running_leaves_the_inputs_alone(tmp_path):
    x = torch.ones(3).to("lazy")
    x.add_(1)
    debug.save_graph(tmp_path / "graph", [x])
    graph = debug.load_graph(tmp_path / "graph")
    for _ in range(3):
        assert graph.run()[0].tolist() == [2] * 3
    assert graph.inputs[0].tolist() == [1] * 3


def test_times_are_seconds(tmp_path):
    debug.save_graph(tmp_path / "graph", [lazy(1.0, 2.0).exp()])
    graph = debug.load_graph(tmp_path / "graph")
    assert 0 < graph.time(repeat=3) < 60
    with pytest.raises(ValueError, match="at least one run, got 0"):
        graph.time(repeat=0)


def test_lines_are_saved_when_debugging(tmp_path, debugging):
    debug.save_graph(tmp_path / "graph", chain())
    assert "test_saved_graph.py:" in debug.load_graph(tmp_path / "graph").recorded


def test_errors_of_ops_are_raised_by_running(tmp_path):
    x = lazy(1.0, 2.0).index_select(0, lazy(7))
    debug.save_graph(tmp_path / "graph", [x])
    with pytest.raises((IndexError, RuntimeError), match="out of range"):
        debug.load_graph(tmp_path / "graph").run()
    with pytest.raises(IndexError, match="out of range"):
        x.tolist()


# Other processes -----------------------------------------------------------------------------------------------------


def test_a_fresh_process_computes_the_same(tmp_path):
    tensors = training_step(adam)
    debug.save_graph(tmp_path / "graph", tensors)
    code = f"torch.set_num_threads({torch.get_num_threads()})\n"  # sums are added up in another order by more
    code += "results = torch_lazyplug.debug.load_graph({!r}).run()\ntorch.save(results, {!r})\n"
    run_fresh(code.format(str(tmp_path / "graph"), str(tmp_path / "results")))
    results = torch.load(tmp_path / "results")
    assert all(torch.equal(a, e.cpu()) for a, e in zip(results, tensors, strict=True))


def test_the_command_prints_shapes_checksums_and_the_time(tmp_path):
    result = torch.arange(6.0).to("lazy").view(2, 3).t() * 2
    debug.save_graph(tmp_path / "graph", [result])
    root = Path(torch_lazyplug.__file__).resolve().parents[1]
    command = [sys.executable, "-m", "torch_lazyplug.saved_graph", str(tmp_path / "graph"), "--repeat", "3", "--text"]
    env = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    checksum = zlib.crc32(result.cpu().contiguous().numpy().tobytes())
    lines = done.stdout.splitlines()
    assert lines[0].startswith("graph(")
    assert f"result 0: float32[3, 2] strides (1, 3), checksum {checksum:08x}" in lines
    assert re.fullmatch(r"median of 3 runs: [\d.]+ us", lines[-1])


def test_lists_of_numbers(tmp_path):
    tensors = list(torch._foreach_mul([lazy(1.0), lazy(2.0)], [3.0, 4]))
    tensors += torch._foreach_add([lazy(1, dtype=torch.int64), lazy(2, dtype=torch.int64)], [3, 4])
    debug.save_graph(tmp_path / "graph", tensors)
    assert [t.tolist() for t in debug.load_graph(tmp_path / "graph").run()] == [[3], [8], [4], [6]]


# What is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tensors, error, message",
    [
        ([torch.ones(2)], RuntimeError, "expected a lazy tensor, got one on cpu"),
        (torch.ones(2), TypeError, "expected a sequence of tensors"),
        ([], ValueError, "at least one tensor"),
        ([1], TypeError, None),
    ],
)
def test_what_is_no_lazy_tensor_is_refused(tensors, error, message, tmp_path):
    with pytest.raises(error, match=message):
        debug.save_graph(tmp_path / "graph", tensors)
    assert not (tmp_path / "graph").exists()


@pytest.mark.parametrize(
    "write", [lambda p: p.write_text("no graph"), lambda p: torch.save({"x": 1}, p), lambda p: p.touch()]
)
def test_other_files_are_refused(write, tmp_path):
    write(tmp_path / "file")
    with pytest.raises(ValueError, match="is not a saved graph"):
        debug.load_graph(tmp_path / "file")


def test_files_that_are_not_there_are_said_to_be(tmp_path):
    with pytest.raises(FileNotFoundError):
        debug.load_graph(tmp_path / "file")


def test_files_of_another_pytorch_warn(tmp_path):
    debug.save_graph(tmp_path / "graph", [lazy(1.0) + 1])
    content = torch.load(tmp_path / "graph")
    torch.save({**content, "torch": "1.0"}, tmp_path / "graph")
    with pytest.warns(UserWarning, match="saved by PyTorch 1.0, this is 2"):
        graph = debug.load_graph(tmp_path / "graph")
    assert graph.torch_version == "1.0" and graph.run()[0].tolist() == [2]
