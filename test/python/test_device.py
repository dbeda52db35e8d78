"""The device module `torch.lazy`: devices, streams, events, generators, initialisation, fork."""

import copy
import os
import pickle
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
import torch
from helpers import run_fresh, work

import torch_lazyplug

pytestmark = pytest.mark.lazy_only

PACKAGE_ROOT = Path(torch_lazyplug.__file__).resolve().parents[1]
BAD_FORK = (
    "Cannot re-initialize LAZY in forked subprocess. To use LAZY with multiprocessing, "
    "you must use the 'spawn' start method"
)


# Devices -------------------------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_lazy_is_the_accelerator():
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("lazy")
    assert torch.accelerator.device_count() == torch.lazy.device_count()
    assert torch.accelerator.current_device_index() == torch.lazy.current_device()


def test_everything_public_exists():
    for name in torch.lazy.__all__:
        assert hasattr(torch.lazy, name), name
    with pytest.raises(AttributeError, match="torch.lazy"):
        torch.lazy.no_such_thing  # noqa: B018


def test_tensor_without_index_is_on_the_current_device():
    assert torch.empty(1, device="lazy").device == torch.device("lazy", torch.lazy.current_device())


@pytest.mark.parametrize("make", [lambda d: torch.empty(2, device=d), lambda d: torch.ones(2).to(d)])
def test_unknown_index_raises_and_nothing_breaks(make):
    count = torch.lazy.device_count()
    with pytest.raises(RuntimeError, match=rf"invalid device ordinal 99: this process has {count} lazy device"):
        make("lazy:99")
    assert torch.ones(2, device="lazy").sum().item() == 2


@pytest.mark.parametrize("device", ["lazyy", "lazy:x", "lazy:-2"])
def test_bad_device_string_raises(device):
    with pytest.raises(RuntimeError):
        torch.empty(2, device=device)


def test_device_calls_refuse_unknown_devices():
    for call in (torch.lazy.set_device, torch.lazy.synchronize, torch.lazy.get_device_name, torch.lazy.current_stream):
        with pytest.raises(RuntimeError, match="invalid device ordinal 99"):
            call(99)
    with pytest.raises(RuntimeError, match="invalid device ordinal 99"), torch.lazy.device(99):
        pass
    with pytest.raises(ValueError, match="Expected a lazy device, but got: cuda:0"):
        torch.lazy.set_device("cuda:0")
    with pytest.raises(ValueError, match="specified index"):
        torch.lazy.set_device("lazy")


def test_negative_device_changes_nothing():
    before = torch.lazy.current_device()
    torch.lazy.set_device(-1)
    with torch.lazy.device(-1):
        assert torch.lazy.current_device() == before
    with torch.lazy.device(None):
        assert torch.lazy.current_device() == before


def test_current_device_with_several_devices():
    run_fresh(
        """
        import threading
        assert torch.lazy.device_count() == 3
        torch.lazy.set_device("lazy:1")
        assert torch.empty(1, device="lazy").device == torch.device("lazy:1")
        with torch.lazy.device(2):
            assert torch.lazy.current_device() == torch.accelerator.current_device_index() == 2
            with torch.lazy.device_of(torch.empty(1, device="lazy:0")):
                assert torch.lazy.current_device() == 0
            with torch.lazy.device_of(torch.empty(1)):
                assert torch.lazy.current_device() == 2
        assert torch.lazy.current_device() == 1

        seen = []
        thread = threading.Thread(target=lambda: seen.append(torch.lazy.current_device()))
        thread.start(); thread.join()
        assert seen == [0], seen

        try:
            torch.lazy.set_device(3)
            raise AssertionError("device 3 was accepted")
        except RuntimeError:
            assert torch.lazy.current_device() == 1
        """,
        devices=3,
    )


def test_tensors_move_between_devices():
    run_fresh(
        """
        x = torch.arange(4.0, device="lazy:0") * 2
        y = x.to("lazy:1")
        assert y.device == torch.device("lazy:1") and y.cpu().tolist() == [0, 2, 4, 6]
        y.add_(1)
        assert x.cpu().tolist() == [0, 2, 4, 6]
        try:
            x + y
            raise AssertionError("operands on two devices were accepted")
        except RuntimeError as error:
            assert "same device" in str(error), error
        """,
        devices=2,
    )


def test_invalid_device_count_is_named():
    run_fresh(
        """
        assert not torch.lazy.is_available()
        try:
            torch.lazy.device_count()
            raise AssertionError("0 devices were accepted")
        except ValueError as error:
            assert "LAZYPLUG_DEVICE_COUNT" in str(error), error
        """,
        devices=0,
    )


def test_properties():
    properties = torch.lazy.get_device_properties()
    assert properties.name == torch.lazy.get_device_name()
    assert (properties.major, properties.minor) == torch.lazy.get_device_capability()
    assert properties.total_memory > 0
    assert properties.multi_processor_count > 0
    assert torch.lazy.is_bf16_supported()
    assert torch.bfloat16 in torch.lazy.get_amp_supported_dtype()
    assert torch.float32 in torch.accelerator.get_device_capability()["supported_dtypes"]


# Streams and events --------------------------------------------------------------------------------------------------


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


# Generators ----------------------------------------------------------------------------------------------------------


@pytest.mark.smoke
@pytest.mark.parametrize("manual_seed", [torch.manual_seed, torch.lazy.manual_seed, torch.lazy.manual_seed_all])
def test_seeds_make_random_numbers_repeatable(manual_seed):
    manual_seed(5)
    first = [torch.rand(4, device="lazy").tolist() for _ in range(2)]
    assert torch.lazy.initial_seed() == 5
    manual_seed(5)
    assert [torch.rand(4, device="lazy").tolist() for _ in range(2)] == first
    assert first[0] != first[1]
    manual_seed(6)
    assert torch.rand(4, device="lazy").tolist() != first[0]


def test_state_round_trips_without_running_anything():
    with work() as done:
        y = torch.ones(2, device="lazy") + 1
        state = torch.lazy.get_rng_state()
        first = torch.rand(4, device="lazy")
        torch.lazy.set_rng_state(state)
        second = torch.rand(4, device="lazy")
    assert done.flushes == 0
    assert torch.equal(first.cpu(), second.cpu())
    assert y.tolist() == [2, 2]
    assert state.device.type == "cpu"
    assert state.dtype == torch.uint8


def test_own_generator():
    generator = torch.Generator("lazy").manual_seed(3)
    assert generator.device == torch.device("lazy:0")
    first = torch.rand(4, device="lazy", generator=generator)
    generator.manual_seed(3)
    before = torch.lazy.get_rng_state()
    assert torch.equal(torch.rand(4, device="lazy", generator=generator).cpu(), first.cpu())
    assert torch.equal(torch.lazy.get_rng_state(), before)
    with pytest.raises(RuntimeError, match="device type for generator"):
        torch.rand(4, device="lazy", generator=torch.Generator())


def test_generator_can_be_pickled():
    generator = torch.Generator("lazy").manual_seed(3)
    torch.rand(4, device="lazy", generator=generator)
    restored = pickle.loads(pickle.dumps(generator))
    assert restored.device == generator.device
    assert torch.equal(restored.get_state(), generator.get_state())
    with pytest.raises(RuntimeError, match="16 bytes, but got 3"):
        restored.set_state(torch.zeros(3, dtype=torch.uint8))


def test_generators_that_share_their_state():
    generator = torch.Generator("lazy").manual_seed(3)
    sharing = generator.graphsafe_get_state()
    first, second = (torch.rand(4, device="lazy", generator=generator).tolist() for _ in range(2))
    assert sharing.get_offset() == generator.get_offset() == 2
    sharing.manual_seed(3)
    assert torch.rand(4, device="lazy", generator=generator).tolist() == first
    other = torch.Generator("lazy")
    other.graphsafe_set_state(generator)
    assert torch.rand(4, device="lazy", generator=other).tolist() == second
    with pytest.raises(RuntimeError, match="generator of a lazy device, but got one for cpu"):
        generator.graphsafe_set_state(torch.Generator())


def test_generator_of_every_device():
    run_fresh(
        """
        assert [g.device.index for g in torch.lazy.default_generators] == [0, 1]
        torch.lazy.seed_all()
        assert torch.equal(*torch.lazy.get_rng_state_all())
        states = torch.lazy.get_rng_state_all()
        torch.lazy.set_device(1)
        torch.lazy.seed()
        torch.lazy.set_rng_state_all(states)
        assert torch.equal(*torch.lazy.get_rng_state_all())
        with torch.random.fork_rng(devices=[0, 1]):
            torch.manual_seed(1)
        assert torch.equal(torch.lazy.get_rng_state(1), states[1])
        """,
        devices=2,
    )


def test_seed_before_initialization():
    run_fresh(
        """
        torch.manual_seed(7)
        assert not torch.lazy.is_initialized()
        first = torch.rand(4, device="lazy").tolist()
        torch.manual_seed(7)
        assert torch.rand(4, device="lazy").tolist() == first
        """
    )


# Initialisation ------------------------------------------------------------------------------------------------------


def test_using_the_device_initializes_it():
    run_fresh(
        """
        assert not torch.lazy.is_initialized()
        torch.empty(1, device="lazy")
        assert torch.lazy.is_initialized()
        torch.lazy.init()
        """
    )


def test_queued_calls_run_once_in_order():
    run_fresh(
        """
        calls = []
        torch.lazy._lazy_call(lambda: calls.append("first"))
        torch.lazy._lazy_call(lambda: (torch.lazy.init(), calls.append("second")), seed=True)
        torch.lazy._lazy_call(lambda: torch.lazy._lazy_call(lambda: calls.append("nested")))
        assert calls == []
        torch.lazy.init(); torch.lazy.init()
        assert calls == ["first", "second", "nested"], calls
        torch.lazy._lazy_call(lambda: calls.append("now"))
        assert calls[-1] == "now"
        """
    )


def test_failing_queued_call_names_its_origin():
    run_fresh(
        """
        def ask_for_trouble():
            torch.lazy._lazy_call(lambda: 1 / 0)

        calls = []
        ask_for_trouble()
        torch.lazy._lazy_call(lambda: calls.append(1))
        try:
            torch.lazy.init()
            raise AssertionError("the error was lost")
        except torch.lazy.DeferredLazyCallError as error:
            assert "division by zero" in str(error) and "ask_for_trouble" in str(error), error
            assert isinstance(error.__cause__, ZeroDivisionError)
        torch.lazy.init()
        assert torch.lazy.is_initialized() and calls == [1]
        """
    )


def test_threads_initialize_once():
    run_fresh(
        """
        import threading
        calls = []
        torch.lazy._lazy_call(lambda: calls.append(1))
        threads = [threading.Thread(target=torch.lazy.init) for _ in range(8)]
        for t in threads: t.start()
        for t in threads: t.join()
        assert calls == [1]
        """
    )


# Fork ----------------------------------------------------------------------------------------------------------------

IN_CHILD = """
import os, sys

def in_child(function):
    child = os.fork()
    if child == 0:
        try:
            function()
            os._exit(0)
        except BaseException as error:
            print(error, file=sys.stderr)
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0
"""


def test_bad_fork_raises_from_every_entry_point():
    run_fresh(
        IN_CHILD
        + f"BAD_FORK = {BAD_FORK!r}\n"
        + """
x = torch.ones(2, device="lazy")
y = x + 1
stream, event = torch.lazy.Stream(), torch.lazy.Event(enable_timing=True)
event.record()

ENTRIES = [
    torch.lazy.init,
    torch.lazy.current_device,
    torch.lazy.synchronize,
    torch.lazy.current_stream,
    torch.lazy.get_rng_state,
    torch.accelerator.synchronize,
    stream.synchronize,
    stream.query,
    event.record,
    event.query,
    event.synchronize,
    lambda: torch.lazy.set_device(0),
    lambda: torch.lazy.device(0).__enter__(),
    lambda: torch.Stream("lazy"),
    lambda: torch.empty(2, device="lazy"),
    lambda: torch.ones(2).to("lazy"),
    lambda: x + 1,
    lambda: y.cpu(),
    lambda: y.sum().item(),
    lambda: y.data_ptr(),
]

def every_entry_raises():
    assert torch.lazy._is_in_bad_fork() and not torch.lazy.is_initialized()
    torch.manual_seed(1)
    for number, entry in enumerate(ENTRIES):
        try:
            entry()
        except RuntimeError as error:
            assert BAD_FORK in str(error), (number, error)
        else:
            raise AssertionError(f"entry {number} works")

assert in_child(every_entry_raises)
assert y.tolist() == [2, 2]
"""
    )


def test_child_forked_before_initialization_works():
    run_fresh(
        IN_CHILD
        + """
def use():
    assert (torch.ones(2, device="lazy") + 1).tolist() == [2, 2]

assert in_child(use) and not torch.lazy.is_initialized()
use()
"""
    )


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_data_loader_workers(context, tmp_path):
    script = tmp_path / "load.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import torch
            import torch_lazyplug
            from torch.utils.data import DataLoader, TensorDataset

            if __name__ == "__main__":
                total = torch.zeros((), device="lazy")
                data = TensorDataset(torch.arange(8.0))
                for (batch,) in DataLoader(data, batch_size=2, num_workers=2, multiprocessing_context="{context}"):
                    total += batch.to("lazy").sum()
                assert total.item() == 28
            """
        )
    )
    env = {**os.environ, "PYTHONPATH": str(PACKAGE_ROOT)}
    done = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


# Memory addresses ----------------------------------------------------------------------------------------------------


def test_addresses_are_real_and_shared_by_views():
    x = torch.ones(4, device="lazy") + 1
    view = x[1:]
    assert view.data_ptr() == x.data_ptr() + 4 != 4
    assert x.untyped_storage().data_ptr() == view.untyped_storage().data_ptr() == x.data_ptr()


def test_storage_handle_runs_nothing():
    with work() as done:
        y = torch.ones(4, device="lazy") + 1
        assert y.untyped_storage().nbytes() == 16
    assert done.flushes == 0


def test_pending_storage_can_be_read_as_bytes():
    x = torch.arange(4, dtype=torch.uint8, device="lazy") + 1
    assert x.untyped_storage().tolist() == [1, 2, 3, 4]
    assert list((x + 1).untyped_storage()[1:3]) == [3, 4]
    target = torch.zeros(4, dtype=torch.uint8).untyped_storage()
    target.copy_((x + 2).untyped_storage())
    assert target.tolist() == [3, 4, 5, 6]


def test_accessors_stay_what_they_were_for_other_tensors():
    x = torch.arange(3.0)
    assert x.data_ptr() == x.untyped_storage().data_ptr()
    assert torch.from_dlpack(x).data_ptr() == x.data_ptr()
    assert torch.Tensor.data_ptr.__name__ == "data_ptr"
    assert torch.empty(2, device="meta").data_ptr() == 0


def test_accessors_respect_torch_function():
    class Logged(torch.Tensor):
        calls = []

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.calls.append(func)
            return super().__torch_function__(func, types, args, kwargs)

    x = torch.ones(2).as_subclass(Logged)
    Logged.calls.clear()
    assert x.data_ptr() != 0
    assert Logged.calls == [torch.Tensor.data_ptr]


def test_fake_tensors_have_no_memory_to_wait_for():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        assert torch.empty(2, device="lazy").data_ptr() == 0


def test_modules_and_storages_have_lazy_methods():
    module = torch.nn.Linear(2, 2)
    assert copy.deepcopy(module).lazy().weight.is_lazy
    assert torch.ones(2).untyped_storage().lazy().is_lazy
    assert not torch.ones(2).is_lazy


def test_backward_thread_sees_the_device():
    x = torch.ones(2, device="lazy", requires_grad=True)
    seen = []
    x.register_hook(lambda grad: seen.append((grad.device, threading.get_ident())))
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3, 3]
    assert [device for device, _ in seen] == [x.device]
