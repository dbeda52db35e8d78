"""Device memory: its figures, its limit, and its reuse."""

import gc
import resource
import threading

import pytest
import torch
from helpers import DEVICE, assert_same, flag, run_fresh, work

from torch_lazyplug import config

pytestmark = pytest.mark.lazy_only

MIB = 1 << 20


@pytest.fixture(autouse=True)
def clean():
    torch.lazy.init()
    torch.lazy.synchronize()
    gc.collect()
    torch.lazy.empty_cache()
    torch.lazy.reset_peak_memory_stats()
    torch.lazy.reset_accumulated_memory_stats()
    yield
    torch.lazy.set_per_process_memory_fraction(1.0)


@pytest.fixture
def limit():
    """Limits the device to so many bytes more than it holds now."""

    def set_limit(nbytes):
        total = torch.lazy.mem_get_info()[1]
        torch.lazy.set_per_process_memory_fraction((torch.lazy.memory_reserved() + nbytes) / total)

    return set_limit


def tensor_of(nbytes):
    tensor = torch.ones(nbytes // 4, device=DEVICE)
    torch.lazy.synchronize()
    return tensor


def page_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def test_memory_in_use():
    before = torch.lazy.memory_allocated()
    x = tensor_of(4 * MIB)
    assert torch.lazy.memory_allocated() == before + 4 * MIB
    view = x[10:]
    del x
    assert torch.lazy.memory_allocated() == before + 4 * MIB
    del view
    assert torch.lazy.memory_allocated() == before
    assert torch.lazy.max_memory_allocated() == before + 4 * MIB
    torch.lazy.reset_peak_memory_stats()
    assert torch.lazy.max_memory_allocated() == before


def test_pending_results_take_none():
    before = torch.lazy.memory_allocated()
    x = torch.ones(MIB, device=DEVICE)
    assert torch.lazy.memory_allocated() == before
    x.sum().item()
    assert torch.lazy.memory_allocated() >= before + 4 * MIB


def test_copies_to_the_device_count():
    before = torch.lazy.memory_allocated()
    x = torch.ones(MIB).to(DEVICE)
    assert torch.lazy.memory_allocated() == before + 4 * MIB
    y = x.cpu()
    assert torch.lazy.memory_allocated() == before + 4 * MIB
    assert y.sum() == MIB


def test_fallbacks_count():
    x = torch.ones(MIB, device=DEVICE)
    before = torch.lazy.memory_allocated()
    indices = torch.nonzero(x)
    assert torch.lazy.memory_allocated() >= before + 8 * MIB
    assert indices.shape == (MIB, 1)


def test_freed_memory_is_kept_until_the_cache_is_emptied():
    before = torch.lazy.memory_reserved()
    tensor_of(4 * MIB)
    assert torch.lazy.memory_reserved() >= before + 4 * MIB
    torch.lazy.empty_cache()
    assert torch.lazy.memory_reserved() == before
    assert torch.lazy.max_memory_reserved() >= before + 4 * MIB


def test_the_second_step_takes_no_page_faults():
    x = torch.randn(10 * MIB, device=DEVICE)

    def step():
        y = (x * 2 + 1).sigmoid() * x
        torch.lazy.synchronize()
        return y

    for _ in range(3):
        kept = step()
    before = page_faults()
    for _ in range(3):
        kept = step()
    # Fresh memory for one result alone is 10,000 pages.
    assert page_faults() - before < 1000
    assert kept.shape == x.shape


def test_repeated_steps_take_no_more_memory():
    model = torch.nn.Sequential(torch.nn.Linear(100, 300), torch.nn.ReLU(), torch.nn.Linear(300, 10)).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(64, 100, device=DEVICE)

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        torch.lazy.synchronize()

    for _ in range(5):
        step()
    figures = torch.lazy.memory_allocated(), torch.lazy.memory_reserved()
    for _ in range(20):
        step()
    assert (torch.lazy.memory_allocated(), torch.lazy.memory_reserved()) == figures


@pytest.mark.own_schedule("what is queued depends on cuts")
def test_terms_of_a_sum_do_not_wait_for_one_another():
    """The gradient of a weight that is used many times."""
    w = (torch.randn(256, 256, device=DEVICE) / 20).requires_grad_()

    def step():
        h = torch.ones(4, 256, device=DEVICE)
        for _ in range(40):
            h = torch.tanh(h @ w)
        h.sum().backward()
        w.grad = None

    for _ in range(8):
        step()
    torch.lazy.synchronize()
    before = torch.lazy.memory_allocated()
    torch.lazy.reset_peak_memory_stats()
    step()
    torch.lazy.synchronize()
    assert torch.lazy.max_memory_allocated() - before < 6 * w.nbytes


def test_marked_steps_queue_no_more_than_full_traces():
    run_fresh("""
        torch_lazyplug.config.set("overlap", "always")
        weight = torch.randn(256, 256, device="lazy")
        for _ in range(300):
            x = torch.ones(512, 256).to("lazy")
            for _ in range(4):
                x = x @ weight
            torch_lazyplug.mark_step()
        torch.lazy.synchronize()
        assert torch.lazy.max_memory_allocated() < 150 * 2**20, torch.lazy.max_memory_allocated()
    """)


def test_statistics():
    tensor_of(2 * MIB)
    stats = torch.lazy.memory_stats()
    assert stats == torch.accelerator.memory_stats()
    assert stats["allocated_bytes.large_pool.allocated"] == stats["allocated_bytes.large_pool.freed"] == 2 * MIB
    assert stats["allocated_bytes.all.peak"] >= 2 * MIB
    assert stats["num_ooms"] == 0
    nested = torch.lazy.memory_stats_as_nested_dict()
    assert nested["allocated_bytes"]["large_pool"]["allocated"] == 2 * MIB
    torch.lazy.reset_accumulated_memory_stats()
    assert torch.lazy.memory_stats()["allocated_bytes.large_pool.allocated"] == 0


def test_summary():
    x = tensor_of(2 * MIB)
    text = torch.lazy.memory_summary()
    assert "Allocated memory" in text and "large pool" in text and "2.0 MiB" in text
    assert "large pool" not in torch.lazy.memory_summary(abbreviated=True)
    assert x.numel() == MIB // 2


def test_snapshot_names_the_op():
    x = torch.ones(512, 512).to(DEVICE)
    y = x @ x
    torch.lazy.synchronize()
    blocks = {block["address"]: (block["size"], block["op"]) for block in torch.lazy.memory_snapshot()}
    assert blocks[x.data_ptr()] == (MIB, None)
    assert blocks[y.data_ptr()] == (MIB, "aten::mm")


def test_memory_info():
    free, total = torch.lazy.mem_get_info()
    assert 0 < free <= total
    assert torch.accelerator.get_memory_info()[1] == total
    torch.lazy.set_per_process_memory_fraction(0.01)
    assert torch.lazy.get_per_process_memory_fraction() == pytest.approx(0.01)
    assert torch.lazy.mem_get_info()[0] <= total // 100


def test_the_accelerator_has_the_same_figures():
    x = tensor_of(MIB)
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        assert getattr(torch.accelerator, name)() == getattr(torch.lazy, name)() > 0
    del x
    torch.accelerator.empty_cache()
    torch.accelerator.reset_peak_memory_stats()
    assert torch.accelerator.max_memory_allocated() == torch.lazy.memory_allocated()


@pytest.mark.parametrize("fraction", [-0.5, 1.5])
def test_invalid_fractions(fraction):
    with pytest.raises(ValueError, match="Invalid fraction value"):
        torch.lazy.set_per_process_memory_fraction(fraction)


def test_a_fraction_is_a_float():
    with pytest.raises(TypeError):
        torch.lazy.set_per_process_memory_fraction(1)


def test_out_of_memory(limit):
    kept = tensor_of(4 * MIB)
    limit(6 * MIB)
    x = torch.ones(1024, 1024).to(DEVICE)
    y = torch.outer(x[0], x[0].repeat(4))  # 16 MiB
    with pytest.raises(torch.OutOfMemoryError) as raised:
        torch.lazy.synchronize()
    message = str(raised.value)
    assert "LAZY out of memory. Tried to allocate 16.00 MiB on lazy:0" in message
    assert "The largest live tensors: 4.00 MiB" in message and "aten::" in message
    assert "while running aten::" in message
    with pytest.raises(torch.OutOfMemoryError):
        y.cpu()
    # Everything else is as it was, and work goes on.
    assert_same((x[0] + 1).cpu(), torch.full((1024,), 2.0))
    assert kept.sum().item() == MIB
    assert torch.lazy.memory_stats()["num_ooms"] == 1


@pytest.fixture(params=["always", "never"])
def compiled(request):
    with config.changed({"compile": request.param, "run_at_once": "never"}):
        yield


@pytest.mark.usefixtures("compiled")
def test_out_of_memory_spares_what_shares_a_group(limit):
    count, average = torch.ones(1000).to(DEVICE), torch.ones(1000).to(DEVICE)
    limit(4 * MIB)
    large = torch.ones(8 * MIB, device=DEVICE)
    lost = large[:1000].exp()
    lost_in_place = torch.ones(1000).to(DEVICE).add_(large[1000:2000])
    count.add_(1)
    average[:500].add_(count[500:], alpha=0.5)
    for _ in range(2):
        with pytest.raises(torch.OutOfMemoryError):
            lost.cpu()
        assert count.tolist() == [2.0] * 1000
        assert average.tolist() == [2.0] * 500 + [1.0] * 500
    assert lost_in_place.tolist() == [1.0] * 1000


def test_out_of_memory_names_the_line(limit):
    limit(MIB)
    with flag("debug", True):
        x = torch.ones(4 * MIB, device=DEVICE)
        with pytest.raises(torch.OutOfMemoryError, match=r"recorded at .*test_memory.py:\d+"):
            x.cpu()


def test_out_of_memory_in_a_copy_and_a_fallback(limit):
    x = torch.ones(MIB // 4, device=DEVICE)
    torch.lazy.synchronize()
    limit(MIB)
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate 8.00 MiB"):
        torch.ones(2 * MIB).to(DEVICE)
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate 2.00 MiB"):
        torch.nonzero(x)
    assert x.sum().item() == MIB // 4


def test_more_than_the_host_has():
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 50, dtype=torch.uint8, device=DEVICE).data_ptr()


def test_what_is_idle_makes_room(limit):
    limit(8 * MIB)
    tensor_of(6 * MIB)
    x = tensor_of(7 * MIB)
    assert x.numel() * 4 == 7 * MIB
    assert torch.lazy.memory_stats()["num_ooms"] == 0


def test_memory_is_freed_on_other_threads():
    before = torch.lazy.memory_allocated()
    tensors = [tensor_of(MIB) for _ in range(4)]
    thread = threading.Thread(target=tensors.clear)
    thread.start()
    thread.join()
    assert torch.lazy.memory_allocated() == before


def test_threads_share_a_device():
    before = torch.lazy.memory_allocated()
    errors = []

    def run(seed):
        try:
            for i in range(30):
                x = torch.full((1000 + seed * 100 + i,), float(i), device=DEVICE)
                assert (x * 2).sum().item() == 2 * i * x.numel()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert not errors
    assert torch.lazy.memory_allocated() == before


def test_cpu_tensors_made_by_kernels_outlive_them():
    cpu = torch.ones(MIB, device=DEVICE).cpu()
    torch.lazy.empty_cache()
    assert cpu.sum() == MIB


def test_switched_off():
    before = torch.lazy.memory_allocated()
    with flag("memory_cache", False):
        x = torch.ones(MIB, device=DEVICE)
        assert (x + x).sum().item() == 2 * MIB
        assert torch.lazy.memory_allocated() == before
    assert (x + x).sum().item() == 2 * MIB


def test_the_profiler_sees_device_memory():
    with torch.profiler.profile(profile_memory=True) as profiler:
        x = torch.ones(MIB).to(DEVICE)
    del x
    total = sum(event.self_device_memory_usage for event in profiler.key_averages())
    assert total >= 4 * MIB


def test_record_stream():
    x = torch.ones(10, device=DEVICE)
    x.record_stream(torch.Stream(DEVICE))
    assert x.sum().item() == 10


# Pinned memory -------------------------------------------------------------------------------------------------------


def test_pinned_tensors():
    plain = torch.arange(10.0)
    pinned = plain.pin_memory()
    assert pinned.is_pinned() and pinned[3:].is_pinned() and not plain.is_pinned()
    assert pinned.pin_memory() is pinned
    assert_same(pinned, plain)
    assert torch.empty(3, pin_memory=True).is_pinned()
    assert pinned.untyped_storage().is_pinned()
    assert_same(pinned.to(DEVICE, non_blocking=True).cpu(), plain)
    assert not torch.ones(3, device=DEVICE).is_pinned()


def test_device_tensors_cannot_be_pinned():
    with pytest.raises(RuntimeError, match="cannot pin"):
        torch.ones(3, device=DEVICE).pin_memory()


@pytest.mark.parametrize("workers", [0, 1])
def test_loaders_pin(workers):
    data = torch.utils.data.TensorDataset(torch.arange(8.0), torch.arange(8))
    loader = torch.utils.data.DataLoader(
        data, batch_size=4, pin_memory=True, num_workers=workers, multiprocessing_context="spawn" if workers else None
    )
    seen = 0
    for x, y in loader:
        assert x.is_pinned() and y.is_pinned()
        with work() as done:
            seen += (x.to(DEVICE, non_blocking=True) + y.to(DEVICE, non_blocking=True)).sum().item()
        assert done.fallbacks == 0
    assert seen == 56
