"""What `torch.lazy` and `torch.accelerator` share with `torch.cuda`: names, threads, several devices."""

import inspect
import threading

import pytest
import torch
from helpers import run_fresh

pytestmark = pytest.mark.lazy_only


def test_public_functions_have_docstrings_and_type_hints():
    for name in torch.lazy.__all__:
        function = getattr(torch.lazy, name)
        if not inspect.isfunction(function) or name.startswith("_"):
            continue
        assert function.__doc__, name
        hints = inspect.get_annotations(function)
        assert set(hints) == {*inspect.signature(function).parameters, "return"}, name


def test_submodules_that_libraries_import():
    import importlib

    for name in ("torch.lazy.random", "torch.lazy.streams"):
        assert importlib.import_module(name) is getattr(torch.lazy, name.rsplit(".", 1)[1])


def test_peers():
    run_fresh(
        """
        assert torch.lazy.can_device_access_peer(0, 1) and torch.lazy.can_device_access_peer("lazy:2", "lazy:1")
        assert not torch.lazy.can_device_access_peer(1, 1)
        torch.lazy.set_device(2)
        assert torch.lazy.can_device_access_peer(None, 0)
        try:
            torch.lazy.can_device_access_peer(0, 3)
            raise AssertionError("there is no device 3")
        except RuntimeError as error:
            assert "invalid device ordinal 3" in str(error), error
        """,
        devices=3,
    )


def test_nothing_to_collect():
    assert torch.lazy.ipc_collect() is None


def test_current_device_and_stream_belong_to_the_thread():
    run_fresh(
        """
        import threading
        stream = torch.lazy.Stream("lazy:1")
        torch.lazy.set_stream(stream)
        assert torch.lazy.current_device() == 1
        seen = []

        def look():
            seen.append((torch.lazy.current_device(), torch.lazy.current_stream(1) == torch.lazy.default_stream(1)))
            torch.lazy.set_device(2)
            seen.append(torch.ones(1, device="lazy").device.index)

        thread = threading.Thread(target=look)
        thread.start(); thread.join()
        assert seen == [(0, True), 2], seen
        assert torch.lazy.current_device() == 1 and torch.lazy.current_stream() == stream
        """,
        devices=3,
    )


def test_three_devices():
    run_fresh(
        """
        assert torch.lazy.device_count() == torch.accelerator.device_count() == 3
        tensors = [torch.full((2,), float(i), device=f"lazy:{i}") for i in range(3)]
        assert [t.get_device() for t in tensors] == [0, 1, 2]
        assert [t.to("lazy:2").add(1).tolist() for t in tensors] == [[1, 1], [2, 2], [3, 3]]
        assert tensors[0].to("lazy:1", copy=True).device == torch.device("lazy", 1)
        try:
            tensors[0] + tensors[1]
            raise AssertionError("devices were mixed")
        except RuntimeError as error:
            assert "lazy:0" in str(error) and "lazy:1" in str(error), error
        with torch.lazy.device("lazy:1"):
            assert torch.ones(1, device="lazy").device.index == 1
            with torch.lazy.device_of(tensors[2]):
                assert torch.lazy.current_device() == 2
            with torch.lazy.device_of(torch.ones(1)), torch.lazy.device(None), torch.lazy.device(-1):
                assert torch.lazy.current_device() == 1
        assert torch.lazy.current_device() == 0
        torch.lazy.set_device(-1)
        assert torch.lazy.current_device() == 0
        assert repr(tensors[1]) == "tensor([1., 1.], device='lazy:1')", repr(tensors[1])
        x = torch.ones(2, device="lazy:1", requires_grad=True)
        (x.to("lazy:2") * tensors[2]).sum().backward()
        assert x.grad.device.index == 1 and x.grad.tolist() == [2, 2]
        """,
        devices=3,
    )


def test_the_accelerator_module():
    run_fresh(
        """
        acc = torch.accelerator
        assert acc.is_available() and acc.current_accelerator() == torch.device("lazy")
        assert acc.current_accelerator(check_available=True).type == "lazy"
        acc.set_device_index(1)
        assert acc.current_device_index() == torch.lazy.current_device() == 1
        with acc.device_index(2):
            assert torch.lazy.current_device() == 2
        with acc.device_index(None):
            assert acc.current_device_index() == 1
        stream = torch.Stream(device="lazy:2")
        acc.set_stream(stream)
        assert acc.current_stream() == acc.current_stream("lazy:2") == stream and acc.current_device_index() == 2
        assert acc.current_stream("lazy:0") == torch.lazy.default_stream(0)
        acc.synchronize(); acc.synchronize("lazy:0"); acc.synchronize(1)
        for call in (acc.set_device_index, acc.synchronize, acc.current_stream):
            try:
                call(7)
                raise AssertionError(call)
            except RuntimeError as error:
                assert "ordinal 7" in str(error), error
        assert torch.float32 in acc.get_device_capability("lazy:1")["supported_dtypes"]
        """,
        devices=3,
    )


def test_forked_generators():
    state = torch.lazy.get_rng_state()
    with torch.random.fork_rng(device_type="lazy"):
        torch.lazy.manual_seed(1)
        torch.rand(3, device="lazy")
    assert torch.equal(torch.lazy.get_rng_state(), state)
    with torch.random.fork_rng(devices=[0], device_type="lazy", enabled=False):
        torch.lazy.manual_seed(12345)
    assert torch.lazy.initial_seed() == 12345


def test_generators_by_device():
    generator = torch.Generator(device="lazy")
    assert torch.lazy.default_generators[0].device == generator.device == torch.device("lazy:0")
    generator.manual_seed(2**63 - 1)
    assert generator.initial_seed() == 2**63 - 1
    assert isinstance(generator.seed(), int)
    copy = generator.clone_state()
    draws = [torch.randn(4, device="lazy", generator=g).tolist() for g in (generator, copy)]
    assert draws[0] == draws[1]
    state = generator.get_state()
    first = torch.randint(100, (5,), device="lazy", generator=generator)
    generator.set_state(state)
    assert torch.equal(torch.randint(100, (5,), device="lazy", generator=generator).cpu(), first.cpu())


def test_streams_of_many_threads():
    errors = []

    def use(index):
        try:
            stream = torch.lazy.Stream()
            for _ in range(20):
                with torch.lazy.stream(stream):
                    assert torch.lazy.current_stream() == stream
                    x = torch.full((4,), float(index), device="lazy")
                assert (x + 1).sum().item() == 4 * (index + 1)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=use, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_types_are_named():
    x = torch.ones(2, device="lazy")
    assert (x.type(), x.half().type()) == ("torch.lazy.FloatTensor", "torch.lazy.HalfTensor")
    assert torch.ones(2).type("torch.lazy.FloatTensor").device == x.device
    assert x.type(torch.int64).dtype == torch.int64
