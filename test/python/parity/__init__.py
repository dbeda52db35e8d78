"""What a CUDA user writes, one small function each. `test_parity.py` runs them; `tools/generate_parity_doc.py` makes
`docs/parity.md` of them, and runs them on PyTorch's in-tree lazy device too.

A probe gets the device's name and its module (`torch.cuda`, `torch.lazy`), and raises if it does not hold.
"""

import dataclasses
import importlib
from collections.abc import Callable
from types import ModuleType


@dataclasses.dataclass(frozen=True)
class Probe:
    group: str
    # As it is written for CUDA.
    text: str
    check: Callable[[str, ModuleType], None]
    # Whether the sources of torch_openreg, as of PyTorch 2.13, offer it.
    openreg: bool


PROBES: list[Probe] = []


def probe(group: str, text: str, openreg: bool = True):
    """Adds the decorated function to the table."""

    def add(check):
        PROBES.append(Probe(group, text, check, openreg))
        return check

    return add


# In the order of the document.
for _name in ("devices", "streams", "memory", "tensors", "layouts", "training", "files", "data", "compilers"):
    importlib.import_module(f"parity.{_name}")
