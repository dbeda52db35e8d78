"""Symptom: every epoch ends with a slow step."""

import torch

from torch_lazyplug import config, debug

config.set_debug(True)
model = torch.nn.Linear(64, 8).to("lazy")
for batch in torch.randn(70, 64).split(32):
    batch = batch.to("lazy")
    model(batch).square().mean().item()
print(debug.explain_recompile())
