import torch
import torch.nn.functional as F  # noqa: F401  (programs use it)


def second(device):
    """Another device of the same kind, if there is one."""
    return f"{device}:1" if device == "lazy" and torch.lazy.device_count() > 1 else device


def mark_step(device, wait=False):
    """Cuts what the device is recording."""
    if device.startswith("lazy"):
        import torch_lazyplug

        torch_lazyplug.mark_step(wait=wait)


def run_at_once(device, value):
    """Changes in the middle of a program whether calls are recorded, beside what is pending."""
    if device.startswith("lazy"):
        import torch_lazyplug

        torch_lazyplug.config.set("run_at_once", value)
