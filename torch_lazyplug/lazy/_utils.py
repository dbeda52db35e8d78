"""How a device is named in calls."""

from typing import Any

import torch

from torch_lazyplug import _C

DeviceLike = torch.device | str | int | None


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The index meant by a ``torch.device``, a string or an integer.

    A device without an index, and ``None``, mean the current device if ``optional``, and raise ``ValueError``
    otherwise. So does a device of another type, except that with ``allow_cpu`` the CPU gives -1.
    """
    if isinstance(device, int):
        return device
    if isinstance(device, str):
        device = torch.device(device)
    index = _index_of(device, allow_cpu) if isinstance(device, torch.device) else None
    if index is not None:
        return index
    if not optional:
        raise ValueError(f"Expected a torch.device with a specified index or an integer, but got: {device}")
    return _C._device.current_device()


def _index_of(device: torch.device, allow_cpu: bool) -> int | None:
    if device.type == "lazy":
        return device.index
    if device.type == "cpu" and allow_cpu:
        return -1
    raise ValueError(f"Expected a lazy {'or cpu ' if allow_cpu else ''}device, but got: {device}")
