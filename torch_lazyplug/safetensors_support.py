"""``safetensors.torch.load_file(..., device="lazy")``.

safetensors knows a fixed list of devices, and refuses others in its own native code; files for ours are read to the CPU
and copied from there. Everything else of safetensors works on lazy tensors as it is.
"""

import functools
import os
from typing import Any

import torch

from torch_lazyplug.import_hooks import after_import


def install() -> None:
    """Wraps ``load_file`` as soon as safetensors is imported."""
    after_import("safetensors.torch", _wrap_load_file)


def _wrap_load_file(module: Any) -> None:
    load_to = module.load_file

    @functools.wraps(load_to)
    def load_file(
        filename: str | os.PathLike, device: str | int | torch.device = "cpu", *args: Any, **kwargs: Any
    ) -> dict[str, torch.Tensor]:
        if not _is_lazy(device):
            return load_to(filename, device, *args, **kwargs)
        return {name: tensor.to(device) for name, tensor in load_to(filename, "cpu", *args, **kwargs).items()}

    module.load_file = load_file


def _is_lazy(device: str | int | torch.device) -> bool:
    return str(device).split(":")[0] == "lazy"
