"""Saving and loading."""

import io
import os
import tempfile

import torch
from torch import nn

from parity import probe

FILES = "Saving and loading"


def round_trip(value, **options):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return torch.load(buffer, **options)


@probe(FILES, "torch.save(x, f), torch.load(f)")
def save(d, m):
    x = round_trip(torch.ones(2, device=d))
    assert x.device.type == d and x.tolist() == [1, 1]


@probe(FILES, "views of one storage share it after torch.load")
def views(d, m):
    x = torch.ones(4, device=d)
    whole, part = round_trip([x, x[1:]])
    whole.zero_()
    assert part.sum().item() == 0


@probe(FILES, "torch.load(f, map_location='cpu')")
def to_cpu(d, m):
    assert round_trip(torch.ones(2, device=d), map_location="cpu").device.type == "cpu"


@probe(FILES, "torch.load(f, map_location='cuda:0')")
def to_device(d, m):
    assert round_trip(torch.ones(2), map_location=f"{d}:0").device.type == d


@probe(FILES, "torch.load(f, map_location={'cuda:0': 'cpu'})")
def by_dictionary(d, m):
    assert round_trip(torch.ones(2, device=d), map_location={f"{d}:0": "cpu"}).device.type == "cpu"


@probe(FILES, "torch.load(f, map_location=lambda storage, location: storage)")
def by_function(d, m):
    assert round_trip(torch.ones(2, device=d), map_location=lambda s, l: s).device.type == "cpu"  # noqa: E741


@probe(FILES, "torch.load(f, mmap=True)")
def mapped(d, m):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.pt")
        torch.save(torch.ones(2, device=d), path)
        assert torch.load(path, mmap=True).device.type == d


@probe(FILES, "torch.load(f, weights_only=False) of a module")
def modules(d, m):
    assert round_trip(nn.Linear(2, 2).to(d), weights_only=False).weight.device.type == d


@probe(FILES, "a checkpoint of model and optimizer")
def checkpoint(d, m):
    model = nn.Linear(2, 2).to(d)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 2, device=d)).sum().backward()
    optimizer.step()
    saved = round_trip({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])


@probe(FILES, "torch.save(torch.Generator('cuda'), f)", openreg=False)
def generators(d, m):
    restored = round_trip(torch.Generator(d).manual_seed(7), weights_only=False)
    assert restored.device.type == d and restored.initial_seed() == 7


@probe(FILES, "safetensors.torch.save_file, load_file(f, device='cuda')", openreg=False)
def safetensors(d, m):
    from safetensors.torch import load_file, save_file

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.safetensors")
        save_file({"x": torch.ones(2, device=d) + 1}, path)
        x = load_file(path, device=d)["x"]
    assert x.device.type == d and x.tolist() == [2, 2]


@probe(FILES, "torch.jit.save, torch.jit.load(f, map_location='cuda')")
def torchscript(d, m):
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(nn.Linear(2, 2).to(d)), buffer)
    buffer.seek(0)
    assert torch.jit.load(buffer, map_location=d).weight.device.type == d
