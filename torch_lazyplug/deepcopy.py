"""``copy.deepcopy`` of lazy tensors, with views that go on sharing one storage.

``torch.Tensor.__deepcopy__`` clones tensors of any device called "lazy", because PyTorch's in-tree device of that name
has no storages. Ours has, so tensors, and those of subclasses that wrap no others, are copied as on the CPU; everything
else is left to PyTorch.
"""

import copy
import copyreg
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import has_torch_function_unary

from torch_lazyplug._wrapping import wrap_attribute

_OTHER_TYPE = (
    "The default implementation of __deepcopy__() for non-wrapper subclasses only works for subclass types that "
    "implement new_empty() and for which that function returns another instance of the same subclass. You should "
    "either properly implement new_empty() for your subclass or override __deepcopy__() if it is intended behavior for "
    "new_empty() to return an instance of a different type."
)


def install() -> None:
    """Wraps ``torch.Tensor.__deepcopy__``; does nothing if that has been done."""
    wrap_attribute(torch.Tensor, "__deepcopy__", _with_storage)


def _with_storage(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def wrapper(tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
        if id(tensor) in memo or has_torch_function_unary(tensor) or not _shares_storage_on_copy(tensor):
            return original(tensor, memo)
        return _copy_with_storage(tensor, memo)

    return wrapper


def _shares_storage_on_copy(tensor: torch.Tensor) -> bool:
    return (
        tensor.device.type == "lazy"
        and tensor.layout is torch.strided
        and tensor.is_leaf
        and torch._C._has_storage(tensor)
        and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
        and (type(tensor) is torch.Tensor or tensor.data_ptr() != 0)
    )


def _copy_with_storage(tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    with torch.no_grad():
        storage = tensor._typed_storage()._deepcopy(memo)
        result = tensor.new_empty([])
        if type(result) is not type(tensor):
            raise RuntimeError(_OTHER_TYPE)
        result.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())
    result.requires_grad_(tensor.requires_grad)
    if tensor.grad is not None:
        result.grad = copy.deepcopy(tensor.grad, memo)
    if type(tensor) is not torch.Tensor:
        for slot in copyreg._slotnames(type(tensor)):  # type: ignore[attr-defined]
            if hasattr(tensor, slot):
                setattr(result, slot, copy.deepcopy(getattr(tensor, slot), memo))
        tensor._clear_non_serializable_cached_data()
    result.__dict__ = copy.deepcopy(tensor.__dict__, memo)
    memo[id(tensor)] = result
    return result
