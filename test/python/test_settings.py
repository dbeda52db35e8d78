"""What has been recorded runs under the settings of its time, however late it runs."""

import pytest
import torch
from helpers import DEVICE, assert_same, run_fresh, work

pytestmark = pytest.mark.lazy_only


@pytest.fixture(autouse=True)
def default_dtype_is_restored():
    before = torch.get_default_dtype()
    yield
    torch.set_default_dtype(before)


def numbers(device):
    return torch.arange(1, 5).to(device)


DEFAULT_DTYPE = {
    "eye": lambda d: torch.eye(3, device=d),
    "linspace": lambda d: torch.linspace(0, 1, 3, device=d),
    "window": lambda d: torch.hann_window(4, device=d),
    "zeros": lambda d: torch.zeros(3, device=d) + 1,
    "sqrt": lambda d: numbers(d).sqrt(),
    "division": lambda d: numbers(d) / 3,
    "product": lambda d: numbers(d) * 1.1,
    "clamp": lambda d: numbers(d).clamp(min=1.5),
    "of booleans": lambda d: (numbers(d) > 2) * 0.5,
    "complex": lambda d: torch.fft.fft(numbers(d)),
}


@pytest.mark.parametrize("before, after", [(torch.float64, torch.float32), (torch.float32, torch.float64)], ids=str)
@pytest.mark.parametrize("function", DEFAULT_DTYPE.values(), ids=DEFAULT_DTYPE)
def test_default_dtype(function, before, after):
    for _ in range(2):
        torch.set_default_dtype(before)
        expected, actual = function("cpu"), function(DEVICE)
        torch.set_default_dtype(after)
        assert_same(actual, expected)


@pytest.mark.own_schedule("is pending when the setting changes")
def test_only_a_change_runs_what_is_pending():
    x = torch.ones(3, device=DEVICE)
    with work() as done:
        y = x + 1
        torch.set_default_dtype(torch.get_default_dtype())
        torch.set_num_threads(torch.get_num_threads())
    assert done.flushes == 0 and y.tolist() == [2, 2, 2]
    with work() as done:
        y = x + 1
        torch.set_default_dtype(torch.float64)
        torch.set_default_dtype(torch.float32)
    assert done.flushes == 1 and y.tolist() == [2, 2, 2]


def test_results_lie_as_the_setting_has_them():
    images = torch.randn(2, 8, 14, 14, 14).contiguous(memory_format=torch.channels_last_3d)
    filters = torch.randn(16, 8, 3, 3, 3)
    for enabled in (True, False, True):
        with torch.backends.mkldnn.flags(enabled=enabled):
            expected = torch.conv3d(images, filters)
            actual = torch.conv3d(images.to(DEVICE), filters.to(DEVICE))
            assert actual.stride() == expected.stride()
            assert_same(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.fixture
def properties_may_be_set():
    """PyTorch's own test harness forbids it, in the process that has imported it."""
    with torch.backends.__allow_nonbracketed_mutation():
        yield


@pytest.mark.usefixtures("properties_may_be_set")
@pytest.mark.own_schedule("is pending when the setting changes")
@pytest.mark.parametrize("name", ["enabled", "deterministic"])
def test_settings_that_are_assigned_to_are_noticed(name):
    before = getattr(torch.backends.mkldnn, name)
    try:
        with work() as done:
            y = torch.ones(3, device=DEVICE) + 1
            setattr(torch.backends.mkldnn, name, not before)
        assert done.flushes == 1 and y.tolist() == [2, 2, 2]
        assert getattr(torch.backends.mkldnn, name) is not before
    finally:
        setattr(torch.backends.mkldnn, name, before)


@pytest.mark.usefixtures("properties_may_be_set")
def test_results_lie_as_the_property_has_them():
    images = torch.randn(1, 4, 7, 7, 7).contiguous(memory_format=torch.channels_last_3d)
    filters = torch.randn(8, 1, 3, 3, 3)
    try:
        for enabled in (True, False, True):
            torch.backends.mkldnn.enabled = enabled
            expected = torch.conv3d(images, filters, groups=4)
            assert torch.conv3d(images.to(DEVICE), filters.to(DEVICE), groups=4).stride() == expected.stride()
    finally:
        torch.backends.mkldnn.enabled = True


def test_calls_are_refused_as_the_setting_has_it():
    def unpool(device):
        places = torch.arange(64, device=device).view(1, 1, 8, 8)
        return torch.nn.functional.max_unpool2d(torch.ones(1, 1, 8, 8, device=device), places, 2)

    unpool(DEVICE).cpu()
    torch.use_deterministic_algorithms(True)
    try:
        for device in ("cpu", DEVICE):
            with pytest.raises(RuntimeError, match="does not have a deterministic implementation"):
                unpool(device)
    finally:
        torch.use_deterministic_algorithms(False)
    unpool(DEVICE).cpu()


def test_denormal_numbers():
    code = """
        results = {}
        for device in ("cpu", "lazy"):
            x = torch.full((4,), 1e-40).to(device)
            before = x * 1.0
            assert torch.set_flush_denormal(True)
            within = x * 1.0
            torch.set_flush_denormal(False)
            after = x * 1.0
            results[device] = [r.cpu().view(torch.int32).tolist() for r in (before, within, after)]
        assert results["cpu"] == results["lazy"], results
        assert results["cpu"][1] == [0] * 4 != results["cpu"][0]
    """
    run_fresh(code)


def test_a_graph_that_fails_does_not_hinder_a_setting():
    x = torch.arange(3.0, device=DEVICE)
    wrong = x[torch.tensor([7], device=DEVICE)]
    right = x + 1
    torch.set_default_dtype(torch.float64)
    assert torch.get_default_dtype() == torch.float64
    assert right.tolist() == [1, 2, 3]
    with pytest.raises(IndexError):
        wrong.cpu()
