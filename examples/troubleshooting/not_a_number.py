"""Symptom: the loss is NaN."""

import torch

from torch_lazyplug import debug

x = torch.tensor([1.0, 2.0, 3.0]).to("lazy")
try:
    with debug.no_nan():
        y = x - 2
        z = y.log()
        print((z + 1).sum())
except FloatingPointError as error:
    print(error)
