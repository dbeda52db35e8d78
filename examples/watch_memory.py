"""Device memory: what a training step takes, a limit, and going on after running out of it.

    python examples/watch_memory.py

Ops that are only recorded take no memory: `torch.lazy.synchronize()` before reading a figure runs them.
"""

import torch

MIB = 1 << 20


def train(model, optimizer, batch):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
    torch.lazy.synchronize()


def main():
    model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 512)).to("lazy")
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(256, 512, device="lazy")

    for step in range(3):
        torch.lazy.reset_peak_memory_stats()
        train(model, optimizer, batch)
        in_use, peak, held = (
            figure() / MIB
            for figure in (torch.lazy.memory_allocated, torch.lazy.max_memory_allocated, torch.lazy.memory_reserved)
        )
        print(f"step {step}: {in_use:.1f} MiB in use, {peak:.1f} at most, {held:.1f} held for the next step")

    largest = torch.lazy.memory_snapshot()[0]
    print(f"the largest block has {largest['size'] / MIB:.1f} MiB, allocated by {largest['op']}")

    _, total = torch.lazy.mem_get_info()
    torch.lazy.set_per_process_memory_fraction((torch.lazy.memory_reserved() + 64 * MIB) / total)
    try:
        torch.ones(128 * MIB, dtype=torch.uint8, device="lazy").sum().item()
    except torch.OutOfMemoryError as error:
        print(str(error).split(".")[0])
    train(model, optimizer, batch)
    print("training goes on")

    torch.lazy.set_per_process_memory_fraction(1.0)
    torch.lazy.empty_cache()
    print(torch.lazy.memory_summary(abbreviated=True))


if __name__ == "__main__":
    main()
