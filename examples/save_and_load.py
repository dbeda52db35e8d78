"""Saving, loading and recomputing: checkpoints of a training, other devices, and activation checkpointing.

python examples/save_and_load.py
"""

import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import torch_lazyplug


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.1), nn.GELU()) for _ in range(3))
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        for block in self.blocks:
            # Keeps no activations of the block: backward computes them again, with the same dropout mask.
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x)


def step(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(0)
    model, x = Net().to("lazy"), torch.randn(16, 8, device="lazy")
    optimizer = torch.optim.AdamW(model.parameters())
    step(model, optimizer, x)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "training.pt")
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.lazy.get_rng_state()}
        torch.save(state, path)
        expected = step(model, optimizer, x)

        # Resumed, the training takes the same step: the random numbers continue, too.
        state = torch.load(path)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        torch.lazy.set_rng_state(state["rng"])
        assert step(model, optimizer, x) == expected
        print(f"resumed: loss {expected:.6f} again")

        on_cpu = torch.load(path, map_location="cpu")["model"]
        print(f"loaded to {on_cpu['head.weight'].device}")

        # A file that also loads where there is no such device.
        torch_lazyplug.save(model.state_dict(), Path(folder, "weights.pt"))
        print(f"saved for {torch.load(Path(folder, 'weights.pt'))['head.weight'].device}")


if __name__ == "__main__":
    main()
