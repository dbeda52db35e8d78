"""Materialises lazy memory before Python hands out its address.

A lazy tensor's storage may have no memory yet. Ops go through the dispatcher and know; the few methods below read the
memory behind its back, so each is wrapped: for a lazy tensor or storage it first runs what is pending. Getting hold of
a storage reads nothing, so ``Tensor.untyped_storage`` needs no wrapper and costs no synchronisation.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import handle_torch_function, has_torch_function_unary

from torch_lazyplug import _C
from torch_lazyplug._wrapping import wrap_attribute

Accessor = Callable[..., Any]

# Methods without arguments that return the address of the tensor's memory.
_TENSOR_METHODS = ("data_ptr", "const_data_ptr")

# Methods that read or write the memory of a storage, or refuse a storage that has none.
_STORAGE_METHODS = (
    "__getitem__",
    "__setitem__",
    "_write_file",
    "data_ptr",
    "fill_",
    "resize_",
)

# Methods that write the memory themselves, which others may be about to read.
_STORAGE_WRITERS = ("_byteswap", "_set_from_file")

# Methods with another storage as an argument.
_STORAGE_PAIR_METHODS = ("copy_",)


def install() -> None:
    """Wraps the accessors; does nothing if that has been done."""
    _wrap(torch.Tensor, _TENSOR_METHODS, _tensor_method)
    _wrap(torch.UntypedStorage, _STORAGE_METHODS, _storage_method)
    _wrap(torch.UntypedStorage, _STORAGE_WRITERS, functools.partial(_storage_method, for_write=True))
    _wrap(torch.UntypedStorage, _STORAGE_PAIR_METHODS, _storage_pair_method)
    _wrap(torch.UntypedStorage, ("_swap_data_ptr_",), _swap_method)


def _wrap(owner: Any, names: tuple[str, ...], wrapper: Callable[[Accessor], Accessor]) -> None:
    for name in names:
        wrap_attribute(owner, name, wrapper)


def _tensor_method(accessor: Accessor) -> Accessor:
    def wrapper(tensor: torch.Tensor) -> Any:
        if has_torch_function_unary(tensor):
            return handle_torch_function(wrapper, (tensor,), tensor)
        # The cheap test settles most calls.
        if not tensor.is_cpu and tensor.device.type == "lazy":
            _C._lazy._materialize(tensor)
        return accessor(tensor)

    return wrapper


def _storage_method(accessor: Accessor, for_write: bool = False) -> Accessor:
    def wrapper(storage: torch.UntypedStorage, *args: Any, **kwargs: Any) -> Any:
        _materialize_storage(storage, for_write)
        return accessor(storage, *args, **kwargs)

    return wrapper


def _storage_pair_method(accessor: Accessor) -> Accessor:
    def wrapper(storage: torch.UntypedStorage, *args: Any, **kwargs: Any) -> Any:
        for argument in (storage, *args, *kwargs.values()):
            if isinstance(argument, torch.UntypedStorage):
                _materialize_storage(argument)
        return accessor(storage, *args, **kwargs)

    return wrapper


def _swap_method(accessor: Accessor) -> Accessor:
    """Storages of the device swap what they hold, since their tensors are told by the storage, not by its address."""

    def wrapper(storage: torch.UntypedStorage, other: torch.UntypedStorage) -> Any:
        is_possible = (
            isinstance(other, torch.UntypedStorage)
            and storage.device == other.device
            and (storage.nbytes() == other.nbytes() or 0 in (storage.nbytes(), other.nbytes()))
        )
        if storage.device.type != "lazy" or not is_possible:
            return accessor(storage, other)
        contents = storage.clone(), other.clone()
        for target, content in zip((storage, other), reversed(contents), strict=True):
            if target.nbytes() != content.nbytes():
                target.resize_(content.nbytes())
            target.copy_(content)
        return None

    return wrapper


def _materialize_storage(storage: torch.UntypedStorage, for_write: bool = False) -> None:
    if storage.device.type == "lazy":
        _C._lazy._materialize_storage(storage, for_write)
