"""Feeding data, memory and processes."""

import torch
from torch.utils.data import DataLoader, TensorDataset

from parity import probe

DATA, MEMORY = "Data", "Memory"


@probe(DATA, "for batch in DataLoader(...): batch.cuda()")
def loader(d, m):
    total = torch.zeros((), device=d)
    for (batch,) in DataLoader(TensorDataset(torch.arange(6.0)), batch_size=2):
        total += batch.to(d, non_blocking=True).sum()
    assert total.item() == 15


@probe(DATA, "DataLoader(dataset of tensors on the device)")
def device_loader(d, m):
    batches = list(DataLoader(TensorDataset(torch.arange(4, device=d)), batch_size=2))
    assert batches[1][0].tolist() == [2, 3]


@probe(DATA, "DataLoader(num_workers=1)")
def workers(d, m):
    torch.ones(1, device=d).item()
    batches = [b.to(d) for (b,) in DataLoader(TensorDataset(torch.arange(4)), batch_size=2, num_workers=1)]
    assert torch.cat(batches).tolist() == [0, 1, 2, 3]


@probe(DATA, "DataLoader(shuffle=True, generator=torch.Generator('cuda'))")
def shuffling(d, m):
    with torch.device(d):
        loader = DataLoader(TensorDataset(torch.arange(4)), shuffle=True, generator=torch.Generator(d))
        assert sorted(b.item() for (b,) in loader) == [0, 1, 2, 3]


@probe(DATA, "torch.utils.data.default_collate([x, x])")
def collate(d, m):
    assert torch.utils.data.default_collate([torch.ones(2, device=d)] * 3).shape == (3, 2)
