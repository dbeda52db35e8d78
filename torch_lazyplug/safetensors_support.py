"""``safetensors.safe_open(..., device="lazy")``, and what is made of it, such as ``safetensors.torch.load_file``.

safetensors knows a fixed list of devices, and refuses others in its own native code; files for ours are read to the CPU
and copied from there. Everything else of safetensors works on lazy tensors as it is.
"""

import os
from typing import Any

import torch

from torch_lazyplug._wrapping import Function, wrap_copies
from torch_lazyplug.import_hooks import after_import


def install() -> None:
    """Wraps ``safe_open`` as soon as safetensors is imported; does nothing if that has been done."""
    # Not what the second is made of: who imports it first is importing it now.
    modules = ("safetensors", "safetensors.torch")
    after_import("safetensors", lambda _: wrap_copies(modules, "safe_open", _by_way_of_the_cpu))


def _by_way_of_the_cpu(open_for: Function) -> Function:
    def safe_open(
        filename: str | os.PathLike, framework: str, device: str | int | torch.device = "cpu", *args: Any, **kwargs: Any
    ) -> Any:
        if str(device).split(":")[0] != "lazy":
            return open_for(filename, framework, device, *args, **kwargs)
        return _File(open_for(filename, framework, "cpu", *args, **kwargs), device)

    return safe_open


class _Copying:
    """What is not about tensors is the original's."""

    def __init__(self, original: Any, device: Any) -> None:
        self._original = original
        self._device = device

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


class _File(_Copying):
    def __enter__(self) -> "_File":
        self._original.__enter__()
        return self

    def __exit__(self, *error: Any) -> Any:
        return self._original.__exit__(*error)

    def get_tensor(self, name: str) -> torch.Tensor:
        return self._original.get_tensor(name).to(self._device)

    def get_tensors(self, *args: Any, **kwargs: Any) -> dict[str, torch.Tensor]:
        tensors = self._original.get_tensors(*args, **kwargs)
        return {name: tensor.to(self._device) for name, tensor in tensors.items()}

    def get_slice(self, name: str) -> "_Slice":
        return _Slice(self._original.get_slice(name), self._device)


class _Slice(_Copying):
    def __getitem__(self, index: Any) -> torch.Tensor:
        return self._original[index].to(self._device)
