"""FakeTensorMode with lazy tensors, and the default device."""

import copy

import pytest
import torch
from helpers import DEVICE, work
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode


def lazy_views():
    base = torch.arange(12.0, device=DEVICE).view(3, 4)
    return {
        "whole": base,
        "transposed": base.t(),
        "slice": base[1:, ::2],
        "expanded": base[:1].expand(5, 4),
        "pending": base + 1,
        "channels_last": torch.ones(1, 2, 3, 4, device=DEVICE).to(memory_format=torch.channels_last),
        "parameter": nn.Parameter(base.clone()),
        "non_leaf": base.clone().requires_grad_() * 2,
        "complex": torch.ones(2, dtype=torch.complex64, device=DEVICE),
        "scalar": base.sum(),
        "empty": base[:0],
    }


@pytest.mark.parametrize("name", lazy_views())
def test_fake_copies_have_the_same_metadata(name):
    real = lazy_views()[name]
    with work() as done, FakeTensorMode() as mode:
        fake = mode.from_tensor(real)
    assert isinstance(fake, FakeTensor)
    for attribute in ("device", "dtype", "shape", "requires_grad", "is_leaf"):
        assert getattr(fake, attribute) == getattr(real, attribute), attribute
    assert (fake.stride(), fake.storage_offset()) == (real.stride(), real.storage_offset())
    assert isinstance(fake, nn.Parameter) == isinstance(real, nn.Parameter)
    assert done.flushes == 0


def test_fake_copies_of_views_share_storage():
    base = torch.ones(3, 4, device=DEVICE)
    mode = FakeTensorMode()
    fake, view = mode.from_tensor(base), mode.from_tensor(base[1])
    assert torch._C._is_alias_of(fake, view)


def test_ops_on_fakes_compute_metadata_only():
    weight = torch.ones(8, 4, device=DEVICE)
    with work() as done, FakeTensorMode() as mode:
        result = nn.functional.linear(torch.empty(2, 4, device=DEVICE), mode.from_tensor(weight)).softmax(-1)
        on_cpu = result.cpu()
    assert (result.device, result.shape) == (weight.device, (2, 8))
    assert on_cpu.device.type == "cpu"
    assert (done.recorded, done.flushes) == (0, 0)


@pytest.mark.lazy_only
def test_fake_ops_on_two_devices_raise():
    with FakeTensorMode(), pytest.raises(RuntimeError, match="two different devices|same device"):
        torch.empty(2, device=DEVICE) + torch.empty(2)


def test_fake_training_step():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)).to(DEVICE)
    with work() as done, FakeTensorMode() as mode:
        fakes = {name: mode.from_tensor(t) for name, t in (*model.named_parameters(), *model.named_buffers())}
        torch.func.functional_call(model, fakes, torch.empty(2, 1, 8, 8, device=DEVICE)).sum().backward()
        gradients = [fakes[name].grad for name, _ in model.named_parameters()]
    assert [g.shape for g in gradients] == [p.shape for p in model.parameters()]
    assert {g.device for g in gradients} == {model[0].weight.device}
    assert done.recorded == 0


def test_deferred_initialization_by_the_meta_device():
    with torch.device("meta"):
        model = nn.Linear(3, 2)
    model = model.to_empty(device=DEVICE)
    nn.init.ones_(model.weight)
    nn.init.zeros_(model.bias)
    assert model(torch.ones(1, 3, device=DEVICE)).tolist() == [[3, 3]]


# The default device --------------------------------------------------------------------------------------------------


@pytest.fixture(params=["context", "set_default_device"])
def default_device(request):
    if request.param == "context":
        with torch.device(DEVICE):
            yield
    else:
        torch.set_default_device(DEVICE)
        yield
        torch.set_default_device(None)


FACTORIES = {
    "ones": lambda: torch.ones(2),
    "tensor": lambda: torch.tensor([1, 2]),
    "arange": lambda: torch.arange(3),
    "randperm": lambda: torch.randperm(4),
    "eye": lambda: torch.eye(3),
    "tril_indices": lambda: torch.tril_indices(3, 3),
    "linear": lambda: nn.Linear(2, 2).weight,
    "batch_norm": lambda: nn.BatchNorm2d(2).running_mean,
    "embedding": lambda: nn.Embedding(3, 2).weight,
    "window": lambda: torch.hann_window(4),
    "from_list": lambda: torch.as_tensor([1.0]),
}


@pytest.mark.parametrize("factory", FACTORIES)
def test_default_device(default_device, factory):
    result = FACTORIES[factory]()
    assert result.device == torch.get_default_device() == torch.empty(0, device=DEVICE).device
    assert torch.ones(1, device="cpu").device.type == "cpu"


def test_default_device_is_left_again():
    with torch.device(DEVICE):
        pass
    assert torch.ones(1).device.type == "cpu"


def test_data_loader_under_a_default_device(default_device):
    from torch.utils.data import DataLoader, TensorDataset

    generator = torch.Generator(DEVICE).manual_seed(0)
    loader = DataLoader(TensorDataset(torch.arange(6)), batch_size=2, shuffle=True, generator=generator)
    assert sorted(torch.cat([batch for (batch,) in loader]).tolist()) == list(range(6))


FORMATS = [torch.contiguous_format, torch.channels_last]


@pytest.mark.parametrize("of_weight", FORMATS, ids=str)
@pytest.mark.parametrize("of_input", FORMATS, ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_convolutions_lie_as_real_ones(transposed, of_input, of_weight):
    x = torch.randn(2, 3, 8, 8).to(memory_format=of_input).to(DEVICE)
    weight = torch.randn(3, 3, 3, 3).to(memory_format=of_weight).to(DEVICE)

    def convolve(*tensors):
        tensors = [t.clone().requires_grad_() for t in tensors]
        result = (torch.conv_transpose2d if transposed else torch.conv2d)(*tensors)
        return [t.stride() for t in (result, *torch.autograd.grad(result.sum(), tensors))]

    mode = FakeTensorMode()
    fakes = [mode.from_tensor(t) for t in (x, weight)]
    with mode:
        strides = convolve(*fakes)
    assert strides == convolve(x, weight)


def test_modes_see_deep_copies():
    class Hooked(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return "seen" if func == torch.Tensor.__deepcopy__ else func(*args, **(kwargs or {}))

    with Hooked():
        assert copy.deepcopy(torch.ones(3, device=DEVICE)) == "seen"
