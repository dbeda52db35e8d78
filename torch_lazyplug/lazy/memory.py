"""Device memory: how much is in use, and how much is kept for the next tensors.

Freed memory is kept and handed out again, without the page faults that new memory costs. Ops that are only recorded
take no memory yet: call ``torch.lazy.synchronize()`` before reading a figure that is to include them. With the setting
``memory_cache`` off (``LAZYPLUG_MEMORY_CACHE=0``), memory comes from the CPU allocator and is not counted.
"""

from collections import OrderedDict
from typing import Any

import torch

from torch_lazyplug import _C
from torch_lazyplug.lazy._state import _lazy_init, is_initialized
from torch_lazyplug.lazy._utils import DeviceLike, _get_device_index

__all__ = [
    "OutOfMemoryError",
    "empty_cache",
    "get_allocator_backend",
    "get_per_process_memory_fraction",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
]

OutOfMemoryError = torch.OutOfMemoryError


def _index(device: DeviceLike) -> int:
    return _get_device_index(device, optional=True)


def get_allocator_backend() -> str:
    """The name of the allocator: always ``"native"``."""
    return "native"


def empty_cache() -> None:
    """Returns the memory of all devices, and pinned memory, that no tensor uses to the system.

    Numbers that are kept to save copies (``device_data_cache_size``) are forgotten.
    """
    if is_initialized():
        torch.accelerator.empty_cache()
        torch.accelerator.empty_host_cache()


def memory_stats(device: DeviceLike = None) -> "OrderedDict[str, Any]":
    """The figures of the device's allocator (default: the current device), as ``torch.accelerator.memory_stats``.

    A key is a figure (``allocation``, ``allocated_bytes``, ``reserved_bytes``, ``segment``), ``all``, ``small_pool`` or
    ``large_pool`` (blocks of 1 MiB or more), and ``current``, ``peak``, ``allocated`` (in total) or ``freed``.
    Reserved memory and segments have figures for ``all`` only. Blocks are active as long as they are allocated, and
    none is split, so ``inactive_split`` stays zero; so does ``requested_bytes``: a block does not know what was asked.
    """
    return torch.accelerator.memory_stats(_index(device))


def memory_stats_as_nested_dict(device: DeviceLike = None) -> dict[str, Any]:
    """The same figures as nested dictionaries; empty before the device is initialised."""
    return torch._C._accelerator_getDeviceStats(_index(device)) if is_initialized() else {}


def memory_allocated(device: DeviceLike = None) -> int:
    """How many bytes tensors and running kernels use on the device."""
    return torch.accelerator.memory_allocated(_index(device))


def max_memory_allocated(device: DeviceLike = None) -> int:
    """The most that ``memory_allocated`` has been, since the start or ``reset_peak_memory_stats``."""
    return torch.accelerator.max_memory_allocated(_index(device))


def memory_reserved(device: DeviceLike = None) -> int:
    """How many bytes the device holds, in use or not."""
    return torch.accelerator.memory_reserved(_index(device))


def max_memory_reserved(device: DeviceLike = None) -> int:
    """The most that ``memory_reserved`` has been, since the start or ``reset_peak_memory_stats``."""
    return torch.accelerator.max_memory_reserved(_index(device))


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Makes all peaks what the figures are now."""
    torch.accelerator.reset_peak_memory_stats(_index(device))


def reset_max_memory_allocated(device: DeviceLike = None) -> None:
    """The same as ``reset_peak_memory_stats``."""
    reset_peak_memory_stats(device)


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Sets the totals of what was allocated and freed to zero, and the counts of events."""
    torch.accelerator.reset_accumulated_memory_stats(_index(device))


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """How many bytes tensors could still get, and how many the host has, or its control group."""
    _lazy_init()
    return torch.accelerator.get_memory_info(_index(device))


def set_per_process_memory_fraction(fraction: float, device: DeviceLike = None) -> None:
    """Limits what the device holds to a part of the host's memory, from 0 to 1.

    What would exceed it raises ``torch.OutOfMemoryError``; so do, at first, programs that would exceed the host's
    memory.
    """
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    _lazy_init()
    _C._device.set_memory_fraction(fraction, _index(device))


def get_per_process_memory_fraction(device: DeviceLike = None) -> float:
    """The limit that ``set_per_process_memory_fraction`` set."""
    _lazy_init()
    return _C._device.memory_fraction(_index(device))


def memory_snapshot(device: DeviceLike = None) -> list[dict[str, Any]]:
    """The blocks of more than 64 KiB that are in use, the largest first.

    Each with its ``address``, ``size`` and the ``op`` that allocated it, ``None`` for what was copied to the device.
    """
    _lazy_init()
    return [{"address": a, "size": s, "op": op} for a, s, op in _C._device.live_blocks(_index(device))]


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    """The figures as a table; ``abbreviated`` leaves out the pools."""
    index = _index(device)
    stats = memory_stats(index)
    pools = ["all"] if abbreviated else ["all", "large_pool", "small_pool"]
    rows = [("Allocated memory", "allocated_bytes", pools), ("Reserved memory", "reserved_bytes", ["all"])]
    counts = [("Allocations", "allocation", pools), ("Segments", "segment", ["all"])]
    lines = [
        f"LAZY memory summary, device {index}",
        f"out-of-memory errors: {stats.get('num_ooms', 0)}, trims: {stats.get('num_alloc_retries', 0)}",
        f"{'':24}" + "".join(f"{column:>14}" for column in ("current", "peak", "allocated", "freed")),
    ]
    for title, figure, shown in rows:
        lines += [_summary_row(stats, title, figure, pool, _format_bytes) for pool in shown]
    for title, figure, shown in counts:
        lines += [_summary_row(stats, title, figure, pool, str) for pool in shown]
    return "\n".join(lines) + "\n"


def _summary_row(stats: dict[str, Any], title: str, figure: str, pool: str, form: Any) -> str:
    name = title if pool == "all" else f"  {pool.replace('_', ' ')}"
    values = (form(stats.get(f"{figure}.{pool}.{kind}", 0)) for kind in ("current", "peak", "allocated", "freed"))
    return f"{name:24}" + "".join(f"{value:>14}" for value in values)


def _format_bytes(nbytes: int) -> str:
    amount = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
