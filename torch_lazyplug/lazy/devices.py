"""Which devices there are, which one is current, and what they can do."""

import os
from typing import Any, NamedTuple

import torch

from torch_lazyplug import _C
from torch_lazyplug.lazy._state import _lazy_init
from torch_lazyplug.lazy._utils import DeviceLike, _get_device_index

__all__ = [
    "can_device_access_peer",
    "current_device",
    "device",
    "device_count",
    "device_of",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_tf32_supported",
    "set_device",
    "synchronize",
]


_CURRENT = -1  # the index that means the current device


class LazyDeviceProperties(NamedTuple):
    """Facts about a device. All lazy devices are views of the host, so they share its memory and processors."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int


def is_available() -> bool:
    """Whether there is a device to use. Never raises and initialises nothing."""
    return _C._device.device_count_or_zero() > 0


def device_count() -> int:
    """How many devices there are: ``LAZYPLUG_DEVICE_COUNT``, 1 by default. Initialises nothing."""
    return _C._device.device_count()


def current_device() -> int:
    """The index of this thread's current device."""
    _lazy_init()
    return _C._device.current_device()


def set_device(device: DeviceLike) -> None:
    """Makes a device current in this thread. A negative index changes nothing."""
    index = _get_device_index(device)
    if index >= 0:
        _lazy_init()
        _C._device.set_device(index)


def _exchange_device(device: int) -> int:
    """Makes a device current in this thread, and returns the previous one. A negative index changes nothing."""
    _lazy_init()
    return _C._device.maybe_exchange_device(device)


_maybe_exchange_device = _exchange_device


class device:  # noqa: N801
    """Context manager that makes a device current. ``None`` and negative indices change nothing."""

    def __init__(self, device: DeviceLike) -> None:
        self.idx = -1 if device is None else _get_device_index(device, optional=True)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _exchange_device(self.idx)

    def __exit__(self, *exc_info: object) -> None:
        _exchange_device(self.prev_idx)


class device_of(device):  # noqa: N801
    """Context manager that makes the device of a tensor or storage current, if it is a lazy one."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if obj.device.type == "lazy" else -1)


def synchronize(device: DeviceLike = None) -> None:
    """Waits until everything recorded on the device (default: the current one) has run; raises its first error."""
    _lazy_init()
    _C._device.synchronize(_CURRENT if device is None else _get_device_index(device, optional=True))


def _check_index(index: int) -> None:
    if not 0 <= index < device_count():
        raise RuntimeError(
            "The device index is out of range: "
            f"invalid device ordinal {index}: there are {device_count()} lazy device(s)"
        )


def get_device_properties(device: DeviceLike = None) -> LazyDeviceProperties:
    """Name, memory and processors of a device."""
    index = _get_device_index(device, optional=True)
    _check_index(index)
    major, minor = get_device_capability(index)
    return LazyDeviceProperties(
        name=f"Lazy CPU ({torch.backends.cpu.get_cpu_capability()})",
        major=major,
        minor=minor,
        total_memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        multi_processor_count=os.cpu_count() or 1,
    )


def get_device_name(device: DeviceLike = None) -> str:
    """The name of a device."""
    return get_device_properties(device).name


def get_device_capability(device: DeviceLike = None) -> tuple[int, int]:
    """Always (1, 0): lazy devices have no hardware generations. Dtypes: ``torch.accelerator.get_device_capability``."""
    return 1, 0


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether bfloat16 can be computed with; always true."""
    return True


def is_tf32_supported() -> bool:
    """Whether float32 products may be computed in TensorFloat-32; always false."""
    return False


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that ``torch.autocast("lazy")`` accepts."""
    return [torch.float16, torch.bfloat16]


def can_device_access_peer(device: DeviceLike, peer_device: DeviceLike) -> bool:
    """Whether one device can read the memory of another; true of any two, for all share the host's memory."""
    indices = _get_device_index(device, optional=True), _get_device_index(peer_device)
    for index in indices:
        _check_index(index)
    return indices[0] != indices[1]


def ipc_collect() -> None:
    """Does nothing: tensors are shared between processes through host memory, which its last user frees."""
