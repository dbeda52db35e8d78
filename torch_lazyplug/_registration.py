"""Makes PyTorch know the device: its name, the module ``torch.lazy`` and methods such as ``Tensor.lazy()``."""

import atexit

import torch

from torch_lazyplug import _C, lazy


def _redirect_in_tree_functions() -> None:
    # PyTorch's test utilities call mark_step for every device of this name, which is ours now. The others would not
    # find what it looks for, or crash on our tensors.
    import torch._lazy

    from torch_lazyplug import closure, sync

    for module in (closure, sync):
        for name in set(module.__all__) & set(vars(torch._lazy)):
            setattr(torch._lazy, name, getattr(module, name))


def register_backend() -> None:
    """Registers the device with PyTorch; does nothing if that has been done."""
    if getattr(torch, "lazy", None) is lazy:
        return
    # What is pending when the interpreter exits has nobody to look at it. Registered before the step closures, and so
    # called after them: those that are left may use the device, and differentiate.
    atexit.register(_C._lazy._shut_down)
    torch.utils.rename_privateuse1_backend("lazy")
    torch._register_device_module("lazy", lazy)
    _redirect_in_tree_functions()
    torch.utils.generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_storage=True, for_packed_sequence=True
    )
