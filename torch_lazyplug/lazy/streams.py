"""Streams and events. ``Stream`` and ``Event`` are PyTorch's own, which choose the accelerator by themselves."""

import torch

from torch_lazyplug import _C
from torch_lazyplug.lazy._state import _lazy_init
from torch_lazyplug.lazy._utils import DeviceLike, _get_device_index

__all__ = ["Event", "Stream", "StreamContext", "current_stream", "default_stream", "set_stream", "stream"]

Event = torch.Event
Stream = torch.Stream


def current_stream(device: DeviceLike = None) -> Stream:
    """This thread's current stream on the device (default: the current one)."""
    _lazy_init()
    return _C._device.current_stream(_get_device_index(device, optional=True))


def default_stream(device: DeviceLike = None) -> Stream:
    """The default stream of the device (default: the current one)."""
    _lazy_init()
    return _C._device.default_stream(_get_device_index(device, optional=True))


def set_stream(stream: Stream | None) -> None:
    """Makes the stream, and its device, current in this thread. ``None`` changes nothing."""
    if stream is not None:
        torch.accelerator.set_stream(stream)


class StreamContext:
    """Context manager that makes a stream, and its device, current. ``None`` changes nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream
        self.src_prev_stream: Stream | None = None
        self.dst_prev_stream: Stream | None = None

    def __enter__(self) -> None:
        if self.stream is None:
            return
        self.src_prev_stream = current_stream()
        self.dst_prev_stream = current_stream(self.stream.device)
        set_stream(self.stream)

    def __exit__(self, *exc_info: object) -> None:
        if self.stream is None:
            return
        # On the stream's own device first; the last call also restores the current device.
        set_stream(self.dst_prev_stream)
        set_stream(self.src_prev_stream)


def stream(stream: Stream | None) -> StreamContext:
    """A context manager that makes the stream, and its device, current."""
    return StreamContext(stream)
