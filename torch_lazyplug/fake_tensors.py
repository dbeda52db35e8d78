"""Lets ``FakeTensorMode``, and with it ``torch.compile``, take lazy tensors, and predict their convolutions.

PyTorch knows the device type "lazy" as that of its in-tree lazy tensors, which have neither strides nor storages, and
its converter to meta tensors refuses them by that name. Ours are ordinary tensors. Nothing but the name tells the
converter so, and it is a constant in three functions; there it is replaced by one that no device has.

Which library computes a convolution, and so how its results lie, is decided by the device: ours has the CPU's.
"""

from types import CodeType
from typing import Any

import torch
from torch._subclasses import meta_utils
from torch._subclasses.fake_tensor import FakeTensor

from torch_lazyplug._wrapping import Function, wrap_attribute

_IN_TREE_NAME = "lazy"
_NO_DEVICE = "in-tree lazy"

_FUNCTIONS: tuple[Any, ...] = (
    meta_utils.MetaTensorDescriber.describe_tensor,
    meta_utils.MetaConverter.meta_tensor,
    meta_utils.MetaConverter.__call__,
)


def install() -> None:
    """Makes the converter treat lazy tensors as any other, and convolutions as the CPU's; does nothing if that has
    been done."""
    for function in _FUNCTIONS:
        function.__code__ = _without_the_name(function.__code__)
    for name in ("_select_conv_backend", "_conv_determine_backend_memory_format"):
        wrap_attribute(torch._C, name, _asked_about_the_cpu)


def _asked_about_the_cpu(function: Function) -> Function:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*map(_of_the_cpu, args), **{name: _of_the_cpu(value) for name, value in kwargs.items()})

    return wrapper


def _of_the_cpu(argument: Any) -> Any:
    if not isinstance(argument, FakeTensor) or argument.device.type != _IN_TREE_NAME:
        return argument
    return torch.empty_strided(argument.shape, argument.stride(), dtype=argument.dtype, device="cpu")


def _without_the_name(code: CodeType) -> CodeType:
    return code.replace(co_consts=tuple(map(_renamed, code.co_consts)))


def _renamed(constant: Any) -> Any:
    if constant == _IN_TREE_NAME:
        return _NO_DEVICE
    # `type in ["xla", "lazy"]` keeps its names in a tuple.
    return tuple(map(_renamed, constant)) if isinstance(constant, tuple) else constant
