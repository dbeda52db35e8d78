"""Barriers: making pending results available."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from torch_lazyplug import _C
from torch_lazyplug.closure import run_step_closures

__all__ = ["get_tensor_id", "mark_step", "save", "sync_multi", "to_cpu", "wait_device_ops"]


def mark_step(device: str = "", wait: bool = False) -> None:
    """Ends a step: everything recorded on ``device`` (default: the current one) is handed to execution.

    Never needed for correctness or for bounded memory. With ``wait``, returns when the results are available. Then runs
    the step closures.
    """
    _C._lazy._mark_step(device, [], wait)
    _C._lazy._note_step("mark_step")
    run_step_closures()


def wait_device_ops(devices: Sequence[str] | None = None) -> None:
    """Waits until the given devices (default: all) have run what was handed to them."""
    _C._lazy._wait_device_ops(list(devices or []))


def sync_multi(tensors: Sequence[torch.Tensor], devices: Sequence[str]) -> None:
    """Makes the given lazy tensors available, all in one execution."""
    _C._lazy._sync_multi(list(tensors), list(devices))


def get_tensor_id(tensor: torch.Tensor) -> int:
    """The id of a lazy tensor, unique in this process."""
    return _C._lazy._get_tensor_id(tensor)


def to_cpu(tensors: Any, devices: Sequence[str] | None = None) -> Any:
    """Copies every lazy tensor in a nested structure to the CPU, with one synchronisation for all of them.

    A tensor that occurs more than once is copied once.
    """
    found: dict[int, torch.Tensor] = {}
    tree_map_only(torch.Tensor, lambda t: found.setdefault(id(t), t), tensors)
    lazy_tensors = [t for t in found.values() if t.device.type == "lazy" and t.layout is torch.strided]
    sync_multi(lazy_tensors, devices or [])
    copies = {key: tensor.cpu() for key, tensor in found.items()}
    return tree_map_only(torch.Tensor, lambda t: copies[id(t)], tensors)


def save(tensors: Any, *args: Any, **kwargs: Any) -> None:
    """``torch.save`` of the structure's copy on the CPU."""
    torch.save(to_cpu(tensors), *args, **kwargs)
