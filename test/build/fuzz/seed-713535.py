"""Seed 713535. error type: raised RuntimeError: _softmax does not support automatic differentiation for outputs with complex dtype., on the CPU NotImplementedError: "softmax_lastdim_kernel_impl" not implemented for 'ComplexFloat'"""

import sys

import torch
import torch.nn.functional as F

device = sys.argv[1] if len(sys.argv) > 1 else "lazy"


def show(name):
    t = globals()[name]
    print(name, t.dtype, tuple(t.shape), t.stride(), t.storage_offset(), t.detach().cpu().tolist())
    if t.is_leaf and t.grad is not None:
        print(f"{name}.grad", t.grad.stride(), t.grad.cpu().tolist())


t1 = torch.tensor([1.0, 2.0], dtype=torch.float32).reshape((2,)).clone().to(device)
print(t1.requires_grad_())
t4 = torch.view_as_complex(t1)
t13 = torch.softmax(t4, 0)
if "t1" in globals():
    show("t1")
if "t4" in globals():
    show("t4")
if "t13" in globals():
    show("t13")
