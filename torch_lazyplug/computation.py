"""Compiled graphs as functions of their inputs."""

from collections.abc import Sequence
from typing import Any

import torch

from torch_lazyplug import _C

__all__ = ["get_graph_hash", "get_tensors_ts_device_data_node", "run_cached_graph"]


def get_tensors_ts_device_data_node(tensors: Sequence[torch.Tensor]) -> tuple[list[int], list[Any]]:
    """What the graph that computes the tensors starts from: tensor ids, and the tensors or numbers themselves.

    Each storage is listed once, in the order in which ``run_cached_graph`` takes the inputs. Ids are those of
    ``get_tensor_id``; numbers, among them where views of parts of storages begin, and copies of CPU scalars have -1,
    and seeds of random ops -2. The tensors are on the CPU and share the memory of the lazy ones.
    """
    return _C._lazy_ts_backend._get_tensors_ts_device_data_node(list(tensors))


def get_graph_hash(tensors: Sequence[torch.Tensor]) -> bytes:
    """Identifies the graph that computes the tensors, whatever its data; compiles it unless it is cached."""
    return _C._lazy._get_graph_hash(list(tensors))


def run_cached_graph(hash_str: bytes, graph_inputs: Sequence[Any]) -> list[torch.Tensor]:
    """Runs a compiled graph on other inputs; returns CPU tensors, one for each tensor of ``get_graph_hash``.

    A tensor that was given twice is returned once. Raises ``RuntimeError`` if the graph has left the cache, and
    ``IndexError`` if a view would begin where it leaves its storage.
    """
    return _C._lazy_ts_backend._run_cached_graph(hash_str, graph_inputs)
