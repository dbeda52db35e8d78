"""DLPack export of lazy tensors: of their memory as it is, without a copy.

What is exported holds the memory, not the tensor: it stays valid, and sees the tensor's contents until an op writes the
tensor, which then gets memory of its own. It comes as memory of an extension device, from which ``torch.from_dlpack``
makes a lazy tensor again, or of the CPU if the consumer asks for that, as in ``numpy.from_dlpack(x, device="cpu")``.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import has_torch_function_unary
from torch.utils.dlpack import DLDeviceType

from torch_lazyplug import _C
from torch_lazyplug._wrapping import wrap_attribute

# A DLPack device: its type and index.
DLDevice = tuple[Any, int]


def install() -> None:
    """Wraps what exports tensors; does nothing if that has been done."""
    wrap_attribute(torch.Tensor, "__dlpack_device__", _device_method)
    for name in ("_to_dlpack", "_to_dlpack_versioned"):
        wrap_attribute(torch._C, name, _export_function)
    torch.to_dlpack = torch.utils.dlpack.to_dlpack = torch._C._to_dlpack


def _device_method(original: Callable[..., DLDevice]) -> Callable[..., DLDevice]:
    def wrapper(tensor: torch.Tensor) -> DLDevice:
        if has_torch_function_unary(tensor) or tensor.device.type != "lazy":
            return original(tensor)
        return DLDeviceType.kDLExtDev, tensor.device.index

    return wrapper


def _export_function(original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(
        tensor: torch.Tensor, *args: Any, dl_device: DLDevice | None = None, copy: bool | None = None, **kwargs: Any
    ) -> Any:
        if tensor.device.type == "lazy":
            on_cpu = dl_device is not None and int(dl_device[0]) == DLDeviceType.kDLCPU
            tensor = _C._lazy._memory_alias(tensor, on_cpu)
        return original(tensor, *args, dl_device=dl_device, copy=copy, **kwargs)

    return wrapper
