"""Streams, events, profiling and timing."""

import torch

from parity import probe

STREAM, EVENT, TIME = "Streams", "Events", "Profiling and timing"


@probe(STREAM, "torch.cuda.Stream()", openreg=False)
def stream(d, m):
    assert m.Stream() != m.Stream()
    assert m.Stream(device=d).device.type == d


@probe(STREAM, "torch.cuda.Stream(priority=-1)", openreg=False)
def priority(d, m):
    m.Stream(priority=-1).synchronize()


@probe(STREAM, "torch.Stream('cuda')")
def generic_stream(d, m):
    assert torch.Stream(d).device == torch.device(d, 0)
    assert "torch.Stream" in repr(torch.Stream(d)) and d in repr(torch.Stream(d))


@probe(STREAM, "with torch.cuda.stream(s):", openreg=False)
def stream_context(d, m):
    s = m.Stream()
    with m.stream(s):
        assert m.current_stream() == s
        x = torch.ones(4, device=d) + 1
    assert m.current_stream() != s
    assert x.sum().item() == 8


@probe(STREAM, "with stream:")
def stream_itself(d, m):
    with torch.Stream(d) as s:
        assert torch.accelerator.current_stream() == s


@probe(STREAM, "torch.cuda.current_stream(), torch.cuda.default_stream()", openreg=False)
def current_stream(d, m):
    assert m.current_stream() == m.default_stream() == m.current_stream(0)


@probe(STREAM, "torch.cuda.set_stream(s)", openreg=False)
def set_stream(d, m):
    default = m.current_stream()
    s = m.Stream()
    m.set_stream(s)
    assert m.current_stream() == s
    m.set_stream(default)


@probe(STREAM, "torch.accelerator.current_stream(), torch.accelerator.set_stream(s)")
def accelerator_streams(d, m):
    default = torch.accelerator.current_stream()
    s = torch.Stream(d)
    torch.accelerator.set_stream(s)
    assert torch.accelerator.current_stream() == s
    torch.accelerator.set_stream(default)


@probe(STREAM, "s.wait_stream(other)")
def wait_stream(d, m):
    s = torch.Stream(d)
    x = torch.ones(4, device=d)
    s.wait_stream(torch.accelerator.current_stream())
    with s:
        y = x * 3
    torch.accelerator.current_stream().wait_stream(s)
    assert y.sum().item() == 12


@probe(STREAM, "s.synchronize(), s.query()")
def synchronize(d, m):
    s = torch.Stream(d)
    s.synchronize()
    assert s.query()


@probe(STREAM, "s.stream_id, s.device_index, s == other, hash(s)")
def identity(d, m):
    s = torch.Stream(d)
    same = torch.Stream(stream_id=s.stream_id, device_index=s.device_index, device_type=s.device_type)
    assert s == same and hash(s) == hash(same) and s != torch.Stream(d)


@probe(STREAM, "torch.cuda.StreamContext(s)", openreg=False)
def context_class(d, m):
    with m.StreamContext(m.Stream()), m.StreamContext(None):
        pass


# Events --------------------------------------------------------------------------------------------------------------


@probe(EVENT, "torch.cuda.Event(enable_timing=True)", openreg=False)
def event(d, m):
    assert m.Event(enable_timing=True).query()


@probe(EVENT, "torch.Event('cuda')")
def generic_event(d, m):
    assert torch.Event(d).device.type == d


@probe(EVENT, "event.record(), event.synchronize(), event.query()")
def record(d, m):
    x = torch.ones(4, device=d) + 1
    e = torch.Event(d)
    e.record()
    e.synchronize()
    assert e.query() and x.sum().item() == 8


@probe(EVENT, "stream.record_event(), stream.wait_event(event)")
def wait(d, m):
    a, b = torch.Stream(d), torch.Stream(d)
    b.wait_event(a.record_event())
    b.synchronize()


@probe(EVENT, "event.wait(stream)")
def wait_method(d, m):
    e = torch.Event(d)
    e.record()
    e.wait(torch.Stream(d))


@probe(EVENT, "start.elapsed_time(end)")
def elapsed_time(d, m):
    start, end = torch.Event(d, enable_timing=True), torch.Event(d, enable_timing=True)
    x = torch.ones(64, 64, device=d)
    start.record()
    x = x @ x
    end.record()
    torch.accelerator.synchronize()
    assert start.elapsed_time(end) > 0


@probe(EVENT, "elapsed_time raises without enable_timing=True")
def elapsed_time_error(d, m):
    start, end = torch.Event(d), torch.Event(d)
    start.record(), end.record()
    try:
        start.elapsed_time(end)
    except ValueError as error:
        assert "enable_timing=True" in str(error)
        return
    raise AssertionError("elapsed_time did not raise")


# Profiling and timing ------------------------------------------------------------------------------------------------


@probe(TIME, "with torch.profiler.profile() as p:")
def profiler(d, m):
    with torch.profiler.profile() as p:
        (torch.ones(4, 4, device=d) @ torch.ones(4, 4, device=d)).cpu()
    assert any(event.key == "aten::mm" for event in p.key_averages())
    p.key_averages().table(sort_by="cpu_time_total")


@probe(TIME, "torch.autograd.profiler.profile(use_device='cuda')")
def device_profiler(d, m):
    with torch.autograd.profiler.profile(use_device=d) as p, torch.profiler.record_function("mine"):
        (torch.ones(4, 4, device=d) @ torch.ones(4, 4, device=d)).cpu()
    assert {"mine", "aten::mm"} <= {event.name for event in p.function_events}
    assert any(event.device_time_total > 0 for event in p.function_events)


@probe(TIME, "torch.profiler.ProfilerActivity.CUDA")
def profiler_activity(d, m):
    assert getattr(torch.profiler.ProfilerActivity, d.upper()) == torch.profiler.ProfilerActivity.PrivateUse1


@probe(TIME, "torch.utils.benchmark.Timer(...).timeit(3)")
def timer(d, m):
    from torch.utils.benchmark import Timer

    x = torch.ones(4, device=d)
    assert Timer("x.add_(1)", globals={"x": x}).timeit(3).median > 0
