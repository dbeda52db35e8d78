"""gloo, for tensors of the device and the CPU's: by its name, and where none is given.

Where none is given, PyTorch looks for a backend for the accelerator only, which is this device wherever the package is
installed: programs for the CPU are to find theirs, too. Besides, gloo has collectives for CPU tensors alone, and those
of the device go by their way (``backend/registration/collectives.cpp``).
"""

from types import ModuleType
from typing import Any

from torch_lazyplug._wrapping import Function, wrap_attribute
from torch_lazyplug.import_hooks import after_import


def install() -> None:
    """Sets the default as soon as ``torch.distributed`` is imported, if it is built; does nothing if that has been
    done."""
    after_import("torch.distributed.distributed_c10d", _choose_gloo)


def _choose_gloo(module: ModuleType) -> None:
    backends = module.Backend
    backends.default_device_backend_map.setdefault("lazy", backends.GLOO)
    if "lazy" not in backends.backend_capability[backends.GLOO]:
        backends.backend_capability[backends.GLOO].append("lazy")

    def for_both(initialize: Function) -> Function:
        def __init__(self: Any, backend: str) -> None:
            initialize(self, backend)
            if str(backend) == backends.UNDEFINED and "lazy" in self.device_backend_map:
                self.device_backend_map.setdefault("cpu", backends(backends.GLOO))

        return __init__

    wrap_attribute(module.BackendConfig, "__init__", for_both)
