"""Seed 710592. raises: reading t2: NotImplementedError: "neg_cpu" not implemented for 'Bool' (while running aten::copy_(Bool[1, 1] strides=[1, 1] offset=1, Float[1, 1] strides=[0, 0] neg))"""

import sys

import torch
import torch.nn.functional as F

device = sys.argv[1] if len(sys.argv) > 1 else "lazy"


def show(name):
    t = globals()[name]
    print(name, t.dtype, tuple(t.shape), t.stride(), t.storage_offset(), t.detach().cpu().tolist())
    if t.is_leaf and t.grad is not None:
        print(f"{name}.grad", t.grad.stride(), t.grad.cpu().tolist())


t1 = torch.tensor([1.0], dtype=torch.float32).reshape(()).clone().to(device)
t2 = torch.tensor([True, False], dtype=torch.bool).reshape((2,)).clone().to(device)
t5 = t2.as_strided((1, 1), (1, 1), 1)
t6 = t1._neg_view()
t5[...,] = t6
if "t1" in globals():
    show("t1")
if "t2" in globals():
    show("t2")
if "t5" in globals():
    show("t5")
if "t6" in globals():
    show("t6")
