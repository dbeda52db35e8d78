"""torch.save, torch.load, pickle, copies, safetensors, and files that meet no plugin."""

import copy
import io
import os
import pickle
import subprocess
import sys

import pytest
import torch
from helpers import DEVICE, run_fresh, work
from torch import nn

HERE = torch.empty(0, device=DEVICE).device


def round_trip(value, legacy=False, **options):
    buffer = io.BytesIO()
    torch.save(value, buffer, _use_new_zipfile_serialization=not legacy)
    buffer.seek(0)
    return torch.load(buffer, **options)


@pytest.fixture
def x():
    """Pending, so that saving has to compute it."""
    return (torch.arange(12.0, device=DEVICE) + 1).view(3, 4)


@pytest.fixture
def file(x, tmp_path):
    path = tmp_path / "x.pt"
    torch.save({"x": x, "row": x[1], "t": x.t()}, path)
    return path


# torch.save and torch.load -------------------------------------------------------------------------------------------


@pytest.mark.smoke
@pytest.mark.parametrize("legacy", [False, True])
def test_views_share_storage_after_loading(x, legacy):
    loaded = round_trip({"x": x, "row": x[1], "t": x.t()}, legacy=legacy)
    assert loaded["row"].tolist() == [5, 6, 7, 8]
    assert loaded["t"].stride() == (1, 4)
    assert {t.device for t in loaded.values()} == {HERE}
    loaded["x"].zero_()
    assert loaded["row"].sum().item() == loaded["t"].sum().item() == 0


DTYPES = [torch.bfloat16, torch.float16, torch.complex64, torch.bool, torch.int8, torch.uint8, torch.float64]


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype):
    x = torch.tensor([0, 1, 1], device=DEVICE).to(dtype)
    loaded = round_trip(x)
    assert loaded.dtype == dtype
    assert torch.equal(loaded.cpu(), x.cpu())


def test_what_a_tensor_is_comes_back(x):
    loaded = round_trip(
        {
            "parameter": nn.Parameter(x.clone()),
            "leaf": x.clone().requires_grad_(),
            "conj": torch.ones(2, dtype=torch.complex64, device=DEVICE).conj(),
            "empty": x[:0],
            "scalar": x.sum(),
            "channels_last": torch.ones(1, 2, 3, 4, device=DEVICE).to(memory_format=torch.channels_last),
        }
    )
    assert isinstance(loaded["parameter"], nn.Parameter)
    assert loaded["leaf"].requires_grad and loaded["leaf"].is_leaf
    assert loaded["conj"].is_conj()
    assert loaded["empty"].shape == (0, 4)
    assert loaded["scalar"].item() == 78
    assert loaded["channels_last"].is_contiguous(memory_format=torch.channels_last)


MAP_LOCATIONS = {
    "nothing": (None, "lazy"),
    "cpu": ("cpu", "cpu"),
    "torch.device": (torch.device("cpu"), "cpu"),
    "lazy": ("lazy", "lazy"),
    "lazy:0": (torch.device("lazy", 0), "lazy"),
    "dictionary": ({"lazy:0": "cpu"}, "cpu"),
    "other dictionary": ({"cuda:0": "cpu"}, "lazy"),
    "callable": (lambda storage, location: storage, "cpu"),
    "moving callable": (lambda storage, location: storage.to(device=location), "lazy"),
    "undecided callable": (lambda storage, location: None, "lazy"),
    "meta": ("meta", "meta"),
}


@pytest.mark.lazy_only
@pytest.mark.parametrize("options", [{}, {"mmap": True}, {"weights_only": False}], ids=str)
@pytest.mark.parametrize("name", MAP_LOCATIONS)
def test_map_location(file, name, options):
    map_location, expected = MAP_LOCATIONS[name]
    if expected == "meta" and options.get("mmap"):
        options = {**options, "mmap": False}
    loaded = torch.load(file, map_location=map_location, **options)
    assert {t.device.type for t in loaded.values()} == {expected}
    if expected != "meta":
        assert loaded["row"].tolist() == [5, 6, 7, 8]
        loaded["x"].zero_()
        assert loaded["row"].tolist() == [0, 0, 0, 0]


@pytest.mark.lazy_only
@pytest.mark.parametrize("map_location", ["lazy", "lazy:0", {"cpu": "lazy"}, lambda storage, location: storage.lazy()])
@pytest.mark.parametrize("options", [{}, {"mmap": True}], ids=str)
def test_cpu_files_load_to_the_device(tmp_path, map_location, options):
    torch.save({"w": torch.arange(3.0)}, tmp_path / "w.pt")
    loaded = torch.load(tmp_path / "w.pt", map_location=map_location, **options)["w"]
    assert (loaded.device, loaded.tolist()) == (HERE, [0, 1, 2])


@pytest.mark.lazy_only
def test_a_memory_mapped_file_is_not_written(file):
    before = file.read_bytes()
    torch.load(file, mmap=True)["x"].zero_().sum().item()
    assert file.read_bytes() == before


@pytest.mark.lazy_only
def test_other_devices():
    run_fresh(
        """
        import io
        def saved(value):
            buffer = io.BytesIO(); torch.save(value, buffer); buffer.seek(0)
            return buffer
        x = torch.ones(2, device="lazy:1")
        assert torch.load(saved(x)).device.index == 1
        assert torch.load(saved(x), map_location="lazy:0").device.index == 0
        assert torch.load(saved(x), map_location={"lazy:1": "lazy:0"}).device.index == 0
        torch.lazy.set_device(1)
        assert torch.load(saved(torch.ones(2)), map_location="lazy").device.index == 1
        assert torch.load(saved(torch.ones(2)), map_location=lambda s, l: s.lazy(0)).device.index == 0
        """,
        devices=2,
    )


@pytest.mark.lazy_only
def test_a_device_that_is_not_there(file):
    with pytest.raises(RuntimeError, match=r"LAZY device 7 but torch.lazy.device_count\(\) is 1"):
        torch.load(file, map_location="lazy:7")


def test_saving_runs_once(x):
    y = x * 2
    with work() as done:
        round_trip({"x": y, "row": y[0], "z": y + 1})
    assert done.flushes <= 1


def test_an_error_leaves_the_file_as_it_is(tmp_path):
    """Also one that comes late, after the file would have been opened."""
    path = tmp_path / "checkpoint.pt"
    torch.save(torch.ones(3), path)
    with pytest.raises(IndexError):
        wrong = torch.ones(3, device=DEVICE)[torch.tensor([9], device=DEVICE)]
        torch.save({"x": wrong, "y": torch.ones(2, device=DEVICE)}, path)
    assert torch.load(path).tolist() == [1, 1, 1]


@pytest.mark.lazy_only
def test_save_to_the_cpu(x, tmp_path):
    import torch_lazyplug

    y = {"sum": x.sum(), "list": [x + 1, 3], "cpu": torch.ones(1)}
    with work() as done:
        torch_lazyplug.save(y, tmp_path / "y.pt")
    assert done.flushes <= 1
    loaded = torch.load(tmp_path / "y.pt")
    assert (loaded["sum"].device.type, loaded["sum"].item(), loaded["list"][1]) == ("cpu", 78, 3)
    assert y["sum"].device == HERE


# Modules, optimizers, generators -------------------------------------------------------------------------------------


def make_trained():
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    train(model, optimizer)
    return model, optimizer


def train(model, optimizer):
    x = torch.arange(8.0).view(2, 4).to(next(model.parameters()).device)
    optimizer.zero_grad()
    model(x).square().sum().backward()
    optimizer.step()


@pytest.mark.parametrize("to", [DEVICE, "cpu"])
def test_checkpoint_of_a_training(to):
    model, optimizer = make_trained()
    saved = round_trip({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, map_location=to)
    restored, restored_optimizer = make_trained()
    restored.load_state_dict(saved["model"])
    restored_optimizer.load_state_dict(saved["optimizer"])
    assert {t.device for t in restored.state_dict().values()} == {HERE}
    train(model, optimizer)
    train(restored, restored_optimizer)
    for p, q in zip(model.state_dict().values(), restored.state_dict().values(), strict=True):
        assert torch.equal(p.cpu(), q.cpu())


def test_whole_modules_and_tied_weights():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)).to(DEVICE)
    model[1].weight = model[0].weight
    for restored in (round_trip(model, weights_only=False), pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert restored[1].weight is restored[0].weight
        assert restored[0].weight.device == HERE
        assert torch.equal(restored[0].weight.cpu(), model[0].weight.cpu())


def test_load_state_dict_by_assignment():
    model = nn.Linear(2, 2, device="meta")
    model.load_state_dict(nn.Linear(2, 2).to(DEVICE).state_dict(), assign=True)
    assert model.weight.device == HERE


COPIES = {"torch": lambda g: round_trip(g, weights_only=False), "pickle": lambda g: pickle.loads(pickle.dumps(g))}


@pytest.mark.parametrize("copy_of", COPIES)
def test_generators(copy_of):
    generator = torch.Generator(DEVICE).manual_seed(3)
    torch.rand(2, device=DEVICE, generator=generator)
    restored = COPIES[copy_of](generator)
    draws = [torch.rand(4, device=DEVICE, generator=g).tolist() for g in (generator, restored)]
    assert draws[0] == draws[1]


# pickle, copy, storages ----------------------------------------------------------------------------------------------


def test_pickle(x):
    x.requires_grad_(False)
    loaded = pickle.loads(pickle.dumps([x, x, nn.Parameter(x[0].clone())]))
    assert loaded[0] is loaded[1]
    assert loaded[0].device == loaded[2].device == HERE
    assert torch.equal(loaded[0].cpu(), x.cpu())
    assert isinstance(loaded[2], nn.Parameter)


def test_copies(x):
    shallow, deep = copy.copy(x), copy.deepcopy({"x": x, "row": x[0]})
    x.zero_()
    assert shallow.sum().item() == 0
    assert deep["x"].sum().item() == 78
    deep["x"].zero_()
    assert deep["row"].sum().item() == 0


def test_deepcopy_of_a_gradient(x):
    leaf = x.clone().requires_grad_()
    leaf.square().sum().backward()
    copied = copy.deepcopy(leaf)
    leaf.grad.zero_()
    assert torch.equal(copied.grad.cpu(), 2 * x.cpu())


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_storages(x):
    typed = round_trip(x.storage(), weights_only=False)
    assert (typed.device, typed.tolist()) == (HERE, list(range(1, 13)))
    untyped = round_trip(x.to(torch.uint8).untyped_storage(), weights_only=False)
    assert (untyped.device, untyped.tolist()) == (HERE, list(range(1, 13)))


def test_subclass_with_attributes():
    tensor = Tagged(torch.ones(2, device=DEVICE) + 1)
    tensor.tag = "a"
    loaded = round_trip(tensor, weights_only=False)
    assert (type(loaded), loaded.tag, loaded.tolist()) == (Tagged, "a", [2, 2])


class Tagged(torch.Tensor):
    pass


def test_torchscript_modules():
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(nn.Linear(2, 2).to(DEVICE)), buffer)
    for location, expected in ((None, HERE.type), ("cpu", "cpu"), (DEVICE, HERE.type)):
        buffer.seek(0)
        assert torch.jit.load(buffer, map_location=location).weight.device.type == expected


# safetensors ---------------------------------------------------------------------------------------------------------


@pytest.mark.lazy_only
def test_safetensors_round_trip(x, tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    y = x.bfloat16() + 1
    safetensors.save_file({"x": x, "y": y}, tmp_path / "x.safetensors", {"format": "pt"})
    for device in (DEVICE, torch.device(DEVICE), str(HERE)):
        loaded = safetensors.load_file(tmp_path / "x.safetensors", device=device)
        assert {t.device for t in loaded.values()} == {HERE}
        assert torch.equal(loaded["y"].cpu(), y.cpu())
    assert safetensors.load_file(tmp_path / "x.safetensors")["x"].device.type == "cpu"
    assert torch.equal(safetensors.load(safetensors.save({"x": x}))["x"], x.cpu())


def test_safetensors_of_modules(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    model, other = make_trained()[0], make_trained()[0]
    safetensors.save_model(model, tmp_path / "model.safetensors")
    safetensors.load_model(other, tmp_path / "model.safetensors")
    for p, q in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        assert q.device == HERE and torch.equal(p.cpu(), q.cpu())


@pytest.mark.lazy_only
def test_safetensors_by_name(x, tmp_path):
    safetensors = pytest.importorskip("safetensors")
    pytest.importorskip("safetensors.torch").save_file({"x": x, "y": x + 1}, tmp_path / "x", {"format": "pt"})
    with safetensors.safe_open(tmp_path / "x", "pt", device=DEVICE) as file:
        assert list(file.keys()) == ["x", "y"] and file.metadata() == {"format": "pt"}
        rows = file.get_slice("y")
        assert rows.get_shape() == list(x.shape)
        read, first = file.get_tensor("x"), rows[:1]
    assert read.device == first.device == HERE
    assert torch.equal(read.cpu(), x.cpu()) and torch.equal(first.cpu(), x[:1].cpu() + 1)
    with safetensors.safe_open(tmp_path / "x", framework="pt") as file:
        assert file.get_tensor("x").device.type == "cpu"
    with pytest.raises(Exception, match="no such tensor"), safetensors.safe_open(tmp_path / "x", "pt", DEVICE) as file:
        file.get_tensor("no such tensor")


@pytest.mark.lazy_only
def test_safetensors_imported_first(tmp_path):
    run_fresh(
        f"""
        import safetensors.torch
        safetensors.torch.save_file({{"x": torch.ones(2)}}, {str(tmp_path / "x")!r})
        assert safetensors.torch.load_file({str(tmp_path / "x")!r}, "lazy:1")["x"].device.index == 1
        """,
        devices=2,
    )


# Without the plugin --------------------------------------------------------------------------------------------------


@pytest.mark.lazy_only
def test_files_in_a_process_without_the_plugin(file):
    code = f"""
import torch
assert torch.load({str(file)!r}, map_location="cpu")["row"].tolist() == [5, 6, 7, 8]
assert torch.load({str(file)!r}, map_location={{"lazy:0": "cpu"}}, mmap=True)["row"].tolist() == [5, 6, 7, 8]
try:
    torch.load({str(file)!r})
    raise AssertionError("restored without the device")
except RuntimeError as error:
    assert "tagged with lazy:0" in str(error), error
"""
    env = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
