import contextlib
import os
import sys
from pathlib import Path

import pytest

# Read when the plugin is loaded, which `import torch` does.
os.environ.setdefault("LAZYPLUG_VERIFY_IR", "1")
# Cuts that can be counted, whatever the timing, and a worker that computes, whatever the machine.
os.environ.setdefault("LAZYPLUG_CHUNK_NODES", "16")
os.environ.setdefault("LAZYPLUG_OVERLAP", "always")
# Tests are no program: hardly any graph comes again.
os.environ.setdefault("LAZYPLUG_MAX_UNUSED_GRAPHS", "0")
os.environ.setdefault("LAZYPLUG_RUN_AT_ONCE", "never")
os.environ.setdefault("LAZYPLUG_COMPILE", "always")
# Functions such as exp have the CPU's bits, which tests compare with. Those that ask for the fixture `functions` run
# with the device's own, as programs do.
os.environ.setdefault("LAZYPLUG_FUSION", "1")

import torch  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "bench"), str(Path(__file__).parent)]

import helpers  # noqa: E402  (needs the paths above)


def pytest_configure(config):
    # The tensors are small: more threads would only wait for each other.
    torch.set_num_threads(int(os.environ.get("LAZYPLUG_TEST_THREADS", "1")))
    config.addinivalue_line("markers", "lazy_only: looks at the work of the lazy device, meaningless on another")
    config.addinivalue_line("markers", "torchscript: each graph is run on TorchScript's own interpreter as well")
    config.addinivalue_line("markers", "own_schedule(reason): is run without the flags schedule and scramble")


def pytest_collection_modifyitems(items):
    if helpers.IS_LAZY:
        return
    for item in items:
        if "lazy_only" in item.keywords:
            item.add_marker(pytest.mark.skip(reason=f"device under test is {helpers.DEVICE}"))


@pytest.fixture(scope="session")
def device():
    return helpers.DEVICE


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call():
    """A test that passes must not leave an error behind: one that makes errors also takes them."""
    result = yield
    helpers.finish_everything()
    return result


@pytest.fixture(autouse=True)
def verified_on_torchscript(request):
    if not helpers.IS_LAZY or "torchscript" not in request.keywords:
        yield
        return
    import torch_lazyplug

    before = torch_lazyplug.config.get("verify_torchscript")
    torch_lazyplug.config.set("verify_torchscript", True)
    yield
    torch_lazyplug.config.set("verify_torchscript", before)


@pytest.fixture(autouse=True)
def reproducible():
    torch.manual_seed(0)
    yield
    # What a failed test left pending must not run, or raise, inside the next one.
    with contextlib.suppress(Exception):
        helpers.finish_everything()


@pytest.fixture
def fresh_groups():
    """Graphs are compiled anew, and their groups counted; the flag `fusion` is afterwards as it was."""
    import torch_lazyplug

    torch_lazyplug.wait_device_ops()
    torch_lazyplug.ir_cache.reset()
    torch_lazyplug.metrics.reset()
    before = torch_lazyplug.config.get("fusion")
    yield
    torch_lazyplug.config.set("fusion", before)


@pytest.fixture(autouse=True)
def own_schedule(request, monkeypatch):
    """Schedules that the environment asks for are not for tests that are marked so: they say why."""
    marker = request.node.get_closest_marker("own_schedule")
    if not helpers.IS_LAZY or not marker:
        yield
        return
    assert marker.args, "a reason is missing"
    from torch_lazyplug import config

    before = {}
    for name, none in (("schedule", ""), ("scramble", 0)):
        monkeypatch.delenv(f"LAZYPLUG_{name.upper()}", raising=False)
        before[name] = config.get(name)
        config.set(name, none)
    yield
    for name, value in before.items():
        config.set(name, value)


@pytest.fixture
def functions():
    """Functions such as exp are the device's own."""
    from torch_lazyplug import config

    with config.changed({"fusion": 3}):
        yield
        helpers.finish_everything()


@pytest.fixture
def debugging():
    """The user's lines are kept, and events of the test only."""
    from torch_lazyplug import config, debug

    before = config.get("debug")
    config.set("debug", True)
    debug.clear_events()
    yield
    config.set("debug", before)
    debug.clear_events()


@pytest.fixture
def blocking():
    """Each op runs when it is recorded."""
    if not helpers.IS_LAZY:
        yield
        return
    import torch_lazyplug

    torch_lazyplug.config.set_launch_blocking(True)
    yield
    torch_lazyplug.config.set_launch_blocking(False)


@pytest.fixture
def forced():
    """Forces ops to the CPU for the length of a test."""
    import torch_lazyplug

    before = torch_lazyplug.config.get_force_fallback()
    yield torch_lazyplug.config.set_force_fallback
    torch_lazyplug.config.set_force_fallback(before)
