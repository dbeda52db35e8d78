"""Steps of Adam, AdamW and SGD, recorded as one node each.

Of a step, PyTorch's Python code makes a dozen ``_foreach_`` calls with all parameters, and computes some numbers for
each parameter besides; for small networks, that is most of what an iteration costs. What this device runs of it is one
kernel anyway. So ``torch.optim`` asks ``backend/native/optimizers.h`` first, which does the same with the same bits, or
says that it cannot: other variants, dtypes and layouts, or somebody who watches the calls. Then PyTorch's code runs.
"""

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.optim import SGD, Adam, AdamW
from torch.utils._device import DeviceContext

from torch_lazyplug import _C
from torch_lazyplug._wrapping import Function, wrap_attribute

_Tensors = list[torch.Tensor]


def install() -> None:
    """Wraps what these optimizers call; does nothing if that has been done."""
    adam, sgd = (importlib.import_module(f"torch.optim.{name}") for name in ("adam", "sgd"))
    for owner, name, wrap in (
        (Adam, "_init_group", _read_adam_group),
        (adam, "adam", _step_of_adam),
        (SGD, "_init_group", _read_sgd_group),
        (sgd, "sgd", _step_of_sgd),
    ):
        wrap_attribute(owner, name, _unless_compiling(wrap))


def _unless_compiling(wrap: Callable[[Function], Function]) -> Callable[[Function], Function]:
    """``torch.compile`` takes PyTorch's own function apart."""

    def wrap_both(function: Function) -> Function:
        own = wrap(function)

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return (function if torch.compiler.is_compiling() else own)(*args, **kwargs)

        return wrapper

    return wrap_both


def _is_watched() -> bool:
    """Whether somebody is to see each call. ``torch.device("lazy")`` as a context does not care for these."""
    depth = torch._C._len_torch_function_stack()
    modes = [torch._C._get_function_stack_at(i) for i in range(depth)]
    return torch._C._len_torch_dispatch_stack() != 0 or not all(isinstance(mode, DeviceContext) for mode in modes)


def _are_numbers(values: Sequence[Any]) -> bool:
    """No tensors, which would have to be read."""
    return all(type(value) in (float, int) for value in values)


def _read_adam_group(init_group: Function) -> Function:
    def wrapper(
        self: Adam,
        group: dict[str, Any],
        params: _Tensors,
        grads: _Tensors,
        exp_avgs: _Tensors,
        exp_avg_sqs: _Tensors,
        max_exp_avg_sqs: _Tensors,
        steps: _Tensors,
    ) -> Any:
        is_usual = type(self) in (Adam, AdamW) and not group["amsgrad"] and not group["differentiable"]
        if is_usual and type(group["lr"]) in (float, int):
            names, kept = ("exp_avg", "exp_avg_sq", "step"), (exp_avgs, exp_avg_sqs, steps)
            if _C._optimizers.read_group(group["params"], self.state, names, params, grads, kept):
                return False  # nothing is complex
        return init_group(self, group, params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps)

    return wrapper


def _are_off(options: dict[str, Any], names: Sequence[str]) -> bool:
    return all(options.get(name) is None or options.get(name) is False for name in names)


def _is_usual(options: dict[str, Any], others: Sequence[str], numbers: Sequence[Any]) -> bool:
    """Whether none of these other variants is asked for, and nobody watches the calls of the usual one."""
    return (
        options.get("foreach") is not False
        and _are_off(options, ("fused", "grad_scale", "found_inf", *others))
        and _are_numbers(numbers)
        and not _is_watched()
    )


def _step_of_adam(adam: Function) -> Function:
    def wrapper(*lists: _Tensors, **options: Any) -> None:
        numbers = [options.get(name) for name in ("lr", "beta1", "beta2", "weight_decay", "eps")]
        if len(lists) == 6 and _is_usual(options, ("capturable", "differentiable", "has_complex", "amsgrad"), numbers):
            params, grads, exp_avgs, exp_avg_sqs, _, steps = lists
            flags = options["maximize"], options.get("decoupled_weight_decay", False)
            arguments: tuple[Any, ...] = (params, grads, exp_avgs, exp_avg_sqs, steps, *numbers, *flags)
            if _C._optimizers.adam(*arguments):
                return
        adam(*lists, **options)

    return wrapper


def _read_sgd_group(init_group: Function) -> Function:
    def wrapper(self: SGD, group: dict[str, Any], params: _Tensors, grads: _Tensors, buffers: Any) -> Any:
        if type(self) is SGD and not group["fused"]:
            names, kept = (("momentum_buffer",), (buffers,)) if group["momentum"] != 0 else ((), ())
            if _C._optimizers.read_group(group["params"], self.state, names, params, grads, kept):
                return False  # nothing is sparse
        return init_group(self, group, params, grads, buffers)

    return wrapper


def _step_of_sgd(sgd: Function) -> Function:
    def wrapper(*lists: Any, **options: Any) -> None:
        numbers = [options.get(name) for name in ("lr", "momentum", "dampening", "weight_decay")]
        if len(lists) == 3 and _is_usual(options, ("nesterov", "has_sparse_grad"), numbers):
            params, grads, buffers = lists
            has_buffers = options["momentum"] != 0
            is_first = has_buffers and any(buffer is None for buffer in buffers)
            arguments: tuple[Any, ...] = (params, grads, buffers if has_buffers else [], *numbers, options["maximize"])
            if not is_first and _C._optimizers.sgd(*arguments):
                return
        sgd(*lists, **options)

    return wrapper
