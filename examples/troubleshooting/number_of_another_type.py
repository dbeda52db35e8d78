"""Symptom: a schedule of numbers compiles now and then."""

import torch

from torch_lazyplug import config, debug

config.set_debug(True)
x = torch.ones(8).to("lazy")
for scale in (0.5, 0.25, 1):
    (x * scale).sum().item()
print(debug.explain_recompile())
