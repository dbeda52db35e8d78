"""``transformers.TrainingArguments(bf16=True)``.

transformers asks a fixed list of accelerators whether they have bfloat16, and refuses it if none of them is there. This
device has what the CPU has, where bfloat16 is allowed.
"""

import torch

from torch_lazyplug._wrapping import Function, wrap_copies
from torch_lazyplug.import_hooks import after_import

_MODULES = ("transformers.utils.import_utils", "transformers.utils", "transformers.training_args")


def install() -> None:
    """Wraps the question as soon as transformers is imported; does nothing if that has been done."""
    after_import(_MODULES[0], lambda _: wrap_copies(_MODULES, "is_torch_bf16_gpu_available", _or_on_ours))


def _or_on_ours(is_available: Function) -> Function:
    def wrapper() -> bool:
        accelerator = torch.accelerator.current_accelerator()
        return (accelerator is not None and accelerator.type == "lazy") or is_available()

    return wrapper
