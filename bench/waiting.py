"""Waiting for a device, whichever it is."""

import torch


def wait_for_torch_lazy():
    torch._lazy.mark_step()
    torch._lazy.wait_device_ops()


def waiter(device):
    """Returns when what was asked for is computed. PyTorch's own lazy device has no module `torch.lazy`."""
    if device == "cpu":
        return lambda: None
    return torch.lazy.synchronize if hasattr(torch, "lazy") else wait_for_torch_lazy
