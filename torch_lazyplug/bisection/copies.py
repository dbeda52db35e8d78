"""Copies of a program's arguments on another device, which share memory with each other as the originals do."""

import copy
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

__all__ = ["Copies"]


class Copies:
    """Copies on one device. Ask one object for all that belongs together: what occurs twice is copied once."""

    def __init__(self, device: torch.device, with_autograd: bool = True) -> None:
        """``with_autograd``: copies are leaves that require gradients if the originals do, and have their gradients."""
        self._device = device
        self._with_autograd = with_autograd
        self._copies: dict[int, Any] = {}
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._originals: list[Any] = []  # kept alive, so that no id is used again

    def of(self, tree: Any) -> Any:
        """Copies every tensor, storage and module in nested tuples, lists and dicts; hands on everything else."""
        return tree_map(self._of_leaf, tree)

    def _of_leaf(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return self.tensor(leaf)
        if isinstance(leaf, torch.nn.Module):
            return self._module(leaf)
        if isinstance(leaf, torch.UntypedStorage):
            return self._storage(leaf)
        if isinstance(leaf, torch.optim.Optimizer):
            raise TypeError("an optimizer cannot be copied to another device: make it inside of the function")
        return leaf

    def tensor(self, original: torch.Tensor) -> torch.Tensor:
        """A copy with the same strides and offset, whose storage is shared with copies of tensors that share it."""
        if id(original) not in self._copies:
            self._originals.append(original)
            self._copies[id(original)] = self._with_gradient(original, self._contents(original))
        return self._copies[id(original)]

    def _contents(self, original: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            if original.layout is not torch.strided or original.is_nested or original.is_quantized:
                return original.detach().clone().to(self._device)
            result = torch.empty(0, dtype=original.dtype, device=self._device)
            storage = self._storage(original.untyped_storage())
            result.set_(storage, original.storage_offset(), original.size(), original.stride())
            result = result.conj() if original.is_conj() else result
            return torch._neg_view(result) if original.is_neg() else result

    def _with_gradient(self, original: torch.Tensor, contents: torch.Tensor) -> torch.Tensor:
        if not self._with_autograd:
            return contents
        if isinstance(original, torch.nn.Parameter):
            contents = torch.nn.Parameter(contents, requires_grad=original.requires_grad)
        else:
            contents.requires_grad_(original.requires_grad)
        if original.is_leaf and original.grad is not None:
            contents.grad = self.tensor(original.grad)
        return contents

    def _storage(self, original: torch.UntypedStorage) -> torch.UntypedStorage:
        key = original._cdata
        if key not in self._storages:
            self._originals.append(original)
            memory = torch.empty(0, dtype=torch.uint8, device=original.device).set_(original)
            self._storages[key] = memory.to(self._device, copy=True).untyped_storage()
        return self._storages[key]

    def _module(self, original: torch.nn.Module) -> torch.nn.Module:
        """A deep copy, for which every tensor that the modules hold has been copied before."""
        for module in original.modules():
            for leaf in tree_leaves(vars(module)):
                if isinstance(leaf, torch.Tensor):
                    self.tensor(leaf)
        self._originals.append(original)
        return copy.deepcopy(original, self._copies)
