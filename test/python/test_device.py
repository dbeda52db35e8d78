"""The device module `torch.lazy`: devices and initialisation."""

import pytest
import torch
from helpers import run_fresh

pytestmark = pytest.mark.lazy_only


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
