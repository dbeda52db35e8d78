"""Where a program on the lazy device parts from the same on the CPU: in an op, or in what is done to graphs.

| module | has |
|---|---|
| ``search`` | ``bisect``: what is run, in which order, and what follows from it |
| ``runs`` | a whole run on one device, on copies, and the comparison of two |
| ``watching`` | a run op by op, in which the CPU does each op, too |
| ``switches`` | the settings that are tried |
| ``copies``, ``differences``, ``locations``, ``finding`` | what the others use |
"""

from torch_lazyplug.bisection.differences import Difference
from torch_lazyplug.bisection.finding import Finding
from torch_lazyplug.bisection.search import bisect
from torch_lazyplug.bisection.switches import PASSES

__all__ = ["PASSES", "Difference", "Finding", "bisect"]
