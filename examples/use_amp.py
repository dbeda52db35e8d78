"""Mixed precision: bfloat16 where it is safe, float32 where it is not; and float16 with a gradient scaler.

python examples/use_amp.py
"""

import torch
import torch.nn.functional as F
from torch import nn


def train(dtype, steps=30):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 4)).to("lazy")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    # Float16 gradients may underflow, so the loss is scaled up and the gradients down again; bfloat16 does not need it.
    scaler = torch.amp.GradScaler("lazy", init_scale=1024.0, enabled=dtype is torch.float16)
    inputs, labels = torch.randn(64, 16, device="lazy"), torch.randint(4, (64,), device="lazy")
    losses = []
    for _ in range(steps):
        with torch.autocast("lazy", dtype=dtype, enabled=dtype is not torch.float32):
            scores = model(inputs)
            loss = F.cross_entropy(scores, labels)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach())
    return scores.dtype, torch.stack(losses).tolist()


def main():
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        computed_in, losses = train(dtype)
        print(f"{dtype}: scores in {computed_in}, loss {losses[0]:.3f} -> {losses[-1]:.3f}")
        assert computed_in == dtype and losses[-1] < losses[0]


if __name__ == "__main__":
    main()
