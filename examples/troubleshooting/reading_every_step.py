"""Symptom: steps are as slow as without the device, though nothing is wrong."""

import torch

from torch_lazyplug import config, debug

config.set_debug(True)
model = torch.nn.Linear(1024, 1024).to("lazy")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(512, 1024).to("lazy")
history = []
for _ in range(4):
    loss = model(x).square().mean()
    if loss > 1000:  # waits until the forward pass has been computed
        break
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(loss.item())
print(debug.explain_sync())
print(*debug.advice()[:1], sep="\n")
