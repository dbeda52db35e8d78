"""Symptom: an error arises where nothing is wrong."""

import torch

from torch_lazyplug import config

config.set_debug(True)
table = torch.ones(4, 3).to("lazy") * 2
rows = table.index_select(0, torch.tensor([0, 9]).to("lazy"))
total = rows.sum()
try:
    total.item()
except IndexError as error:
    print(error)
