"""Symptom: memory grows from step to step."""

import torch

from torch_lazyplug import config, debug

config.set_debug(True)
model = torch.nn.Linear(64, 1).to("lazy")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(32, 64).to("lazy")
losses = []
for _ in range(15):
    loss = model(x).square().mean()
    losses.append(loss)
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
    torch.lazy.synchronize()
print(*[advice for advice in debug.advice() if "memory" in advice.problem], sep="\n")
