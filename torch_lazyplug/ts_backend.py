"""Kept for programs written for ``torch._lazy``, whose backend has to be started."""

from torch_lazyplug import _C

__all__ = ["init"]


def init() -> None:
    """Does nothing: the device is there when the package has been imported."""
    _C._lazy_ts_backend._init()
