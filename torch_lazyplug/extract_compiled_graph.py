"""Turns a traced module into the compiled graph that the lazy device makes of it."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_flatten, tree_unflatten

from torch_lazyplug import _C, computation, config, metrics, sync
from torch_lazyplug.lazy.devices import current_device

__all__ = ["extract_compiled_graph"]

_SEED = -2  # stands for the tensor id of a random op's seed

# Nothing is cut, and nothing runs at once, while a model is recorded: it must become one graph.
_UNCUT: dict[str, bool | int | str] = {
    "max_size_variants": 0,
    "launch_blocking": False,
    "max_pending_bytes": 2**62,
    "max_pending_nodes": 2**62,
    "min_cut_nodes": 2**62,
    "chunk_nodes": 2**62,
    "run_at_once": "never",
}


def extract_compiled_graph(model: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., list[Any]]:
    """Compiles ``model`` for inputs like ``example_inputs``, and returns a function that runs the compiled graph.

    The function takes tensors of the same shapes and dtypes, reads and writes them and the model's parameters and
    buffers as the model does, and returns a list of results on the device of the example inputs. Results have no
    gradients. It is for the caller to know that the model, called again, would do the same again.

    Raises ``RuntimeError`` if an op of the model runs on the CPU, or if the model looks at the values of tensors.
    """
    return _CompiledModel(model, example_inputs)


class _CompiledModel:
    def __init__(self, model: fx.GraphModule, example_inputs: Sequence[Any]) -> None:
        tensors = [arg for arg in example_inputs if isinstance(arg, torch.Tensor)]
        self.device = tensors[0].device if tensors else torch.device("cpu")
        lazy = self.device if self.device.type == "lazy" else torch.device("lazy", current_device())
        self.lazy_index = lazy.index or 0
        self.num_args = len(example_inputs)

        # Copies: recording must not write what belongs to the caller.
        args = [arg.detach().to(lazy, copy=True) if isinstance(arg, torch.Tensor) else arg for arg in example_inputs]
        lazy_model = copy.deepcopy(model).to(lazy)
        _make_tensors_on(lazy_model, lazy)
        results = _record(lazy_model, args, lazy)
        self.state = _state_of(model)
        self._find_outputs(args, _state_of(lazy_model), results)
        _check_no_sharing(example_inputs, self.written_args)
        self._compile(args, _state_of(lazy_model))

    def _find_outputs(self, args: list[Any], lazy_state: list[torch.Tensor], results: Any) -> None:
        # Arguments and state belong to the outputs, written or not: they tell how the graph's inputs lie in memory.
        self.outputs: list[torch.Tensor] = []
        places: dict[int, int] = {}

        def place(tensor: torch.Tensor) -> int:
            if id(tensor) not in places:
                places[id(tensor)] = len(self.outputs)
                self.outputs.append(tensor)
            return places[id(tensor)]

        arg_places = {place(arg): i for i, arg in enumerate(args) if _is_lazy(arg)}
        state_places = {place(tensor): i for i, tensor in enumerate(lazy_state)}
        self.written_args = [(i, output) for output, i in arg_places.items() if _is_written(args[i])]
        self.written_state = [(i, output) for output, i in state_places.items() if _is_written(lazy_state[i])]
        leaves, self.structure = tree_flatten(results)
        self.results: list[tuple[str, Any]] = []
        for leaf in leaves:
            if not _is_lazy(leaf):
                self.results.append(("constant", leaf))
            elif place(leaf) in arg_places:
                self.results.append(("argument", arg_places[place(leaf)]))
            elif place(leaf) in state_places:
                self.results.append(("state", state_places[place(leaf)]))
            else:
                self.results.append(("output", place(leaf)))

    def _compile(self, args: list[Any], lazy_state: list[torch.Tensor]) -> None:
        arg_of = {sync.get_tensor_id(arg): i for i, arg in enumerate(args) if _is_lazy(arg)}
        state_of = {sync.get_tensor_id(lazy): tensor for tensor, lazy in zip(self.state, lazy_state, strict=True)}
        ids, values = computation.get_tensors_ts_device_data_node(self.outputs)
        self.arg_of_input = [arg_of.get(tensor_id) for tensor_id in ids]
        self.seeds = [i for i, tensor_id in enumerate(ids) if tensor_id == _SEED]
        self.inputs = [state_of.get(tensor_id, value) for tensor_id, value in zip(ids, values, strict=True)]
        # Held, so that it runs even if the cache forgets it.
        self.graph = _C._lazy_ts_backend._get_cached_graph(computation.get_graph_hash(self.outputs))
        self.outputs = []

    def __call__(self, *args: Any) -> list[Any]:
        if len(args) != self.num_args:
            raise TypeError(f"the compiled graph takes {self.num_args} arguments, got {len(args)}")
        outputs = self.graph.run(self._inputs(args))
        with torch.no_grad():
            for i, output in self.written_args:
                args[i].copy_(outputs[output])
            for i, output in self.written_state:
                self.state[i].copy_(outputs[output])
        results = [self._result(outputs, args, result) for result in self.results]
        return list(tree_unflatten(results, self.structure))

    def _inputs(self, args: Sequence[Any]) -> list[Any]:
        inputs = list(self.inputs)
        for i, arg in enumerate(self.arg_of_input):
            if arg is not None:
                inputs[i] = _without_gradient(args[arg])
        for i in self.seeds:
            inputs[i] = _C._lazy_ts_backend._next_seed(self.lazy_index)
        return inputs

    def _result(self, outputs: list[torch.Tensor], args: Sequence[Any], result: tuple[str, Any]) -> Any:
        kind, which = result
        if kind == "output":
            return outputs[which].to(self.device)
        return {"constant": lambda: which, "argument": lambda: args[which], "state": lambda: self.state[which]}[kind]()


def _record(model: fx.GraphModule, args: list[Any], device: torch.device) -> Any:
    """Records a call of the model from an empty trace, as one graph."""
    with config.changed(_UNCUT):
        sync.mark_step(str(device), wait=True)
        fallbacks, cuts = _fallbacks(), metrics.counter_value("TraceCut")
        with device:
            results = model(*args)
        new = {name: count - fallbacks.get(name, 0) for name, count in _fallbacks().items()}
        listed = ",".join(f"{name}={count}" for name, count in new.items() if count)
        if listed:
            raise RuntimeError(f"Fail to extract the compiled graph because of fallback: {listed}")
        if metrics.counter_value("TraceCut") != cuts:
            raise RuntimeError("Fail to extract the compiled graph because the model looks at the values of tensors")
    return results if isinstance(results, (tuple, list)) else (results,)


def _fallbacks() -> dict[str, int]:
    return {name: metrics.counter_value(name) or 0 for name in metrics.executed_fallback_ops()}


def _make_tensors_on(model: fx.GraphModule, device: torch.device) -> None:
    """Replaces the devices that the model names; factories that name none follow the default device."""

    def moved(value: Any, is_device: bool) -> Any:
        is_device = isinstance(value, torch.device) or (is_device and isinstance(value, str))
        return device if is_device else value

    for node in model.graph.nodes:
        node.args = tuple(moved(arg, False) for arg in node.args)
        node.kwargs = {name: moved(value, name == "device") for name, value in node.kwargs.items()}
    model.recompile()


def _state_of(model: torch.nn.Module) -> list[torch.Tensor]:
    parameters = model.named_parameters(remove_duplicate=False)
    buffers = model.named_buffers(remove_duplicate=False)
    return [tensor for _, tensor in (*parameters, *buffers)]


def _is_lazy(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "lazy"


def _is_written(value: Any) -> bool:
    return _is_lazy(value) and _C._lazy._is_pending(value)


def _without_gradient(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.requires_grad and torch.is_grad_enabled():
        raise RuntimeError("a compiled graph has no backward: call it under torch.no_grad(), or detach its arguments")
    return tensor


def _check_no_sharing(args: Sequence[Any], written: Sequence[tuple[int, int]]) -> None:
    storages = [arg.untyped_storage()._cdata if isinstance(arg, torch.Tensor) else None for arg in args]
    for i, _ in written:
        if storages.count(storages[i]) > 1:
            raise RuntimeError(f"the model writes argument {i}, which shares its memory with another one")
