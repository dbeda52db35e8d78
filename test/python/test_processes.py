"""Other processes: forked children, workers of data loaders, tensors sent to spawned processes."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from helpers import BAD_FORK, IN_CHILD, run_fresh

pytestmark = pytest.mark.lazy_only


FORK_BESIDE_THREADS = (
    IN_CHILD
    + """
import signal, threading

done = False

def repeat(function):
    while not done:
        function()

def assert_children_end(ask, *functions):
    # Children ask while threads of the parent repeat the functions; one that hangs is ended.
    global done

    def ask_in_time():
        signal.alarm(60)
        ask()

    threads = [threading.Thread(target=repeat, args=(f,)) for f in functions]
    for thread in threads:
        thread.start()
    failed = [i for i in range(40) if not in_child(ask_in_time)]
    done = True
    for thread in threads:
        thread.join()
    assert not failed, failed
"""
)


def run_script(tmp_path, text):
    """A program of its own, which other processes can import."""
    script = tmp_path / "program.py"
    script.write_text("import torch\nimport torch_lazyplug\n" + textwrap.dedent(text))
    root = Path(__file__).resolve().parents[2]
    env = {**os.environ, "PYTHONPATH": str(root), "BAD_FORK": BAD_FORK}
    done = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


# Fork ----------------------------------------------------------------------------------------------------------------


def test_bad_fork_raises_from_every_entry_point(tmp_path):
    run_script(
        tmp_path,
        IN_CHILD
        + """
x = torch.ones(2, device="lazy")
y = x + 1
pinned = torch.ones(2).pin_memory()
capsule = lambda: torch.utils.dlpack.to_dlpack(y)

ENTRIES = [
    torch.lazy.empty_cache, torch.lazy.mem_get_info, torch.lazy.memory_snapshot,
    lambda: torch.lazy.set_per_process_memory_fraction(0.5),
    torch.accelerator.get_memory_info,
    lambda: torch.accelerator.set_device_index(0),
    lambda: torch.accelerator.current_stream(),
    lambda: torch.zeros(2, device="lazy"), lambda: torch.tensor([1.0], device="lazy"),
    lambda: torch.randn(2, device="lazy"), lambda: torch.zeros_like(x), lambda: x.new_zeros(2),
    lambda: torch.ones(2).lazy(), lambda: torch.nn.Linear(2, 2).to("lazy"),
    lambda: x.copy_(torch.ones(2)), lambda: torch.ones(2).copy_(y), lambda: x.add_(1),
    lambda: x.tolist(), lambda: print(y), lambda: bool(x.any()), lambda: y.clone(), lambda: (y * y).sum(),
    lambda: y.untyped_storage().tolist(), lambda: y.untyped_storage().cpu(), capsule,
    lambda: torch.from_dlpack(y),
    lambda: torch.ones(2).pin_memory(), lambda: torch.empty(2, pin_memory=True),
    lambda: torch.Event("lazy").record(), lambda: torch.lazy.get_rng_state(),
    lambda: torch_lazyplug.mark_step(wait=True), lambda: torch_lazyplug.sync_multi([y], []),
    lambda: torch_lazyplug.to_cpu([y]), lambda: x.resize_(4), lambda: x.untyped_storage().resize_(64),
]

def every_entry_raises():
    for number, entry in enumerate(ENTRIES):
        try:
            entry()
        except RuntimeError as error:
            assert os.environ["BAD_FORK"] in str(error), (number, error)
        else:
            assert entry is torch.lazy.empty_cache, f"entry {number} works"

def the_rest_goes_on():
    global x, y, pinned
    assert (pinned + 1).tolist() == [2, 2] and torch.ones(3).sum() == 3
    assert torch.lazy.is_available() and torch.lazy.device_count() == 1
    del x, y, pinned
    gc.collect()

assert in_child(every_entry_raises)
assert in_child(the_rest_goes_on)
assert y.tolist() == [2, 2] and pinned.is_pinned()
""",
    )


def test_bad_fork_raises_from_devices_streams_and_tensors():
    run_fresh(
        IN_CHILD
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
    lambda: torch.zeros_like(x),
    lambda: torch.full_like(x, 3),
    lambda: y.cpu(),
    lambda: y.sum().item(),
    lambda: y.data_ptr(),
]

def every_entry_raises():
    assert torch.lazy._is_in_bad_fork() and not torch.lazy.is_initialized()
    torch.manual_seed(1)
    for mode in ("auto", "always"):
        torch_lazyplug.config.set("run_at_once", mode)
        every_entry_raises_now()

def every_entry_raises_now():
    for number, entry in enumerate(ENTRIES):
        try:
            entry()
        except RuntimeError as error:
            assert os.environ["BAD_FORK"] in str(error), (number, error)
        else:
            raise AssertionError(f"entry {number} works")

assert in_child(every_entry_raises)
assert y.tolist() == [2, 2]
""",
        BAD_FORK=BAD_FORK,
    )


def test_a_child_can_be_asked_whatever_threads_were_doing_at_the_fork():
    run_fresh(
        FORK_BESIDE_THREADS
        + """
from torch_lazyplug import closure, config, debug, metrics

sys.setswitchinterval(1e-5)
config.set_debug(True)
config.set_fallback("silent")
x = torch.ones(4, device="lazy")

def change_settings():
    config.set("sync_debug", "default")
    config.describe()

def report():
    metrics.metrics_report()
    metrics.short_report()

def compute():
    (x * 2).nonzero()
    debug.events()

def add_closures():
    closure.add_step_closure(lambda: None, run_async=True)
    closure.run_step_closures()

def ask():
    change_settings()
    config.set("fallback", "warn")
    assert config.get("fallback") == "warn"
    assert metrics.counter_value("FallbackTotal") > 0
    report()
    debug.events()
    metrics.reset()
    torch_lazyplug.ir_cache.reset()
    torch.manual_seed(1)
    add_step = closure.add_step_closure
    add_step(lambda: None)
    add_step(lambda: None, run_async=True)
    closure.run_step_closures()
    try:
        x + 1
    except RuntimeError as error:
        assert os.environ["BAD_FORK"] in str(error)
    else:
        raise AssertionError("the child used the device")

compute()
assert_children_end(ask, change_settings, report, compute, add_closures)
""",
        BAD_FORK=BAD_FORK,
    )


def test_a_child_is_refused_and_ends_whatever_threads_were_doing_at_the_fork():
    run_fresh(
        FORK_BESIDE_THREADS
        + """
from torch_lazyplug import _C

x = torch.ones(4, device="lazy")
torch_lazyplug.config.set("overlap", "always")

def compute():
    y = x
    for _ in range(3):
        y = y + 1
    torch_lazyplug.mark_step()

def read():
    (x + 1).sum().item()

def ask():
    for entry in (_C._lazy._live_nodes, lambda: _C._lazy._get_tensors_text([x]), lambda: x.tolist()):
        try:
            entry()
        except RuntimeError as error:
            assert os.environ["BAD_FORK"] in str(error)
        else:
            raise AssertionError("the child used the device")
    _C._lazy._shut_down()

assert_children_end(ask, compute, read)
""",
        BAD_FORK=BAD_FORK,
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


def test_a_child_exits_cleanly_with_work_pending(tmp_path):
    run_script(
        tmp_path,
        """
        import multiprocessing

        def leave():
            assert torch.lazy._is_in_bad_fork()

        if __name__ == "__main__":
            x = torch.ones(4, device="lazy")
            y = x * 2
            child = multiprocessing.get_context("fork").Process(target=leave)
            child.start()
            child.join(60)
            assert child.exitcode == 0, child.exitcode
            assert y.tolist() == [2, 2, 2, 2]
        """,
    )


def test_a_worker_that_uses_the_device_says_what_is_wrong(tmp_path):
    run_script(
        tmp_path,
        """
        import os
        from torch.utils.data import DataLoader, Dataset

        class Moved(Dataset):
            def __len__(self):
                return 4
            def __getitem__(self, i):
                return torch.tensor(float(i)).to("lazy")

        if __name__ == "__main__":
            torch.ones(1, device="lazy")
            try:
                list(DataLoader(Moved(), num_workers=1, multiprocessing_context="fork"))
            except RuntimeError as error:
                assert os.environ["BAD_FORK"] in str(error), error
            else:
                raise AssertionError("the worker used the device")
        """,
    )


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_data_loader_workers(tmp_path, context):
    run_script(
        tmp_path,
        f"""
        from torch.utils.data import DataLoader, TensorDataset

        def total_of(**options):
            total = torch.zeros((), device="lazy")
            data = TensorDataset(torch.arange(8.0))
            loader = DataLoader(data, batch_size=2, num_workers=2, multiprocessing_context="{context}", **options)
            for epoch in range(2):
                for (batch,) in loader:
                    assert batch.is_pinned() == loader.pin_memory
                    total += batch.to("lazy", non_blocking=loader.pin_memory).sum()
            return total.item()

        if __name__ == "__main__":
            assert total_of() == 56
            assert total_of(pin_memory=True, persistent_workers=True) == 56
        """,
    )


# Sharing -------------------------------------------------------------------------------------------------------------


def test_tensors_are_sent_to_spawned_processes(tmp_path):
    run_script(
        tmp_path,
        """
        import torch.multiprocessing as mp

        def work(inbox, outbox, parameter):
            assert isinstance(parameter, torch.nn.Parameter) and parameter.requires_grad
            assert parameter.device == torch.device("lazy:0")
            x, view, empty, pending = inbox.get()
            assert x.device.type == "lazy" and view.shape == (2,) and empty.shape == (0, 3)
            x[0] = 100  # what shares a storage goes on sharing it
            outbox.put((view * 2, pending.cpu(), parameter.detach() + 1))
            assert inbox.get() is None  # until the results have arrived

        if __name__ == "__main__":
            context = mp.get_context("spawn")
            inbox, outbox = context.Queue(), context.Queue()
            parameter = torch.nn.Parameter(torch.ones(2, device="lazy"))
            child = context.Process(target=work, args=(inbox, outbox, parameter))
            child.start()
            x = torch.arange(4.0, device="lazy")
            inbox.put((x, x[:2], torch.empty(0, 3, device="lazy"), x + 1))
            doubled, pending, changed = outbox.get(timeout=60)
            assert doubled.device.type == "lazy" and doubled.tolist() == [200, 2]
            assert pending.is_cpu and pending.tolist() == [1, 2, 3, 4]
            assert changed.tolist() == [2, 2]
            assert x.tolist() == [0, 1, 2, 3]  # the child has a copy
            inbox.put(None)
            child.join(60)
            assert child.exitcode == 0
        """,
    )


def test_what_has_failed_arrives_as_such(tmp_path):
    """Who waits for it does not wait for ever."""
    run_script(
        tmp_path,
        """
        import torch.multiprocessing as mp
        from torch.utils.data import DataLoader, Dataset

        def pick(x):
            return x[torch.tensor([99], device=x.device)]

        def send(x, queue, arrived):
            queue.put((x + 1, pick(x)))
            arrived.get()

        class Wrong(Dataset):
            def __len__(self):
                return 2

            def __getitem__(self, i):
                return pick(torch.ones(2, device="lazy"))

        def error_of(tensor):
            try:
                (tensor * 2).tolist()
            except IndexError as error:
                return str(error)

        if __name__ == "__main__":
            context = mp.get_context("spawn")
            x = torch.ones(2, 3, device="lazy")
            with context.Pool(1) as pool:
                wrong = pool.apply_async(pick, (x,)).get(timeout=60)
            assert "index 99 is out of bounds" in error_of(wrong)
            queue, arrived = context.Queue(), context.Queue()
            child = context.Process(target=send, args=(x, queue, arrived))
            child.start()
            right, wrong = queue.get(timeout=60)
            arrived.put(True)
            child.join(60)
            assert right.tolist() == [[2.0] * 3] * 2 and "index 99 is out of bounds" in error_of(wrong)
            loader = DataLoader(Wrong(), num_workers=1, multiprocessing_context="spawn", batch_size=None, timeout=60)
            assert ["index 99" in error_of(item) for item in loader] == [True, True]
        """,
    )


def test_models_are_sent_to_a_pool(tmp_path):
    run_script(
        tmp_path,
        """
        import torch.multiprocessing as mp

        def apply(model, x):
            return model(x).detach()

        if __name__ == "__main__":
            model = torch.nn.Linear(3, 2).to("lazy")
            x = torch.randn(4, 3, device="lazy")
            with mp.get_context("spawn").Pool(1) as pool:
                result = pool.apply(apply, (model, x))
            torch.testing.assert_close(result.cpu(), model(x).detach().cpu())
        """,
    )


def test_tensors_of_the_cpu_are_shared_as_before(tmp_path):
    run_script(
        tmp_path,
        """
        import torch.multiprocessing as mp

        def write(x):
            x.fill_(7)

        if __name__ == "__main__":
            x = torch.zeros(3).share_memory_()
            child = mp.get_context("spawn").Process(target=write, args=(x,))
            child.start()
            child.join(100)
            assert child.exitcode == 0 and x.tolist() == [7, 7, 7]
        """,
    )
