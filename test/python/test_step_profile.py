"""Where the benchmarks say that the time of a step went."""

import threading

import breakdown
import pytest
import torch
from process import Process

import torch_lazyplug

MM, ADD, SUM = (("aten::mm", "", 0.002), ("aten::add.Tensor", "", 0.0005), ("aten::sum.dim_IntList", "", 0.001))


def event(kind, milliseconds, thread, ops=()):
    return {"kind": kind, "duration_ns": milliseconds * 1e6, "thread": thread, "ops": ops}


def test_times_and_counts_of_a_step():
    program, worker = 1, 2
    events = [
        event("sync", 3, program),
        event("wait", 6, program),
        event("run", 4, program, [MM, ADD]),
        event("run", 5, worker, [MM, SUM, SUM]),
        event("wait", 7, worker),
        event("compile", 1, worker),
        event("step", 0, program),
    ]
    times = {"step": 10, "recording": 7, "own runs": 2, "asleep": 1, "workers": 2.5}
    runs = {"product": 2, "pointwise": 0.25, "row": 1, "around kernels": 1.25, "compiling": 0.5}
    counts = {"kernels": 2.5, "runs": 1, "waits": 0.5}
    assert breakdown.of(events, program, seconds=0.02, steps=2) == pytest.approx(times | runs | counts)


@pytest.mark.parametrize(
    ("op", "kind"),
    [
        ("aten::_foreach_add_.List", "optimizer"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu_backward", "attention"),
        ("aten::convolution_backward", "convolution"),
        ("aten::mkldnn_rnn_layer", "recurrent"),
        ("aten::addmm", "product"),
        ("aten::_log_softmax_backward_data", "row"),
        ("aten::embedding_dense_backward", "move"),
        ("aten::zeros_like", "new"),
        ("aten::gelu_backward", "pointwise"),
        ("aten::add_.Tensor", "pointwise"),
        ("aten::linalg_qr", "other"),
        ("somebodys::op", "other"),
    ],
)
def test_kinds_of_kernels(op, kind):
    assert breakdown.kind_of(op) == kind


@pytest.mark.lazy_only
def test_the_events_of_a_step_are_summed():
    from contestant import Lazy

    x = torch.ones(8, 8, device="lazy")
    total, events = Lazy().journal(lambda: (x @ x).relu().sum().item())
    assert total == 512
    assert not torch_lazyplug.config.get("debug")
    figures = breakdown.of(events, threading.get_native_id(), seconds=1, steps=1)
    assert figures["waits"] == 1 and figures["product"] > 0 and figures["row"] > 0


@pytest.mark.lazy_only
def test_a_contestant_tells():
    process = Process("lazy", ["ops"], "1")
    try:
        case = process.ask("hello")["cases"][0]["name"]
        process.ask("build", case=case)
        figures = process.ask("profile", steps=3)
        assert 0 < figures["recording"] < figures["step"]
    finally:
        process.stop()
