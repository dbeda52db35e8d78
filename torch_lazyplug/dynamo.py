"""``torch.compile`` for the lazy device.

Dynamo learns which streams, events and queries are the device's, so that they cause no graph breaks. Inductor has no
code generator for the device, so a graph with lazy tensors that is meant for it is recorded and compiled by the device
itself, with a warning; ``backend="lazy"`` asks for just that. Neither is imported for this: the registration waits
until somebody else does that.
"""

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_iter

from torch_lazyplug import lazy
from torch_lazyplug._wrapping import Function, wrap_attribute
from torch_lazyplug.import_hooks import after_import
from torch_lazyplug.lazy._utils import DeviceLike

_NO_INDUCTOR = (
    "torch.compile: Inductor generates no code for the lazy device, so the captured graph runs as with "
    'backend="lazy": the device records, compiles and caches it like any other work. '
    'Pass backend="lazy" to silence this warning.'
)


def install() -> None:
    """Registers the device with Dynamo and Inductor as soon as they are imported."""
    after_import("torch._dynamo", _register_with_dynamo)
    after_import(
        "torch._dynamo.backends.common", lambda common: wrap_attribute(common, "aot_module_simplified", _naming_devices)
    )
    after_import(
        "torch._inductor.compile_fx", lambda inductor: wrap_attribute(inductor, "compile_fx", _diverted_from_inductor)
    )


def _register_with_dynamo(dynamo: Any) -> None:
    from torch._dynamo.backends.registry import register_backend
    from torch._dynamo.decorators import substitute_in_graph
    from torch._dynamo.device_interface import register_interface_for_device
    from torch._dynamo.variables.ctx_manager import register_device_context_manager
    from torch._functorch._aot_autograd.utils import register_graphsafe_rng_device_type

    interface = _device_interface()
    for name in ("lazy", *(f"lazy:{index}" for index in range(lazy.device_count()))):
        register_interface_for_device(name, interface)
    register_graphsafe_rng_device_type("lazy")
    register_backend(_compile_for_lazy, "lazy")
    register_device_context_manager(lazy.device, _device_variable())
    # The handler of the interface's `stream` sees only calls that may stand in a graph.
    dynamo.allow_in_graph(lazy.stream)
    for function in _CONSTANT:
        dynamo.assume_constant_result(function)
    for function, in_graph in _SUBSTITUTES.items():
        substitute_in_graph(function)(in_graph)


_CONSTANT = (lazy.device_count, lazy.get_device_name, lazy.get_device_properties, lazy.is_available)

# Functions that Dynamo cannot look into, written with those of the same meaning that it knows.


def _current_device() -> int:
    return torch.accelerator.current_device_index()


def _current_stream(device: DeviceLike = None) -> torch.Stream:
    return torch.accelerator.current_stream() if device is None else torch.accelerator.current_stream(device)


def _synchronize(device: DeviceLike = None) -> None:
    return torch.accelerator.synchronize() if device is None else torch.accelerator.synchronize(device)


_SUBSTITUTES: dict[Callable[..., Any], Callable[..., Any]] = {
    lazy.current_device: _current_device,
    lazy.current_stream: _current_stream,
    lazy.synchronize: _synchronize,
}


def _device_variable() -> type:
    from torch._dynamo.variables.ctx_manager import GenericDeviceVariable

    class LazyDeviceVariable(GenericDeviceVariable):
        """What ``torch.lazy.device`` is to Dynamo."""

        _exchange_fn = staticmethod(lazy._exchange_device)
        _maybe_exchange_fn = staticmethod(lazy._exchange_device)

        @staticmethod
        def _get_device_index_fn(device: DeviceLike, optional: bool) -> int:
            return lazy.device(device).idx

        def module_name(self) -> str:
            return "torch.lazy"

        def python_type(self) -> type:
            return lazy.device

    return LazyDeviceVariable


def _naming_devices(compile_for_others: Function) -> Function:
    """AOTAutograd drops the calls that make a device current; so the ops between them are told which it is."""

    def aot_module_simplified(mod: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(mod, torch.fx.GraphModule):
            _name_current_devices(mod.graph)
        return compile_for_others(mod, *args, **kwargs)

    return aot_module_simplified


_EXCHANGES = (lazy._exchange_device, torch._C._accelerator_exchangeDevice, torch._C._accelerator_maybeExchangeDevice)


def _name_current_devices(graph: torch.fx.Graph) -> None:
    current: list[int] = []  # of the contexts around the node
    for node in graph.nodes:
        if node.target in _EXCHANGES and isinstance(node.args[0], torch.fx.Node):
            current.pop()
        elif node.target in _EXCHANGES:
            outer = current[-1] if current else -1
            current.append(node.args[0] if node.args[0] >= 0 else outer)
        elif current and current[-1] >= 0:
            _name_device(node, torch.device("lazy", current[-1]))


def _name_device(node: torch.fx.Node, current: torch.device) -> None:
    unnamed = torch.device("lazy")
    if node.op == "call_method" and node.target == "lazy" and len(node.args) == 1:
        node.args = (*node.args, current)
    if node.op == "call_method" and node.target == "to":
        node.args = tuple(current if arg == "lazy" else arg for arg in node.args)
    node.args = tuple(current if arg == unnamed else arg for arg in node.args)
    if node.kwargs.get("device") in ("lazy", unnamed):
        node.update_kwarg("device", current)


def _device_interface() -> type:
    from torch._dynamo.device_interface import DeviceInterface

    class LazyInterface(DeviceInterface):
        """What Dynamo asks about the lazy device."""

        device = lazy.device
        Event = lazy.Event
        Stream = lazy.Stream

        class Worker:
            """Processes that only compile; the facts are the same everywhere."""

            set_device = staticmethod(lazy.set_device)
            current_device = staticmethod(lazy.current_device)
            get_device_properties = staticmethod(lazy.get_device_properties)

        current_device = staticmethod(lazy.current_device)
        set_device = staticmethod(lazy.set_device)
        exchange_device = staticmethod(lazy._exchange_device)
        maybe_exchange_device = staticmethod(lazy._maybe_exchange_device)
        device_count = staticmethod(lazy.device_count)
        is_available = staticmethod(lazy.is_available)
        stream = staticmethod(lazy.stream)
        current_stream = staticmethod(lazy.current_stream)
        set_stream = staticmethod(lazy.set_stream)
        synchronize = staticmethod(lazy.synchronize)
        get_compute_capability = staticmethod(lazy.get_device_capability)
        is_bf16_supported = staticmethod(lazy.is_bf16_supported)

        @staticmethod
        def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
            lazy.set_stream(lazy.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type))

        @staticmethod
        def get_raw_stream(device_idx: int) -> int:
            return lazy.current_stream(device_idx).stream_id

    return LazyInterface


def _compile_for_lazy(model: Any, example_inputs: list[Any], **kwargs: Any) -> Any:
    """The backend of Dynamo called "lazy"; options for other compilers have no meaning here."""
    return torch._dynamo.lookup_backend("aot_eager")(model, example_inputs)


def _diverted_from_inductor(compile_for_others: Function) -> Function:
    def compile_fx(model_: Any, example_inputs_: list[Any], *args: Any, **kwargs: Any) -> Any:
        if not _uses_lazy_device(model_, example_inputs_):
            return compile_for_others(model_, example_inputs_, *args, **kwargs)
        _warn_without_inductor()
        return _compile_for_lazy(model_, example_inputs_)

    return compile_fx


def _uses_lazy_device(model: Any, inputs: Sequence[Any]) -> bool:
    graph = getattr(model, "graph", None)
    values = [node.meta.get("example_value") for node in graph.nodes] if graph is not None else []
    return any(isinstance(v, torch.Tensor) and v.device.type == "lazy" for v in tree_iter([list(inputs), values]))


@functools.cache
def _warn_without_inductor() -> None:
    warnings.warn(_NO_INDUCTOR, stacklevel=2)
