"""Recorded graphs as files: what a file holds, how it is written and read."""

import importlib.metadata
import os
import pickle
import re
import statistics
import time
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from torch_lazyplug import _C, computation, doctor
from torch_lazyplug.bisection.copies import Copies

__all__ = ["SavedGraph", "load_graph", "save_graph"]

_FORMAT = "torch_lazyplug graph 1"
_CPU = torch.device("cpu")


def save_graph(path: str | os.PathLike[str], tensors: Sequence[torch.Tensor]) -> None:
    """Writes the graph that computes lazy tensors to a file, with everything that it starts from.

    That is data, with dtypes, strides, offsets and the whole of the storages, numbers, and the seeds of random ops: the
    file computes what the tensors will hold, to the bit on the same processor with as many threads. What has run
    already, ops that fell back to the CPU among it, is data. Runs none of what is pending, which stays so. With the
    setting ``debug``, the user's lines are saved, too. While this runs, no other thread should use the device.

    Raises ``TypeError`` for what is no tensor, ``ValueError`` if there are none, ``RuntimeError`` for tensors that are
    not lazy or not strided, or on different devices, the error of a tensor that has failed, and ``OSError``.
    """
    if isinstance(tensors, torch.Tensor):
        raise TypeError("expected a sequence of tensors, got a tensor")
    if not tensors:
        raise ValueError("expected at least one tensor")
    recorded = _C._lazy._get_tensors_text(list(tensors))
    graph = _C._lazy._get_tensors_backend(list(tensors))
    leaves = _Leaves(graph, recorded)
    _, inputs = computation.get_tensors_ts_device_data_node(tensors)
    content = {
        "format": _FORMAT,
        "torch": str(torch.__version__),
        "torch_lazyplug": _plugin_version(),
        "text": _with_wrapped_numbers(graph, leaves.numbers),
        "recorded": recorded,
        "inputs": leaves.arrange(inputs),
    }
    with open(path, "wb") as file:  # what is pending stays so: the content is there
        torch.save(content, file)


def _plugin_version() -> str:
    try:
        return importlib.metadata.version(doctor.DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


_LEAF = re.compile(r"= device_data\((\d+)\)  # \w+\[[^]]*\] strides=\[[^]]*\](?: offset=(\d+))?( number)?")


class _Leaves:
    """How a graph reads what it starts from: its text has dtypes, sizes and strides, the recorded graph the rest."""

    def __init__(self, graph: str, recorded: str) -> None:
        self._types = [value.type() for value in torch._C.parse_ir(graph).inputs()]
        found = [(int(i), int(offset or 0), number) for i, offset, number in _LEAF.findall(recorded)]
        self._offsets = {i: offset for i, offset, _ in found}
        # Numbers in the guise of tensors, which take the dtype of what they meet.
        self.numbers = [i for i, _, number in found if number]

    def arrange(self, inputs: Sequence[Any]) -> list[Any]:
        """The inputs, with the graph's view of each storage: they come as the tensors lie that the user gave."""
        return [self._view(i, value) if isinstance(value, torch.Tensor) else value for i, value in enumerate(inputs)]

    def _view(self, i: int, value: torch.Tensor) -> torch.Tensor:
        leaf: Any = self._types[i]
        whole = torch.empty(0, dtype=leaf.dtype())
        return whole.set_(value.untyped_storage(), self._offsets[i], leaf.sizes(), leaf.strides())


def _with_wrapped_numbers(graph: str, numbers: Sequence[int]) -> str:
    """The graph for inputs that do not say of themselves that they are numbers: files cannot keep that."""
    head, body = graph.split("):\n", 1)
    views = ""
    for i in numbers:
        dtype = re.findall(rf"%{i} : (\w+)\(", head)[0]
        body = re.sub(rf"%{i}(?![\w.])", f"%number.{i}", body)
        views += _NUMBER.format(i=i, dtype=dtype, code=_SCALAR_TYPES[dtype])
    return f"{head}):\n{_CONSTANTS + views if numbers else ''}{body}"


# Of the dtypes that numbers have, as TorchScript counts them.
_SCALAR_TYPES = {"Long": 4, "Float": 6, "Double": 7, "ComplexFloat": 9, "ComplexDouble": 10, "Bool": 11}

_CONSTANTS = """\
  %none : int[] = prim::Constant[value=annotate(List[int], [])]()
  %zero : int = prim::Constant[value=0]()
  %no : bool = prim::Constant[value=0]()
  %yes : bool = prim::Constant[value=1]()
"""

_NUMBER = """\
  %dtype.{i} : int = prim::Constant[value={code}]()
  %number.{i} : {dtype}() = lazyplug::strided_view(\
%{i}, %none, %none, %dtype.{i}, %none, %none, %zero, %no, %no, %yes)
"""


class SavedGraph:
    """A graph from a file, which runs on PyTorch's own interpreter, on the CPU.

    ``text`` is the TorchScript, ``inputs`` are its CPU tensors and numbers, ``recorded`` is the graph before it was
    lowered, with the user's lines if these were kept. ``torch_version`` and ``plugin_version`` wrote it.
    """

    def __init__(self, content: dict[str, Any]) -> None:
        self.text: str = content["text"]
        self.recorded: str = content["recorded"]
        self.inputs: list[Any] = content["inputs"]
        self.torch_version: str = content["torch"]
        self.plugin_version: str = content["torch_lazyplug"]
        graph = torch._C.parse_ir(self.text)
        self._returns_several = len(list(graph.outputs())) > 1
        if self._returns_several:
            graph.makeMultiOutputIntoTuple()
        self._function = torch._C._create_function_from_graph("graph", graph)

    def run(self) -> list[torch.Tensor]:
        """What was saved, computed: one CPU tensor for each, which share memory as those do. Raises errors of ops."""
        return list(self._call(self._fresh_inputs()))

    def time(self, repeat: int = 20) -> float:
        """The median of so many runs after a first one, in seconds. Copies of the inputs are not counted."""
        if repeat < 1:
            raise ValueError(f"expected at least one run, got {repeat}")
        self._call(self._fresh_inputs())
        return statistics.median(self._time_once() for _ in range(repeat))

    def _time_once(self) -> float:
        inputs = self._fresh_inputs()
        start = time.perf_counter()
        self._call(inputs)
        return time.perf_counter() - start

    def _fresh_inputs(self) -> list[Any]:
        # The graph writes what it is given.
        return Copies(_CPU, with_autograd=False).of(self.inputs)

    def _call(self, inputs: list[Any]) -> Sequence[torch.Tensor]:
        # As it stands: PyTorch's optimizers know nothing of what the nodes' attributes say.
        with torch.no_grad(), torch.jit.optimized_execution(False):
            results = self._function(*inputs)
        return results if self._returns_several else [results]


def load_graph(path: str | os.PathLike[str]) -> SavedGraph:
    """Reads a file of ``save_graph``.

    Warns if another PyTorch wrote it. Raises ``ValueError`` if it is not such a file, and ``OSError``.
    """
    try:
        content = torch.load(path, weights_only=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise ValueError(f"{os.fspath(path)} is not a saved graph") from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise ValueError(f"{os.fspath(path)} is not a saved graph of this version ({_FORMAT})")
    if content["torch"] != torch.__version__:
        warnings.warn(f"the graph was saved by PyTorch {content['torch']}, this is {torch.__version__}", stacklevel=2)
    return SavedGraph(content)
