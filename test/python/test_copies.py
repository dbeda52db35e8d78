"""Copies of every dtype and layout in every direction, two lazy devices included, and ops that mix devices."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from composed import same_on_both
from helpers import DEVICE, flag, work

DTYPES = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128),
    *(torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    *(torch.bool, torch.float8_e4m3fn, torch.float8_e5m2),
)
LAYOUTS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(0, 2),
    "sliced": lambda x: x[:, 1:, ::2],
    "expanded": lambda x: x[:1].expand(2, 3, 4),
    "channels_last": lambda x: x[None].contiguous(memory_format=torch.channels_last),
}
ROUTES = (("lazy:0", "lazy:1"), ("lazy:1", "lazy:0"), ("lazy:0", "cpu"), ("cpu", "lazy:1"))


def check(copy, *case):
    """The bits that arrive, and their strides, are those of a copy on the CPU."""
    actual, expected = copy(*case), copy(*case[:-1], ("cpu", "cpu"))
    assert (actual.dtype, actual.shape, actual.stride()) == (expected.dtype, expected.shape, expected.stride()), case
    actual, expected = (t.contiguous().cpu().view(torch.uint8) for t in (actual, expected))
    assert actual.equal(expected), case


def moved(source_dtype, dtype, layout, route):
    source = layout((torch.arange(24).reshape(2, 3, 4) % 2).to(source_dtype).to(route[0]))
    return source.to(route[1], dtype, non_blocking=True, copy=True)


def copied_into(source_dtype, dtype, layout, route):
    source = layout((torch.arange(24).reshape(2, 3, 4) % 2).to(source_dtype).to(route[0]))
    target = torch.zeros(*source.shape[:-1], source.shape[-1] * 2, dtype=dtype, device=route[1])[..., ::2]
    return target.copy_(source, non_blocking=True)


def copy_everything():
    for source, dtype, route in itertools.product(DTYPES, DTYPES, ROUTES):
        layouts = list(LAYOUTS.values())
        check(moved, source, dtype, layouts[(DTYPES.index(source) + DTYPES.index(dtype)) % len(layouts)], route)
        if torch.float8_e4m3fn not in (source, dtype) and torch.float8_e5m2 not in (source, dtype):
            check(copied_into, source, dtype, LAYOUTS["transposed"], route)
    for dtype, layout, route in itertools.product(DTYPES, LAYOUTS.values(), ROUTES):
        check(moved, dtype, dtype, layout, route)


@pytest.mark.lazy_only
def test_every_dtype_layout_and_direction():
    """In a process of its own, with two devices."""
    environment = {**os.environ, "LAZYPLUG_DEVICE_COUNT": "2"}
    command = [sys.executable, "-c", "import torch_lazyplug, test_copies; test_copies.copy_everything()"]
    done = subprocess.run(command, cwd=Path(__file__).parent, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("source", [torch.arange(6).reshape(2, 3).t(), torch.arange(6).reshape(3, 2)])
def test_where_elements_overlap_the_last_write_is_the_cpus(source):
    def copy(device):
        base = torch.zeros(4, dtype=torch.int64, device=device)
        base.unfold(0, 2, 1).copy_(source)
        return base

    assert copy(DEVICE).tolist() == copy("cpu").tolist()


def values(device):
    return torch.linspace(-2, 2, 6).reshape(2, 3).to(device)


def assign(x, index, value):
    x[index] = value
    return x


MIXED = {
    "add": lambda x: x + torch.tensor(2.0),
    "promotion": lambda x: x.long() + torch.tensor(2.5),
    "where": lambda x: torch.where(x > 0, torch.tensor(1.0), x),
    "pow": lambda x: torch.pow(torch.tensor(2.0), x),
    "mul_": lambda x: x.mul_(torch.tensor(3.0)),
    "fill_": lambda x: x.fill_(torch.tensor(3.0)),
    "clamp": lambda x: x.clamp(torch.tensor(0.0), torch.tensor(1.0)),
    "lerp": lambda x: torch.lerp(x, x * 2, torch.tensor(0.5)),
    "index": lambda x: x[torch.tensor([0, 1])],
    "mask": lambda x: x[torch.tensor([True, False])],
    "set_index": lambda x: assign(x, torch.tensor([0]), 5.0),
    "set_number": lambda x: assign(x, (0, 1), torch.tensor(7.0)),
    "set_row": lambda x: assign(x, 0, torch.ones(3)),
    "masked_fill_": lambda x: x.masked_fill_(x > 0, torch.tensor(9.0)),
}


@pytest.mark.parametrize("name", MIXED)
def test_scalars_and_indices_on_the_cpu(name):
    same_on_both(lambda device: MIXED[name](values(device)))


REFUSED = {
    "add": lambda x: x + x.cpu(),
    "mm": lambda x: x @ x.cpu().t(),
    "out": lambda x: torch.add(x, 1, out=torch.empty(2, 3)),
    "cat": lambda x: torch.cat([x, x.cpu()]),
    "into_the_cpu": lambda x: x.cpu().add_(x),
    "into_a_scalar": lambda x: torch.tensor(1.0).add_(x.sum()),
    "index_on_the_device": lambda x: x.cpu()[torch.tensor([0], device=x.device)],
    "linear": lambda x: torch.nn.Linear(3, 2)(x),
    "embedding": lambda x: torch.nn.Embedding(3, 2).to(x.device)(torch.tensor([1])),
}


@pytest.mark.lazy_only
@pytest.mark.parametrize("name", REFUSED)
def test_other_mixtures_are_refused(name):
    with pytest.raises(RuntimeError):
        REFUSED[name](values("lazy"))


@pytest.mark.parametrize("size", (3, 20_000))
def test_zero_tensors_have_no_memory(size):
    zeros = torch._efficientzerotensor((size,))
    target = torch.ones(size, device=DEVICE)
    assert not target.copy_(zeros).any()
    assert not torch.empty(size, device=DEVICE).copy_(zeros).any()
    assert not zeros.to(DEVICE).any()


def test_a_copy_of_an_element_to_itself_has_its_sizes():
    for device in ("cpu", DEVICE):
        x = torch.ones(1, device=device)
        assert x.copy_(x.view(1)) is x
        with pytest.raises(RuntimeError):
            x.copy_(x.view(1, 1))


@pytest.mark.own_schedule("counts graphs")
def test_whether_a_copy_may_be_asynchronous_makes_no_other_graph():
    a, b = torch.ones(3000, device=DEVICE), torch.ones(3000, device=DEVICE)
    with work() as done:
        for non_blocking in (False, True):
            c = a + 1
            c.copy_(b, non_blocking=non_blocking)
            c.cpu()
    assert done.compiles <= 1


COPIES = {
    "clone": torch.clone,
    "transposed": lambda x: x.view(4, -1).t().contiguous(),
    "expanded": lambda x: x.expand(3, -1).contiguous(),
    "copy_": lambda x: torch.zeros_like(x).copy_(x),
    "beside a sum": lambda x: (x.clone(), x + 1)[0],
    "joined": lambda x: torch.cat((x, x)),
}
CHOICES = {
    "where": lambda x: torch.where(x.view(torch.int16) % 3 == 0, x, x.flip(0)),
    "masked": lambda x: x.masked_fill(x.view(torch.int16) % 3 == 0, 1.5),
}


@pytest.mark.parametrize("fusion", (0, 1, 2, 3))
@pytest.mark.parametrize("count", (64, 0x10000))
@pytest.mark.parametrize(
    ("dtype", "name"),
    # Of float16, choices make quiet NaNs of others.
    [*((torch.bfloat16, name) for name in COPIES | CHOICES), *((torch.float16, name) for name in COPIES)],
)
def test_copies_of_narrow_floats_keep_the_bits_of_nan(dtype, name, count, fusion):
    bits = torch.arange(0x10000, dtype=torch.int32).to(torch.int16)
    signalling = bits[0x7F81:0xFFFF:2] if dtype == torch.bfloat16 else bits[0x7C01:0xFFFF:2]
    numbers = (bits if count == len(bits) else signalling[:count]).view(dtype)
    with flag("fusion", fusion):
        expected, actual = ((COPIES | CHOICES)[name](numbers.to(device)).cpu() for device in ("cpu", DEVICE))
    assert actual.view(torch.int16).equal(expected.view(torch.int16))


@pytest.mark.lazy_only
@pytest.mark.parametrize("make", (torch.empty, torch.zeros, torch.ones, torch.rand))
@pytest.mark.parametrize("mode", ("never", "always"))
def test_memory_of_the_device_is_not_pinned(make, mode):
    with flag("run_at_once", mode), pytest.raises(RuntimeError, match="Only dense CPU tensors can be pinned"):
        make(2, device=DEVICE, pin_memory=True)


@pytest.mark.lazy_only
@pytest.mark.parametrize("make", (torch.empty_like, torch.zeros_like, torch.ones_like, torch.rand_like))
@pytest.mark.parametrize("mode", ("never", "always"))
def test_nor_is_that_of_tensors_like_others(make, mode):
    like = torch.ones(2, device=DEVICE)
    with flag("run_at_once", mode), pytest.raises(RuntimeError, match="Only dense CPU tensors can be pinned"):
        make(like, pin_memory=True)


@pytest.mark.lazy_only
def test_pinned_memory_may_be_made_of_what_is_on_the_device():
    assert torch.zeros_like(torch.ones(2, device=DEVICE), device="cpu", pin_memory=True).is_cpu
