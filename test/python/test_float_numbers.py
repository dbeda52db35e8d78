"""Python's numbers next to float32 tensors are recorded as float32, as the kernels would convert them."""

import math

import pytest
import torch
from helpers import DEVICE, IS_SCHEDULED

import torch_lazyplug
from torch_lazyplug import debug, metrics

NUMBERS = [0.1, -0.0, 3, 2**24 + 1, 2**53 + 1, -(2**62), 2**60 + 2**36 + 1, 1e-46, 1e39, math.inf, math.nan, True]
OPS = {
    "add": lambda x, n: x + n,
    "sub": lambda x, n: x - n,
    "mul": lambda x, n: n * x,
    "div": lambda x, n: x / n,
    "radd": lambda x, n: torch.add(x, n, alpha=3),
    "add_": lambda x, n: x.clone().add_(n),
    "sub_": lambda x, n: x.clone().sub_(n),
    "mul_": lambda x, n: x.clone().mul_(n),
    "div_": lambda x, n: x.clone().div_(n),
    "full": lambda x, n: torch.full_like(x, n),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64, torch.int64, torch.complex64], ids=str)
@pytest.mark.parametrize("name", OPS)
def test_bits_are_the_cpus(name, dtype):
    x = torch.tensor([[0.1, -1.0], [1e4, 3.0]]).to(dtype)
    lazy = x.to(DEVICE)
    for number in NUMBERS:
        for tensor, device_tensor in ((x, lazy), (x[0, 1], lazy[0, 1])):
            try:
                expected = OPS[name](tensor, number)
            except (RuntimeError, OverflowError):
                with pytest.raises((RuntimeError, OverflowError)):
                    OPS[name](device_tensor, number)
                continue
            for _ in range(2):
                actual = OPS[name](device_tensor, number).cpu()
                assert actual.dtype == expected.dtype
                assert torch.equal(actual.isnan(), expected.isnan())
                assert torch.equal(actual.nan_to_num(7), expected.nan_to_num(7))


@pytest.mark.parametrize(("dtype", "recorded"), [(torch.float32, "Float"), (torch.float64, "Double")], ids=str)
def test_only_next_to_float32(dtype, recorded):
    x = torch.ones(3, dtype=dtype, device=DEVICE)
    torch_lazyplug.wait_device_ops()
    assert f"{recorded}[] strides=[] number" in debug.get_tensors_text([x * 0.3]) or IS_SCHEDULED


def test_one_number_is_copied_once():
    x = torch.ones(3, device=DEVICE)
    (x * 0.37).tolist()
    before = metrics.counter_value("DeviceDataCacheMiss") or 0
    assert (x + 0.37).tolist() == (torch.ones(3) + 0.37).tolist()
    assert (metrics.counter_value("DeviceDataCacheMiss") or 0) == before


UNSIGNED = torch.zeros(2, dtype=torch.uint64)
BEYOND_INT64 = {
    "fill_": lambda x, n: UNSIGNED.to(x.device).fill_(n),
    "full": lambda x, n: torch.full((2,), n, dtype=torch.uint64, device=x.device),
    "eq": lambda x, n: UNSIGNED.to(x.device).eq(n),
    "clamp": lambda x, n: x.clamp(max=n),
    "pow": lambda x, n: x**n,
    "lt": lambda x, n: x.long() < n,
    "mul": lambda x, n: x * n,
    "foreach": lambda x, n: torch._foreach_mul([x, x], [n, 2])[0],
}


@pytest.mark.parametrize("number", [2**63, 2**64 - 1])
@pytest.mark.parametrize("name", BEYOND_INT64)
def test_numbers_beyond_int64(name, number):
    x = torch.tensor([1.0, 0.5])
    for n in (2, number, 2, number):  # a call that is known must not be taken for it
        result, expected = BEYOND_INT64[name](x.to(DEVICE), n), BEYOND_INT64[name](x, n)
        assert result.dtype == expected.dtype and result.cpu().tolist() == expected.tolist()


def test_a_kernel_that_does_not_know_unsigned_numbers_refuses_them():
    index = torch.tensor([0])
    with pytest.raises(NotImplementedError, match="not implemented for 'UInt64'"):
        UNSIGNED.to(DEVICE).index_fill_(0, index.to(DEVICE), 2**63)


def in_place_of(d):
    x = torch.zeros(2, device=d)
    x[0] = 1e300
    return x


FILLED = {
    "uint8": lambda d, n: torch.full((2,), n, dtype=torch.uint8, device=d),
    "int32": lambda d, n: torch.full((3, 2), n**5, dtype=torch.int32, device=d),
    "float32": lambda d, n: torch.full((2,), float(n) ** 100, device=d),
    "float16": lambda d, n: torch.full((2,), n * 500.0, dtype=torch.float16, device=d),
    "one": lambda d, n: torch.scalar_tensor(float(n) ** 100, device=d),
    "where": lambda d, n: torch.where(torch.tensor([True, False], device=d), torch.zeros((), dtype=torch.uint8), n),
    "setitem": lambda d, n: in_place_of(d) if n == 300 else torch.zeros(2, device=d),
}


@pytest.mark.parametrize("name", FILLED)
def test_numbers_that_a_dtype_cannot_hold_are_refused_at_their_line(name):
    for number in (2, 300, 2, 300):
        try:
            expected = FILLED[name]("cpu", number)
        except RuntimeError as error:
            assert number == 300
            with pytest.raises(RuntimeError, match=str(error)):
                FILLED[name](DEVICE, number)
        else:
            assert number == 2 and torch.equal(FILLED[name](DEVICE, number).cpu(), expected)
