"""Sending lazy tensors to other processes with ``torch.multiprocessing``.

A storage arrives as a copy of its contents, carried by CPU shared memory. It cannot be shared: what an op writes need
not be the memory that it read. Tensors that share a storage, and are sent together, still share one on arrival.

Contents that could not be computed arrive as such: whoever uses them there gets the error. An error while a result is
packed would be lost with it, and who waits for it would wait for ever.
"""

from collections.abc import Callable
from multiprocessing import reduction
from multiprocessing.context import get_spawning_popen
from typing import Any

import torch

from torch_lazyplug import _C
from torch_lazyplug._wrapping import wrap_once

# What pickle calls in the other process, and with what.
Reduction = tuple[Callable[..., Any], tuple[Any, ...]]


def install() -> None:
    """Wraps PyTorch's reducer of storages; does nothing if that has been done."""
    reducers = reduction.ForkingPickler._extra_reducers  # type: ignore[attr-defined]
    reduction.register(torch.UntypedStorage, wrap_once(reducers[torch.UntypedStorage], _storage_reducer))


def _storage_reducer(original: Callable[[Any], Reduction]) -> Callable[[Any], Reduction]:
    def reduce_storage(storage: torch.UntypedStorage) -> Reduction:
        if storage.device.type != "lazy":
            return original(storage)
        try:
            contents = storage.cpu()
        except Exception as error:
            return _rebuild_failed, (storage.nbytes(), storage.device.index, type(error).__name__, str(error))
        contents.share_memory_()
        _keep_while_spawning(contents)
        return _rebuild_storage, (contents, storage.device.index)

    return reduce_storage


def _keep_while_spawning(contents: torch.UntypedStorage) -> None:
    # The arguments of a process that is being started name a file descriptor, which is only passed on later.
    spawning = get_spawning_popen()
    if spawning is not None:
        vars(spawning).setdefault("_lazyplug_contents", []).append(contents)


def _rebuild_failed(num_bytes: int, index: int, error: str, message: str) -> torch.UntypedStorage:
    storage = torch.UntypedStorage(num_bytes, device=torch.device("lazy", index))
    _C._lazy._fail_storage(storage, error, message)
    return storage


def _rebuild_storage(contents: torch.UntypedStorage, index: int) -> torch.UntypedStorage:
    return contents.to(device=torch.device("lazy", index))
