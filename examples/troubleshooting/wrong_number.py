"""Symptom: a result is not what the CPU computes."""

import torch

from torch_lazyplug import debug

library = torch.library.Library("shop", "DEF")
library.define("discount(Tensor prices, float rate) -> Tensor")
library.impl("discount", lambda prices, rate: prices * (1 - rate), "CPU")
library.impl("discount", lambda prices, rate: prices * rate, "PrivateUse1")  # the mistake


def total(prices):
    reduced = torch.ops.shop.discount(prices + 1, 0.2)
    return reduced.sum()


print(debug.bisect(total, [torch.tensor([9.0, 19.0])]))
