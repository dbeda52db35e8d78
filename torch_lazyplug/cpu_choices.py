"""Choices that PyTorch's Python code makes by a device's name.

The CPU's kernels run our graphs, so what PyTorch has found to be the best or the most exact for the CPU is so for this
device; what it chooses for devices that it has never heard of is not.
"""

from typing import Any

import torch
from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions

from torch_lazyplug._wrapping import Function, wrap_attribute
from torch_lazyplug.import_hooks import after_import

# Methods with an argument `device`. The chunked loss accumulates in float32 on the CPU, by a table of devices.
_METHODS: tuple[tuple[type, str], ...] = ((LinearCrossEntropyOptions, "_adjust"),)


def install() -> None:
    """Has these methods choose as for the CPU; does nothing if that has been done."""
    for owner, name in _METHODS:
        wrap_attribute(owner, name, _asked_for_the_cpu)
    wrap_attribute(torch._tensor_str, "_str_intern", _naming_parameters)
    after_import(
        "torch.nn.attention.flex_attention", lambda module: wrap_attribute(module, "_validate_device", _accepting)
    )
    after_import(
        "torch.nn.parallel.data_parallel",
        lambda module: wrap_attribute(module, "_get_available_device_type", _other_than_ours),
    )
    after_import(
        "torch.optim.swa_utils",
        lambda module: wrap_attribute(module, "_get_foreach_kernels_supported_devices", _all_but_ours),
    )


def _asked_for_the_cpu(method: Any) -> Any:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        if device is not None and device.type == "lazy":
            kwargs["device"] = torch.device("cpu")
        return method(*args, **kwargs)

    return wrapper


def _naming_parameters(describe: Function) -> Function:
    """PyTorch copies what a device called "lazy" holds to the CPU to print it, and forgets that it was a parameter."""

    def wrapper(inp: torch.Tensor, *, tensor_contents: str | None = None) -> str:
        text = describe(inp, tensor_contents=tensor_contents)
        is_plain = type(inp) is torch.Tensor or type(inp) is torch.nn.Parameter
        is_forgotten = inp.device.type == "lazy" and not is_plain and isinstance(inp, torch.nn.Parameter)
        return f"Parameter({text})" if is_forgotten and not text.startswith("Parameter(") else text

    return wrapper


def _accepting(validate: Function) -> Function:
    """FlexAttention refuses devices by name, and gradients on the CPU, for want of generated code. What runs here is
    its eager program, which has both passes."""

    def wrapper(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        if query.device.type != "lazy":
            validate(query, key, value)

    return wrapper


def _all_but_ours(list_devices: Function) -> Function:
    """Averages of models are taken one by one on the CPU, where a list of integers, such as the counts of batch norms,
    would be refused."""

    def wrapper() -> list[str]:
        return [name for name in list_devices() if name != "lazy"]

    return wrapper


def _other_than_ours(find: Function) -> Function:
    """DataParallel would move modules of the CPU to the device, and divide batches by functions of builds for CUDA. On
    the CPU, and on ``"mps"``, it calls the module."""

    def wrapper() -> str | None:
        device_type = find()
        return None if device_type == "lazy" else device_type

    return wrapper
