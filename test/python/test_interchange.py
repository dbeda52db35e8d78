"""Sharing memory and data with other libraries: DLPack, NumPy, storages, packed sequences."""

import copy
import gc
import pickle

import numpy as np
import pytest
import torch
from helpers import DEVICE, assert_same, work
from torch.utils.dlpack import DLDeviceType, from_dlpack, to_dlpack

import torch_lazyplug as lp
from torch_lazyplug import config

pytestmark = pytest.mark.lazy_only

CPU = (DLDeviceType.kDLCPU, 0)


def numbers():
    return torch.arange(6.0, device=DEVICE).reshape(2, 3) + 1


# DLPack --------------------------------------------------------------------------------------------------------------


def test_the_dlpack_device():
    assert numbers().__dlpack_device__() == (DLDeviceType.kDLExtDev, 0)
    assert torch.ones(2).__dlpack_device__() == CPU


@pytest.mark.parametrize("load", [torch.from_dlpack, lambda x: from_dlpack(to_dlpack(x))])
def test_round_trip_without_a_copy(load):
    x = numbers()
    y = load(x)
    assert y.device == x.device and y.data_ptr() == x.data_ptr()
    assert_same(y.cpu(), x.cpu())
    y.add_(1)
    assert_same(x.cpu(), torch.arange(6.0).reshape(2, 3) + 2)
    assert_same((y * 2).cpu(), x.cpu() * 2)


def test_views_keep_their_geometry():
    x = numbers()[:, 1:].t()
    y = torch.from_dlpack(x)
    assert y.stride() == x.stride() and y.data_ptr() == x.data_ptr()
    assert_same(y.cpu(), x.cpu())


def test_to_the_cpu_without_a_copy():
    x = numbers()
    y = from_dlpack(x.__dlpack__(dl_device=CPU))
    assert y.is_cpu and y.data_ptr() == x.data_ptr()
    y[0, 0] = 100
    assert x[0, 0].item() == 100


def test_to_numpy_without_a_copy():
    x = numbers()
    array = np.from_dlpack(x, device="cpu")
    assert array.__array_interface__["data"][0] == x.data_ptr()
    assert array.tolist() == x.tolist()
    with pytest.raises((RuntimeError, BufferError)):
        np.from_dlpack(x)


def test_to_the_cpu_by_torch():
    x = numbers()
    y = torch.from_dlpack(x, device="cpu")
    assert y.is_cpu
    assert_same(y, x.cpu())


def test_what_was_exported_survives_the_tensor():
    x = numbers()
    array = np.from_dlpack(x, device="cpu")
    alias = torch.from_dlpack(x)
    del x
    gc.collect()
    torch.lazy.empty_cache()
    torch.ones(1000, device=DEVICE).sum().item()
    assert array.tolist() == alias.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_what_was_exported_stays_when_the_tensor_is_written():
    x = numbers()
    array = np.from_dlpack(x, device="cpu")
    x.mul_(10)
    torch.lazy.synchronize()
    assert array.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert x.tolist() == [[10, 20, 30], [40, 50, 60]]
    x.t_().add_(1)
    assert array.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_recorded_reads_come_before_an_op_writes_an_alias():
    x = numbers()
    alias = torch.from_dlpack(x)
    before = x + 0
    alias.mul_(10)
    assert before.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert x.tolist() == alias.tolist() == [[10, 20, 30], [40, 50, 60]]


def test_recorded_reads_come_before_writes_through_an_alias():
    x = numbers()
    before = x + 0
    np.from_dlpack(x, device="cpu")[:] = 0
    assert before.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert x.tolist() == [[0, 0, 0], [0, 0, 0]]


def test_copies_on_request():
    x = numbers()
    y = torch.from_dlpack(x, copy=True)
    y.zero_()
    assert x[0, 0].item() == 1
    capsule = x.__dlpack__(dl_device=CPU, copy=True)
    from_dlpack(capsule).zero_()
    assert x[0, 0].item() == 1


def test_from_numpy_and_the_cpu():
    for source in (np.arange(3.0), torch.arange(3.0)):
        y = torch.from_dlpack(source, device=DEVICE)
        assert y.device.type == "lazy"
        assert y.tolist() == [0, 1, 2]


def test_what_cannot_be_exported():
    with pytest.raises(BufferError, match="require gradient"):
        torch.ones(2, device=DEVICE, requires_grad=True).__dlpack__()
    with pytest.raises(BufferError, match="conjugate bit"):
        torch.ones(2, device=DEVICE, dtype=torch.complex64).conj().__dlpack__()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bool, torch.bfloat16, torch.complex64])
def test_dtypes(dtype):
    x = torch.ones(3, device=DEVICE, dtype=dtype)
    y = torch.from_dlpack(x)
    assert y.dtype is dtype
    assert_same(y.cpu(), x.cpu())


# NumPy ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("convert", [lambda x: x.numpy(), np.asarray, np.array, np.sin])
def test_numpy_needs_a_copy_to_the_cpu(convert):
    with pytest.raises(TypeError, match=r"can't convert lazy:0 device type tensor to numpy. Use Tensor.cpu\(\)"):
        convert(numbers())


def test_numpy_by_force():
    assert numbers().numpy(force=True).tolist() == numbers().cpu().numpy().tolist()


def test_from_numpy():
    array = np.arange(4, dtype=np.int32)
    for convert in (torch.tensor, torch.as_tensor, torch.asarray):
        x = convert(array, device=DEVICE)
        array[0] += 1  # a copy, as on any accelerator
        assert x.dtype is torch.int32 and x[1:].tolist() == [1, 2, 3] and x[0].item() == array[0] - 1


# Storages ------------------------------------------------------------------------------------------------------------


def test_untyped_storages():
    x = numbers()
    storage = x.untyped_storage()
    assert storage.device == x.device and storage.is_lazy and not storage.is_cuda
    assert storage.nbytes() == storage.size() == len(storage) == 24
    assert storage.data_ptr() == x.data_ptr()
    assert storage.tolist() == x.cpu().untyped_storage().tolist()
    assert storage.cpu().device.type == "cpu" and storage.cpu().tolist() == storage.tolist()
    assert storage.clone().device == x.device and storage.clone().data_ptr() != storage.data_ptr()


def test_storages_are_written():
    x = numbers()
    storage = x.untyped_storage()
    storage.copy_(torch.ones(2, 3).untyped_storage())
    assert_same(x.cpu(), torch.ones(2, 3))
    storage.fill_(0)
    assert_same(x.cpu(), torch.zeros(2, 3))
    target = torch.empty(6).untyped_storage()
    target.copy_(numbers().untyped_storage())
    assert target.tolist() == numbers().cpu().untyped_storage().tolist()


def test_storages_are_resized():
    x = numbers()
    storage = x.untyped_storage()
    storage.resize_(64)
    assert storage.nbytes() == 64
    assert_same(x.cpu(), numbers().cpu())
    storage.resize_(0)
    assert storage.nbytes() == 0
    storage.resize_(24)
    storage.copy_(torch.ones(6).untyped_storage())
    assert_same(x.cpu(), torch.ones(2, 3))


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_typed_storages():
    x = numbers()
    storage = x.storage()
    assert storage.dtype is torch.float32 and storage.device == x.device
    assert storage.tolist() == [1, 2, 3, 4, 5, 6] and storage[1] == 2 and len(storage) == 6
    storage[1] = 9
    assert x[0, 1].item() == 9
    assert storage.fill_(3).tolist() == [3] * 6 and x.tolist() == [[3] * 3] * 2
    assert storage.cpu().device.type == "cpu"
    assert storage.double().dtype is torch.float64


def test_storages_move_between_devices():
    cpu = torch.arange(3.0).untyped_storage()
    for moved in (cpu.lazy(), cpu.to(device=DEVICE)):
        assert moved.device.type == "lazy" and moved.tolist() == cpu.tolist()
    assert torch.UntypedStorage(16, device=DEVICE).nbytes() == 16


def test_storages_are_copied_and_pickled():
    storage = numbers().untyped_storage()
    for duplicate in (copy.deepcopy(storage), copy.copy(storage)):
        assert duplicate.device == storage.device
        assert duplicate.tolist() == storage.tolist()
    x = pickle.loads(pickle.dumps(numbers()))
    assert x.device.type == "lazy" and x.tolist() == numbers().tolist()


# Packed sequences and data -------------------------------------------------------------------------------------------


def test_packed_sequences():
    padded = torch.randn(4, 3, 5)
    lengths = torch.tensor([4, 2, 1])
    with work() as done:
        packed = torch.nn.utils.rnn.pack_padded_sequence(padded.to(DEVICE), lengths)
        actual, actual_lengths = torch.nn.utils.rnn.pad_packed_sequence(packed)
    assert done.fallbacks == 0
    assert packed.data.device.type == "lazy" and packed.batch_sizes.is_cpu and actual_lengths.is_cpu
    expected, expected_lengths = torch.nn.utils.rnn.pad_packed_sequence(
        torch.nn.utils.rnn.pack_padded_sequence(padded, lengths)
    )
    assert_same(actual.cpu(), expected)
    assert_same(actual_lengths, expected_lengths)
    assert packed.is_lazy
    assert packed.cpu().data.is_cpu
    assert torch.nn.utils.rnn.pack_padded_sequence(padded, lengths).lazy().data.device.type == "lazy"


def train_on_packed(device):
    torch.manual_seed(0)
    lstm = torch.nn.LSTM(5, 4)
    padded = torch.randn(4, 3, 5)
    lstm.to(device)
    x = padded.to(device).requires_grad_()
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, [2, 4, 1], enforce_sorted=False)
    output, lengths = torch.nn.utils.rnn.pad_packed_sequence(lstm(packed)[0])
    output.sum().backward()
    return output.detach().cpu(), lengths, x.grad.cpu(), [p.grad.cpu() for p in lstm.parameters()]


def test_packed_sequences_train():
    assert_same(train_on_packed(DEVICE), train_on_packed("cpu"), rtol=1.3e-6, atol=1e-7)


def test_data_sets_and_samplers():
    data = torch.utils.data.TensorDataset(torch.arange(10, device=DEVICE), torch.ones(10, 2, device=DEVICE))
    first, second = torch.utils.data.random_split(data, [7, 3])
    assert len(first) == 7 and len(second) == 3
    loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
    seen = [x for batch, ones in loader for x in batch.tolist() if ones.device.type == "lazy"]
    assert sorted(seen) == list(range(10))


@pytest.mark.parametrize("mode", ["always", "never"])
@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.add_(1),
        lambda x: x[0].zero_(),
        lambda x: x.copy_(torch.ones(2, 3)),
        lambda x: torch.add(x, 1, out=x),
        lambda x: x.add_(x),
        lambda x: x.index_add_(0, torch.tensor([0, 0], device=DEVICE), torch.ones(2, 3, device=DEVICE)),
        lambda x: torch.masked_select(x * 2, x > 0, out=x.view(-1)),
    ],
)
def test_what_is_exported_is_kept_by_who_has_it(write, mode):
    """Wherever the write runs."""
    with config.changed({"run_at_once": mode}):
        x, expected = numbers(), numbers().cpu()
        x.sum().item()
        alias, array = from_dlpack(x), np.from_dlpack(x, device="cpu")
        write(x)
        assert x.sum().item() != expected.sum()
        assert_same(alias.cpu(), expected)
        assert (array == expected.numpy()).all()


@pytest.mark.parametrize("mode", ["always", "never"])
@pytest.mark.parametrize(
    "write",
    [
        lambda x: torch.ones(2, 3, device=DEVICE).add_(x),
        lambda x: torch.ones(2, 3, device=DEVICE).copy_(x),
        lambda x: torch.ones(2, 3, device=DEVICE).lerp_(x, x),
        lambda x: torch.ones(2, 3, device=DEVICE).put_(torch.arange(6, device=DEVICE).view(2, 3), x),
        lambda x: torch.add(x, 1, out=torch.ones(2, 3, device=DEVICE)),
        lambda x: from_dlpack(torch.ones(2, 3, device=DEVICE)).add_(x),
    ],
)
def test_what_is_exported_is_shared_while_others_are_written(write, mode):
    with config.changed({"run_at_once": mode}):
        x = numbers()
        x.sum().item()
        array = np.from_dlpack(x, device="cpu")
        assert write(x).sum().item() >= 21
        array[0, 0] = 100
        assert x[0, 0].item() == 100


def test_what_another_library_shares_is_there():
    shared = from_dlpack(numbers())
    lp.sync_multi([shared, numbers()], [])
    assert_same(lp.to_cpu([shared])[0], numbers().cpu())
    with pytest.raises(RuntimeError, match="expected a lazy tensor"):
        lp.sync_multi([torch.ones(2)], [])


def test_exports_share():
    x = numbers()
    first, second = from_dlpack(x), from_dlpack(x)
    first.add_(1)
    for tensor in (x, first, second):
        assert_same(tensor.cpu(), numbers().cpu() + 1)


def test_bytes_are_swapped_after_what_reads_them():
    x = torch.ones(3, device=DEVICE) + 1
    x.sum().item()
    doubled, copied = x * 2, x.clone()
    x.untyped_storage().byteswap(torch.float32)
    assert doubled.tolist() == [4, 4, 4] and copied.tolist() == [2, 2, 2]
    x.untyped_storage().byteswap(torch.float32)
    assert x.tolist() == [2, 2, 2]
