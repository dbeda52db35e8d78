"""``transformers.TrainingArguments(bf16=True)``.

transformers asks a fixed list of accelerators whether they have bfloat16, and refuses it if none of them is there. This
device has what the CPU has, where bfloat16 is allowed.
"""

import sys
from types import ModuleType

import torch

from torch_lazyplug._wrapping import Function, wrap_attribute
from torch_lazyplug.import_hooks import after_import

_FUNCTION = "is_torch_bf16_gpu_available"


def install() -> None:
    """Wraps the question as soon as transformers is imported; does nothing if that has been done."""
    after_import("transformers.utils.import_utils", _wrap)


def _wrap(module: ModuleType) -> None:
    # The others have a copy of it, if they were imported first.
    for copy in (module, sys.modules.get("transformers.utils"), sys.modules.get("transformers.training_args")):
        if hasattr(copy, _FUNCTION):
            wrap_attribute(copy, _FUNCTION, _or_on_ours)


def _or_on_ours(is_available: Function) -> Function:
    def wrapper() -> bool:
        accelerator = torch.accelerator.current_accelerator()
        return (accelerator is not None and accelerator.type == "lazy") or is_available()

    return wrapper
