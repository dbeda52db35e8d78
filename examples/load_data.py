"""Feeding a model: a DataLoader with workers, and copies to the device.

    python examples/load_data.py

Workers are processes. They prepare batches on the CPU and need not know the device; it is used in this process only.
"""

import torch
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.tensor([float(index)]), torch.tensor([float(index) ** 2])


def main():
    loader = DataLoader(Squares(), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)
    total = torch.zeros((), device="lazy")
    for epoch in range(2):
        for numbers, squares in loader:
            numbers, squares = numbers.to("lazy", non_blocking=True), squares.to("lazy", non_blocking=True)
            # Adding up on the device reads nothing; `.item()` in the loop would wait in every step.
            total += (numbers.square() - squares).abs().sum()
        print(f"epoch {epoch}: total error {total.item()}")
    assert total.item() == 0


if __name__ == "__main__":
    main()
