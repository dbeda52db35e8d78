"""Seed 700065. degenerate stride: degenerate stride of t11 is (2, 1), on the CPU (1, 1)"""

import sys

import torch
import torch.nn.functional as F

device = sys.argv[1] if len(sys.argv) > 1 else "lazy"


def show(name):
    t = globals()[name]
    print(name, t.dtype, tuple(t.shape), t.stride(), t.storage_offset(), t.detach().cpu().tolist())
    if t.is_leaf and t.grad is not None:
        print(f"{name}.grad", t.grad.stride(), t.grad.cpu().tolist())


t2 = torch.tensor([1, 2], dtype=torch.int32).reshape((2, 1)).clone().to(device)
t6 = torch.tensor([0, 0], dtype=torch.int64, device=device)
t7 = t2.swapaxes(1, 0)
t11 = t6 % t7
if "t2" in globals():
    show("t2")
if "t6" in globals():
    show("t6")
if "t7" in globals():
    show("t7")
if "t11" in globals():
    show("t11")
