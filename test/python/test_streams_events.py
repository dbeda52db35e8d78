"""Streams and events: which are current, what recording, waiting and timing do."""

import pytest
import torch
from helpers import run_fresh, work

pytestmark = pytest.mark.lazy_only


def test_default_stream_is_current():
    assert torch.lazy.current_stream() == torch.lazy.default_stream() == torch.accelerator.current_stream()


def test_stream_context():
    default, mine = torch.lazy.default_stream(), torch.lazy.Stream()
    assert mine != default
    with torch.lazy.stream(mine):
        assert torch.lazy.current_stream() == mine
        assert (torch.ones(2, device="lazy") + 1).sum().item() == 4
    assert torch.lazy.current_stream() == default
    with torch.lazy.stream(None), mine:
        assert torch.lazy.current_stream() == mine
    torch.lazy.set_stream(None)
    assert torch.lazy.current_stream() == default


def test_stream_context_restores_both_devices():
    run_fresh(
        """
        a, b = torch.lazy.Stream("lazy:1"), torch.lazy.Stream("lazy:1")
        torch.lazy.set_stream(a)
        torch.lazy.set_device(0)
        with torch.lazy.stream(b):
            assert torch.lazy.current_device() == 1 and torch.lazy.current_stream() == b
        assert torch.lazy.current_device() == 0
        assert torch.lazy.current_stream() == torch.lazy.default_stream()
        assert torch.lazy.current_stream(1) == a
        """,
        devices=2,
    )


def test_streams_are_distinct_and_come_back():
    stream = torch.lazy.Stream(priority=-1)
    again = torch.Stream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)
    assert again == stream
    with pytest.raises(RuntimeError, match="there is no stream 9999"):
        torch.lazy.set_stream(torch.Stream(stream_id=9999, device_index=0, device_type=stream.device_type))


def test_recording_an_event_cuts_nothing():
    x = torch.ones(2, device="lazy")
    with work() as recording:
        y = x + 1
        event = torch.lazy.current_stream().record_event()
        torch.lazy.current_stream().wait_event(event)
        z = y * 2
    assert recording.flushes == 0
    assert z.tolist() == [4, 4]
    assert event.query()


def test_synchronizing_an_event_runs_what_precedes_it():
    event = torch.lazy.Event()
    assert event.query()
    x = torch.ones(2, device="lazy") + 1
    event.record()
    event.synchronize()
    with work() as done:
        assert event.query()
        assert x.tolist() == [2, 2]
    assert done.flushes == 0


def test_polling_makes_progress():
    y = torch.ones(2, device="lazy") + 1
    event = torch.lazy.Event()
    event.record()
    while not event.query():
        pass
    while not torch.lazy.current_stream().query():
        pass
    assert y.tolist() == [2, 2]


def test_what_comes_after_a_wait_is_reached_after_it():
    slow, waiting = torch.lazy.Stream(), torch.lazy.Stream()
    with torch.lazy.stream(slow):
        x = torch.ones(400, 400, device="lazy")
        for _ in range(30):
            x = x @ x / 400
    waiting.wait_event(slow.record_event())
    event = waiting.record_event()
    while not event.query():
        pass
    assert slow.query() and waiting.query()
    with torch.lazy.stream(slow):
        y = x @ x
    waiting.wait_stream(slow)
    waiting.synchronize()
    assert slow.query()
    assert y[0, 0] == 400


def test_elapsed_time_covers_the_execution():
    torch.lazy.synchronize()
    start, end = torch.lazy.Event(enable_timing=True), torch.lazy.Event(enable_timing=True)
    start.record()
    x = torch.ones(200, 200, device="lazy")
    for _ in range(10):
        x = x @ x / 200
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) > 0


def test_elapsed_time_needs_timing_and_recording():
    event = torch.lazy.Event(enable_timing=False)
    event.record()
    with pytest.raises(ValueError, match="enable_timing=True"):
        event.elapsed_time(event)
    with pytest.raises(ValueError, match="recorded"):
        torch.lazy.Event(enable_timing=True).elapsed_time(torch.lazy.Event(enable_timing=True))


def test_synchronize_runs_everything():
    x = torch.ones(2, device="lazy") + 1
    for synchronize in (torch.lazy.synchronize, torch.accelerator.synchronize, torch.lazy.current_stream().synchronize):
        x = x + 1
        synchronize()
        assert torch.lazy.current_stream().query()
    assert x.tolist() == [5, 5]
