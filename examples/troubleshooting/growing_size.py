"""Symptom: each step of a loop compiles."""

import torch

from torch_lazyplug import config, debug

config.set_debug(True)
past = torch.zeros(1, 8).to("lazy")
for _ in range(3):
    past = torch.cat([past, torch.ones(1, 8, device="lazy")])
    past.sum().item()
print(debug.explain_recompile())
with debug.no_recompile():  # the remedy: full size from the start
    table = torch.zeros(16, 8).to("lazy")
