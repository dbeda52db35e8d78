"""Symptom: an op is slow, and the program waits where it is called."""

import warnings

import torch

from torch_lazyplug import config, debug

warnings.simplefilter("ignore")  # there is one for each op
config.set_debug(True)
x = torch.arange(8.0).to("lazy")
picked = (x * 2)[x > 3]
print(*debug.advice()[:1], sep="\n")
try:
    with debug.no_fallback():
        x[x > 5]
except NotImplementedError as error:
    print(error)
