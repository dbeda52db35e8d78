"""Steps of most of ``torch.optim``'s optimizers, recorded as one node each.

Of a step, PyTorch's Python code makes a dozen ``_foreach_`` calls with all parameters, and computes some numbers for
each parameter besides; for small networks, that is most of what an iteration costs. What this device runs of it is one
kernel anyway. So ``torch.optim`` asks ``backend/native/optimizers.h`` first, which does the same with the same bits, or
says that it cannot: other variants, dtypes and layouts, or somebody who watches the calls. Then PyTorch's code runs.
"""

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, NAdam, Optimizer, RAdam, RMSprop
from torch.utils._device import DeviceContext

from torch_lazyplug import _C
from torch_lazyplug._wrapping import Function, wrap_attribute

_Tensors = list[torch.Tensor]


@dataclasses.dataclass(frozen=True)
class _Rule:
    """What is known of an optimizer, whose function is called as its module: ``torch.optim.adam.adam``."""

    owner: type[Optimizer]  # of ``_init_group``
    # What it keeps of a parameter, in the order in which ``_init_group`` collects it: the key, and the option without
    # which that is not kept.
    kept: tuple[tuple[str, str | None], ...]
    # What ``_init_group`` returns: that nothing is complex, or sparse.
    nothing: bool | tuple[bool, bool] = False
    # Subclasses that do nothing else.
    others: tuple[type[Optimizer], ...] = ()

    @property
    def name(self) -> str:
        return self.owner.__name__.lower()


_AVERAGES = (("exp_avg", None), ("exp_avg_sq", None))
_RULES = (
    _Rule(Adadelta, (("square_avg", None), ("acc_delta", None), ("step", None))),
    _Rule(Adagrad, (("sum", None), ("step", None)), nothing=(False, False)),
    _Rule(Adam, (*_AVERAGES, ("max_exp_avg_sq", "amsgrad"), ("step", None)), others=(AdamW,)),
    _Rule(Adamax, (("exp_avg", None), ("exp_inf", None), ("step", None))),
    _Rule(NAdam, (*_AVERAGES, ("mu_product", None), ("step", None))),
    _Rule(RAdam, (*_AVERAGES, ("step", None))),
    _Rule(
        RMSprop,
        (("square_avg", None), ("momentum_buffer", "momentum"), ("grad_avg", "centered"), ("step", None)),
    ),
    _Rule(SGD, (("momentum_buffer", "momentum"),)),
)


def install() -> None:
    """Wraps what these optimizers call; does nothing if that has been done."""
    for rule in _RULES:
        wrap_attribute(rule.owner, "_init_group", _unless_compiling(_reading(rule)))
        module = importlib.import_module(f"torch.optim.{rule.name}")
        wrap_attribute(module, rule.name, _unless_compiling(_stepping(rule)))


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


def _reading(rule: _Rule) -> Callable[[Function], Function]:
    """An ``_init_group`` that collects what has been kept, unless PyTorch's must make or refuse something."""
    kinds = (rule.owner, *rule.others)
    names = [name for name, _ in rule.kept]
    options = [option for _, option in rule.kept]

    def wrap(init_group: Function) -> Function:
        def wrapper(self: Optimizer, group: dict[str, Any], params: _Tensors, grads: _Tensors, *lists: Any) -> Any:
            is_usual = type(self) in kinds and not group.get("differentiable") and not group.get("fused")
            is_usual = is_usual and type(group["lr"]) in (float, int) and len(lists) == len(rule.kept)
            if is_usual and not _is_watched():
                places = [i for i, option in enumerate(options) if option is None or group[option]]
                keys, kept = [names[i] for i in places], [lists[i] for i in places]
                if _C._optimizers.read_group(group["params"], self.state, keys, params, grads, kept):
                    return rule.nothing
            return init_group(self, group, params, grads, *lists)

        return wrapper

    return wrap


def _stepping(rule: _Rule) -> Callable[[Function], Function]:
    """The function that makes a step."""
    name = rule.name

    def wrap(function: Function) -> Function:
        def wrapper(*lists: Any, **options: Any) -> None:
            if not _is_watched() and _C._optimizers.step(name, lists, options):
                return
            function(*lists, **options)

        return wrapper

    return wrap
