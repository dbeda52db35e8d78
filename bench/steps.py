"""Steps of the models in `models.py`."""

import functools

import models
import registry
import torch

# Training steps of these are measured without reads of the loss, too.
UNREAD = ("MLP 32, batch 8", "MLP 256, batch 64", "LeNet", "GPT-2")


def inference(title, device):
    """A batch, whose answers are read."""
    model, batch = models.build(title)
    model.to(device).eval()
    inputs = {name: tensor.to(device) for name, tensor in batch.items() if name != "labels"}

    @torch.no_grad()
    def step():
        return model(**inputs).logits.argmax(-1).tolist()

    return step


def training(title, read, device):
    """A step with AdamW, whose loss is read, or never."""
    model, batch = models.build(title)
    model.to(device).train()
    batch = {name: tensor.to(device) for name, tensor in batch.items()}
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        return loss.item() if read else loss

    return step


def register():
    for title in models.ALL:
        registry.add(f"{title}, inference", functools.partial(inference, title))
        registry.add(f"{title}, training", functools.partial(training, title, True))
        if title in UNREAD:
            registry.add(f"{title}, training, never read", functools.partial(training, title, False))
    for title in models.TITLES.values():
        step = functools.partial(training, title, False)
        registry.add(f"{title}, recording a training step", step, warm_up=12, host=True)


register()
