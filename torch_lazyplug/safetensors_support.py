"""``safetensors.torch.load_file(..., device="lazy")``.

safetensors knows a fixed list of devices, and refuses others in its own native code; files for ours are read to the CPU
and copied from there. Everything else of safetensors works on lazy tensors as it is.
"""

import os
from collections.abc import Callable
from typing import Any

import torch

from torch_lazyplug._wrapping import wrap_attribute
from torch_lazyplug.import_hooks import after_import


def install() -> None:
    """Wraps ``load_file`` as soon as safetensors is imported; does nothing if that has been done."""
    after_import("safetensors.torch", lambda module: wrap_attribute(module, "load_file", _by_way_of_the_cpu))


def _by_way_of_the_cpu(load_to: Callable[..., Any]) -> Callable[..., Any]:
    def load_file(
        filename: str | os.PathLike, device: str | int | torch.device = "cpu", *args: Any, **kwargs: Any
    ) -> dict[str, torch.Tensor]:
        if not _is_lazy(device):
            return load_to(filename, device, *args, **kwargs)
        return {name: tensor.to(device) for name, tensor in load_to(filename, "cpu", *args, **kwargs).items()}

    return load_file


def _is_lazy(device: str | int | torch.device) -> bool:
    return str(device).split(":")[0] == "lazy"
