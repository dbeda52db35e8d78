"""Seed 703680. error type: raised RuntimeError: remainder does not support automatic differentiation for outputs with complex dtype., on the CPU NotImplementedError: "remainder_cpu" not implemented for 'ComplexFloat'"""

import sys

import torch
import torch.nn.functional as F

device = sys.argv[1] if len(sys.argv) > 1 else "lazy"


def show(name):
    t = globals()[name]
    print(name, t.dtype, tuple(t.shape), t.stride(), t.storage_offset(), t.detach().cpu().tolist())
    if t.is_leaf and t.grad is not None:
        print(f"{name}.grad", t.grad.stride(), t.grad.cpu().tolist())


t2 = torch.tensor([1.0, 2.0], dtype=torch.float32).reshape((2,)).clone().to(device)
print(t2.requires_grad_())
t5 = torch.view_as_complex(t2)
t6 = t5 % t5
if "t2" in globals():
    show("t2")
if "t5" in globals():
    show("t5")
if "t6" in globals():
    show("t6")
