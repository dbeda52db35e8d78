"""Lets ``FakeTensorMode``, and with it ``torch.compile``, take lazy tensors.

PyTorch knows the device type "lazy" as that of its in-tree lazy tensors, which have neither strides nor storages, and
its converter to meta tensors refuses them by that name. Ours are ordinary tensors. Nothing but the name tells the
converter so, and it is a constant in three functions; there it is replaced by one that no device has.
"""

from types import CodeType
from typing import Any

from torch._subclasses import meta_utils

_IN_TREE_NAME = "lazy"
_NO_DEVICE = "in-tree lazy"

_FUNCTIONS: tuple[Any, ...] = (
    meta_utils.MetaTensorDescriber.describe_tensor,
    meta_utils.MetaConverter.meta_tensor,
    meta_utils.MetaConverter.__call__,
)


def install() -> None:
    """Makes the converter treat lazy tensors as any other; does nothing if that has been done."""
    for function in _FUNCTIONS:
        function.__code__ = _without_the_name(function.__code__)


def _without_the_name(code: CodeType) -> CodeType:
    return code.replace(co_consts=tuple(map(_renamed, code.co_consts)))


def _renamed(constant: Any) -> Any:
    if constant == _IN_TREE_NAME:
        return _NO_DEVICE
    # `type in ["xla", "lazy"]` keeps its names in a tuple.
    return tuple(map(_renamed, constant)) if isinstance(constant, tuple) else constant
