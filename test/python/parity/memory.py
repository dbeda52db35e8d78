"""Device memory: figures, limits, and what is left when it does not suffice."""

import pytest
import torch

from parity import probe

MEMORY = "Memory"
MIB = 1 << 20


def one_mib(d):
    x = torch.ones(MIB // 4, device=d)
    torch.accelerator.synchronize()
    return x


@probe(MEMORY, "torch.cuda.memory_allocated()", openreg=False)
def allocated(d, m):
    before = m.memory_allocated()
    x = one_mib(d)
    assert m.memory_allocated() - before >= x.nbytes
    del x
    assert m.memory_allocated() == before


@probe(MEMORY, "torch.cuda.max_memory_allocated(), torch.cuda.reset_peak_memory_stats()", openreg=False)
def peak(d, m):
    m.reset_peak_memory_stats()
    before = m.max_memory_allocated()
    one_mib(d)
    assert m.max_memory_allocated() - before >= MIB
    m.reset_peak_memory_stats()
    assert m.max_memory_allocated() == m.memory_allocated()


@probe(MEMORY, "torch.cuda.memory_reserved(), torch.cuda.max_memory_reserved()", openreg=False)
def reserved(d, m):
    x = one_mib(d)
    assert m.max_memory_reserved() >= m.memory_reserved() >= m.memory_allocated() >= x.nbytes


@probe(MEMORY, "torch.cuda.empty_cache()", openreg=False)
def empty_cache(d, m):
    one_mib(d)
    held = m.memory_reserved()
    m.empty_cache()
    assert m.memory_reserved() < held


FLOWS = ("allocated", "freed", "current")


@probe(MEMORY, "torch.cuda.memory_stats()['allocated_bytes.all.peak']", openreg=False)
def stats(d, m):
    before = m.memory_stats()
    x = one_mib(d)
    stats = m.memory_stats()
    for figure in ("allocation", "allocated_bytes", "active", "active_bytes", "reserved_bytes", "segment"):
        assert stats[f"{figure}.all.peak"] >= stats[f"{figure}.all.current"] > 0, figure
        grown = {key: stats[f"{figure}.all.{key}"] - before[f"{figure}.all.{key}"] for key in FLOWS}
        assert grown["allocated"] - grown["freed"] == grown["current"], figure
    assert stats["allocated_bytes.large_pool.current"] >= x.nbytes
    assert stats["num_ooms"] >= 0 and stats["num_alloc_retries"] >= 0


@probe(MEMORY, "torch.cuda.memory_stats_as_nested_dict()", openreg=False)
def nested_stats(d, m):
    one_mib(d)
    assert m.memory_stats_as_nested_dict()["allocated_bytes"]["all"]["peak"] >= MIB


@probe(MEMORY, "torch.cuda.reset_accumulated_memory_stats()", openreg=False)
def reset_accumulated(d, m):
    one_mib(d)
    m.reset_accumulated_memory_stats()
    assert m.memory_stats()["allocation.all.freed"] == 0


@probe(MEMORY, "print(torch.cuda.memory_summary())", openreg=False)
def summary(d, m):
    one_mib(d)
    assert "Allocated memory" in m.memory_summary() and m.memory_summary(abbreviated=True)


@probe(MEMORY, "torch.cuda.memory_snapshot()", openreg=False)
def snapshot(d, m):
    x = one_mib(d)
    assert any(block["size"] >= x.nbytes for block in m.memory_snapshot())


@probe(MEMORY, "free, total = torch.cuda.mem_get_info()", openreg=False)
def mem_get_info(d, m):
    free, total = m.mem_get_info()
    assert 0 < free <= total


@probe(MEMORY, "torch.cuda.set_per_process_memory_fraction(0.5)", openreg=False)
def fraction(d, m):
    m.set_per_process_memory_fraction(0.5)
    try:
        assert m.get_per_process_memory_fraction() == 0.5
    finally:
        m.set_per_process_memory_fraction(1.0)


@probe(MEMORY, "except torch.cuda.OutOfMemoryError:", openreg=False)
def out_of_memory(d, m):
    kept = torch.ones(4, device=d)
    with pytest.raises(m.OutOfMemoryError, match="out of memory"):
        torch.ones(1 << 50, dtype=torch.uint8, device=d).sum().item()
    assert kept.sum().item() == 4


@probe(MEMORY, "torch.cuda.get_allocator_backend()", openreg=False)
def allocator_backend(d, m):
    assert m.get_allocator_backend() == "native"


@probe(MEMORY, "torch.accelerator.memory_allocated(), torch.accelerator.max_memory_allocated()")
def accelerator_allocated(d, m):
    x = one_mib(d)
    assert torch.accelerator.max_memory_allocated() >= torch.accelerator.memory_allocated() >= x.nbytes


@probe(MEMORY, "torch.accelerator.memory_reserved(), torch.accelerator.max_memory_reserved()")
def accelerator_reserved(d, m):
    x = one_mib(d)
    assert torch.accelerator.max_memory_reserved() >= torch.accelerator.memory_reserved() >= x.nbytes


@probe(MEMORY, "torch.accelerator.memory_stats()")
def accelerator_stats(d, m):
    x = one_mib(d)
    assert torch.accelerator.memory_stats()["allocated_bytes.all.current"] >= x.nbytes


@probe(MEMORY, "torch.accelerator.reset_peak_memory_stats(), torch.accelerator.reset_accumulated_memory_stats()")
def accelerator_resets(d, m):
    one_mib(d)
    torch.accelerator.reset_peak_memory_stats()
    torch.accelerator.reset_accumulated_memory_stats()
    assert torch.accelerator.max_memory_allocated() == torch.accelerator.memory_allocated()
    assert torch.accelerator.memory_stats()["allocation.all.allocated"] == 0


@probe(MEMORY, "torch.accelerator.empty_cache()", openreg=False)
def accelerator_empty_cache(d, m):
    one_mib(d)
    held = torch.accelerator.memory_reserved()
    torch.accelerator.empty_cache()
    assert torch.accelerator.memory_reserved() < held


@probe(MEMORY, "torch.accelerator.get_memory_info()", openreg=False)
def accelerator_memory_info(d, m):
    free, total = torch.accelerator.get_memory_info()
    assert 0 < free <= total
