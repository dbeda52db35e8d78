"""Finding the places at which a program waits for the device."""

from torch_lazyplug import config

__all__ = ["get_sync_debug_mode", "set_sync_debug_mode"]

# The position of a mode is its number.
_MODES = ("default", "warn", "error")


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """What happens when the program makes the device compute results now and waits for them.

    That is the case when it reads a value (``.item()``, ``bool(t)``), copies to the CPU (``.cpu()``, ``print``), asks
    for an address, or calls an op that runs on the CPU; not when it calls ``synchronize``. ``"default"`` or 0: nothing;
    ``"warn"`` or 1: a warning that names the line; ``"error"`` or 2: ``RuntimeError``, before anything has been done.
    """
    if debug_mode in range(len(_MODES)):
        debug_mode = _MODES[int(debug_mode)]
    if debug_mode not in _MODES:
        raise RuntimeError(f"invalid value of debug_mode {debug_mode!r}, expected one of `default`, `warn`, `error`")
    config.set("sync_debug", debug_mode)


def get_sync_debug_mode() -> int:
    """The mode that ``set_sync_debug_mode`` has set, as a number."""
    return _MODES.index(str(config.get("sync_debug")))
