"""What PyTorch expects of any device of its PrivateUse1 kind: registration, names, metadata, profiling, threads."""

import io
import json
import types

import pytest
import torch
from helpers import both, run_fresh
from torch import nn

pytestmark = pytest.mark.lazy_only


# Registration --------------------------------------------------------------------------------------------------------


def test_the_name_is_final():
    assert torch._C._get_privateuse1_backend_name() == "lazy"
    torch.utils.rename_privateuse1_backend("lazy")
    with pytest.raises(RuntimeError, match="has already been set"):
        torch.utils.rename_privateuse1_backend("other")
    with pytest.raises(RuntimeError, match="The custom device module of"):
        torch.utils.generate_methods_for_privateuse1_backend()
    with pytest.raises(RuntimeError, match="The runtime module of"):
        torch._register_device_module("lazy", types.ModuleType("fake"))


def test_functions_of_the_module_are_found():
    find = torch.utils.backend_registration._get_custom_mod_func
    assert find("device_count")() == torch.lazy.device_count()
    with pytest.raises(RuntimeError, match="Try to call torch.lazy"):
        find("no_such_function")


def test_enumerators_have_the_name():
    from torch._C._autograd import DeviceType
    from torch._C._profiler import ProfilerActivity

    for enumeration in (DeviceType, ProfilerActivity):
        assert enumeration.PrivateUse1 == enumeration.LAZY
        assert str(enumeration.LAZY) == f"{enumeration.__name__}.LAZY"


def test_generated_methods():
    for owner in (torch.Tensor, torch.UntypedStorage, torch.TypedStorage, nn.utils.rnn.PackedSequence):
        assert hasattr(owner, "lazy") and hasattr(owner, "is_lazy")
    x = torch.empty(2)
    assert not x.is_lazy
    for argument in ((), (0,), (torch.device("lazy"),), ("lazy:0",)):
        assert x.lazy(*argument).is_lazy
    module = nn.Linear(2, 2)
    assert module.lazy() is module and module.weight.is_lazy


def test_every_dtype_is_supported():
    from torch.testing._internal.common_dtype import get_all_dtypes

    supported = torch.accelerator.get_device_capability("lazy:0")["supported_dtypes"]
    assert set(get_all_dtypes(include_complex32=True, include_qint=True)) <= supported


def test_every_device_has_an_autograd_thread():
    run_fresh(
        """
        import os, time
        torch.ones(2, requires_grad=True, device="lazy").sum().backward()
        tasks, names = f"/proc/{os.getpid()}/task", set()
        deadline = time.monotonic() + 60
        # A new thread takes its name when it is first scheduled.
        while not {"pt_autograd_0", "pt_autograd_1"} <= names:
            assert time.monotonic() < deadline, names
            names = {open(f"{tasks}/{task}/comm").read().strip() for task in os.listdir(tasks)}
        """,
        devices=2,
    )


def test_a_device_that_is_not_there():
    for call in (torch.accelerator.set_device_index, torch.lazy.get_device_name):
        with pytest.raises(RuntimeError, match="The device index is out of range"):
            call(99)


# Streams and events --------------------------------------------------------------------------------------------------


def test_events_belong_to_a_device_once_they_are_recorded():
    event = torch.Event(device="lazy")
    assert (event.device.type, event.device.index, event.event_id) == ("lazy", None, 0)
    first, second = (torch.Stream("lazy").record_event() for _ in range(2))
    assert first.device.index == 0
    assert len({0, first.event_id, second.event_id}) == 3


def test_streams_by_device_index():
    stream = torch.Stream(0)
    assert (stream.device.type, stream.device_index) == ("lazy", 0)
    assert "torch.Stream device_type=lazy, device_index=0" in repr(stream)


# Metadata ------------------------------------------------------------------------------------------------------------


def test_metadata_of_other_libraries_is_kept():
    x = torch.ones(2, device="lazy")
    assert torch._utils.get_tensor_metadata(x) == {}
    metadata = {"packed": True, "signed": False}
    torch._utils.set_tensor_metadata(x, metadata)
    assert torch._utils.get_tensor_metadata(x) == metadata
    buffer = io.BytesIO()
    torch.save(x, buffer)
    for location, expected in (("lazy", metadata), ("cpu", {})):
        buffer.seek(0)
        assert torch._utils.get_tensor_metadata(torch.load(buffer, map_location=location)) == expected


# Packed sequences ----------------------------------------------------------------------------------------------------


def pack(x):
    sequence = nn.utils.rnn.pack_padded_sequence(x, [3, 1], enforce_sorted=False)
    assert sequence.batch_sizes.device.type == "cpu"
    padded, lengths = nn.utils.rnn.pad_packed_sequence(sequence, padding_value=-1.0)
    padded.square().sum().backward()
    return sequence.data, padded, lengths.tolist()


def test_packed_sequences():
    both(pack, torch.randn(3, 2, 4, requires_grad=True))


def test_a_recurrent_network_on_a_packed_sequence():
    torch.manual_seed(0)
    lstm = nn.LSTM(4, 5, bidirectional=True)
    weights = [p.detach() for p in lstm.parameters()]

    def run(x, *values):
        model = nn.LSTM(4, 5, bidirectional=True).to(x.device)
        for parameter, value in zip(model.parameters(), values, strict=True):
            parameter.data.copy_(value)
        packed = nn.utils.rnn.pack_sequence([x[:3, 0], x[:2, 1]])
        output, (h, c) = model(packed)
        output.data.sum().backward()
        return output.data, h, c, [p.grad for p in model.parameters()]

    # On the CPU, and only there, PyTorch multiplies all steps by the input weights at once, which rounds differently.
    both(run, torch.randn(3, 2, 4), *weights, rtol=1.3e-6, atol=1e-7)


# Profiling -----------------------------------------------------------------------------------------------------------


def test_the_profiler_times_the_device(tmp_path):
    x = torch.randn(64, 64, device="lazy", requires_grad=True)
    with torch.autograd.profiler.profile(use_device="lazy", record_shapes=True) as profile:
        with torch.profiler.record_function("mine"):
            loss = (x @ x).sum()
        loss.backward()
        loss.item()
    names = {event.name for event in profile.function_events}
    assert {"mine", "aten::mm"} <= names and any("Backward" in name for name in names)
    assert "aten::mm" in profile.key_averages().table(sort_by="cpu_time_total")
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    assert json.loads((tmp_path / "trace.json").read_text())


def test_profiling_what_raises():
    with (
        pytest.raises(ValueError, match="mine"),
        torch.autograd.profiler.profile(use_device="lazy") as profile,
    ):
        torch.ones(2, device="lazy").sum()
        raise ValueError("mine")
    assert profile.function_events


def test_profiler_of_all_activities():
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.LAZY]
    with torch.profiler.profile(activities=activities, profile_memory=True, with_stack=True) as profile:
        (torch.ones(4, 4, device="lazy") @ torch.ones(4, 4, device="lazy")).cpu()
    assert any(event.key == "aten::mm" for event in profile.key_averages())
