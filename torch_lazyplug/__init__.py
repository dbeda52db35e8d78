"""PyTorch's lazy device as a plugin: move a model to ``"lazy"`` and change nothing else.

Importing this package makes the device known to PyTorch; an installed package is imported by ``import torch`` itself,
through the entry point group ``torch.backends``.
"""


def _autoload() -> None:
    """The entry point. Importing the package, which precedes this call, has done everything.

    Stands above the imports because of a cycle: if this package is imported before torch, ``import torch`` below
    looks the entry point up while the package is half-way through its own import.
    """


import sys  # noqa: E402

# The doctor must be able to start where the rest of this file fails.
if sys.orig_argv[1:3] == ["-m", "torch_lazyplug.doctor"]:
    from torch_lazyplug import doctor

    sys.exit(doctor.main())

import torch  # noqa: E402

from torch_lazyplug._build_info import TORCH_VERSION  # noqa: E402


def _check_torch_version(installed: str, built: str) -> None:
    # Builds of one release differ in the local part only, as in 2.13.0+cpu.
    if installed.split("+")[0] != built.split("+")[0]:
        raise ImportError(
            f"torch_lazyplug was built against PyTorch {built}, but PyTorch {installed} is installed: "
            f"install torch=={built}, or build torch_lazyplug again"
        )


# Before the extension is loaded: its symbols only exist in the PyTorch it was built against.
_check_torch_version(torch.__version__, TORCH_VERSION)

from torch_lazyplug import _registration  # noqa: E402

_registration.register_backend()

from torch_lazyplug import (  # noqa: E402
    accessors,
    backward,
    changing_ops,
    closure,
    computation,
    config,
    cpu_choices,
    custom_ops,
    debug,
    deepcopy,
    device_context,
    dlpack,
    dynamo,
    fake_tensors,
    ir_cache,
    journal,
    lazy,
    metrics,
    optimizers,
    process_groups,
    safetensors_support,
    saving,
    settings,
    sharing,
    tensor_factory_functions,
    transformers_support,
    ts_backend,
)
from torch_lazyplug.closure import add_step_closure, run_step_closures  # noqa: E402
from torch_lazyplug.custom_ops import numbers_are_inputs  # noqa: E402
from torch_lazyplug.debug import get_tensors_text  # noqa: E402
from torch_lazyplug.metrics import metrics_report  # noqa: E402
from torch_lazyplug.sync import get_tensor_id, mark_step, save, sync_multi, to_cpu, wait_device_ops  # noqa: E402

accessors.install()
deepcopy.install()
cpu_choices.install()
fake_tensors.install()
dynamo.install()
process_groups.install()
settings.install()
safetensors_support.install()
transformers_support.install()
saving.install()
dlpack.install()
sharing.install()
changing_ops.install()
backward.install()
optimizers.install()
journal.install()

__all__ = [
    "add_step_closure",
    "closure",
    "computation",
    "config",
    "custom_ops",
    "debug",
    "device_context",
    "get_tensor_id",
    "get_tensors_text",
    "ir_cache",
    "lazy",
    "mark_step",
    "metrics",
    "metrics_report",
    "numbers_are_inputs",
    "run_step_closures",
    "save",
    "sync_multi",
    "tensor_factory_functions",
    "to_cpu",
    "ts_backend",
    "wait_device_ops",
]
