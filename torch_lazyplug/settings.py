"""Settings of PyTorch's that kernels read when they run, such as the default dtype and the number of threads.

What has been recorded is to run as if it had run at once: before such a setting changes, what is pending runs.
"""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.backends import ContextProp

from torch_lazyplug import _C
from torch_lazyplug._wrapping import Function, wrap_attribute

# Functions whose last argument is the setting's value, and what returns the present one, given the arguments before; or
# None, if nothing does.
_SETTERS: tuple[tuple[Any, str, Callable[..., Any] | None], ...] = (
    (torch, "set_flush_denormal", None),
    (torch, "set_num_threads", torch.get_num_threads),
    (torch._C, "_set_cpu_allow_fp16_reduced_precision_reduction", None),
    (torch._C, "_set_default_dtype", torch.get_default_dtype),
    (torch._C, "_set_default_tensor_type", None),
    (torch._C, "_set_deterministic_algorithms", torch._C._get_deterministic_algorithms),
    (torch._C, "_set_float32_matmul_precision", torch._C._get_float32_matmul_precision),
    (torch._C, "_set_fp32_precision_setter", torch._C._get_fp32_precision_getter),
    (torch._C, "_set_mkldnn_deterministic", torch._C._get_mkldnn_deterministic),
    (torch._C, "_set_mkldnn_enabled", torch._C._get_mkldnn_enabled),
    (torch._C, "_set_nnpack_enabled", torch._C._get_nnpack_enabled),
)

# Ops of which it depends on a setting how their results lie, or whether they refuse a call: what is known of their
# calls is forgotten.
_CONVOLUTIONS = ["aten::convolution", "aten::convolution_backward"]
_NOT_DETERMINISTIC = ["aten::max_unpool2d", "aten::max_unpool3d", "aten::put_"]
_OPS_OF_SETTERS = {
    "_set_deterministic_algorithms": _NOT_DETERMINISTIC,
    "_set_mkldnn_deterministic": _CONVOLUTIONS,
    "_set_mkldnn_enabled": _CONVOLUTIONS,
}


def install() -> None:
    """Has these functions run what is pending first; does nothing if that has been done."""
    properties = list(_properties())
    for owner, name, read in _SETTERS:
        setter = getattr(owner, name)
        wrap_attribute(owner, name, _after_what_is_pending(read, _OPS_OF_SETTERS.get(name, [])))
        for prop in properties:
            if prop.setter is setter:
                prop.setter = getattr(owner, name)


def _properties() -> Iterator[ContextProp]:
    """What is assigned to, as ``torch.backends.mkldnn.enabled`` is: each keeps a setter."""
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.backends."):
            yield from (prop for prop in vars(type(module)).values() if isinstance(prop, ContextProp))


def _after_what_is_pending(read: Callable[..., Any] | None, ops: list[str]) -> Callable[[Function], Function]:
    def wrap(set_value: Function) -> Function:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if kwargs or not args or read is None or read(*args[:-1]) != args[-1]:
                _C._ops.finish_before_setting()
                _C._ops.note_new_kernels(ops)
            return set_value(*args, **kwargs)

        return wrapper

    return wrap
