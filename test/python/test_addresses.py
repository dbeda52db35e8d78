"""Addresses and storages of lazy tensors, and what a module's and a storage's methods make of them."""

import copy
import threading

import pytest
import torch
from helpers import work

pytestmark = pytest.mark.lazy_only


def test_addresses_are_real_and_shared_by_views():
    x = torch.ones(4, device="lazy") + 1
    view = x[1:]
    assert view.data_ptr() == x.data_ptr() + 4 != 4
    assert x.untyped_storage().data_ptr() == view.untyped_storage().data_ptr() == x.data_ptr()


@pytest.mark.usefixtures("blocking")
def test_what_is_written_at_once_is_written_in_place():
    x = torch.ones(4, device="lazy") + 1
    address = x.data_ptr()
    x[1:].mul_(3)
    x.add_(1)
    assert x.data_ptr() == address
    assert x.tolist() == [3, 7, 7, 7]


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
