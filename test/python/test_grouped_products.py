"""Products of groups of rows, columns or terms, which mixtures of experts are made of."""

import pytest
import torch
import torch.nn.functional as F

from torch_lazyplug import metrics

ENDS = torch.tensor([30, 100, 100, 240], dtype=torch.int32)


def operands(kind, inner, outer, dtype):
    """Of `kind`: how many dimensions both have, and whether the second one's columns follow each other."""
    rows, groups = int(ENDS[-1]), len(ENDS)
    sizes = {
        "23": ((rows, inner), (groups, inner, outer)),
        "23t": ((rows, inner), (groups, outer, inner)),
        "22": ((inner, rows), (rows, outer)),
        "32": ((groups, outer, inner), (inner, rows)),
        "33": ((groups, 50, inner), (groups, inner, outer)),
    }
    first, second = (torch.randn(size, dtype=dtype) for size in sizes[kind])
    return first, second.mT if kind == "23t" else second, None if kind == "33" else ENDS


def run(device, first, second, ends):
    first, second = (t.clone().to(device).requires_grad_() for t in (first, second))
    result = F.grouped_mm(first, second, offs=None if ends is None else ends.to(device))
    result.float().square().sum().backward()
    return result.detach(), first.grad, second.grad


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.float16), ids=str)
@pytest.mark.parametrize("kind", ("23", "23t", "22", "32", "33"))
@pytest.mark.parametrize("inner, outer", ((32, 16), (64, 128)))
def test_results_and_gradients(kind, inner, outer, dtype):
    torch.manual_seed(0)
    tensors = operands(kind, inner, outer, dtype)
    before = metrics.counter_value("FallbackTotal")
    for of_cpu, of_device in zip(run("cpu", *tensors), run("lazy", *tensors), strict=True):
        assert of_device.stride() == of_cpu.stride()
        assert torch.equal(of_device.cpu(), of_cpu)
    assert metrics.counter_value("FallbackTotal") == before


def test_rows_are_padded():
    """Rows of three numbers are 16 bytes apart."""
    first, second = torch.randn(240, 1024), torch.randn(4, 3, 1024).mT
    expected = F.grouped_mm(first, second, offs=ENDS)
    result = F.grouped_mm(first.to("lazy"), second.to("lazy"), offs=ENDS.to("lazy"))
    assert result.stride() == expected.stride() == (4, 1)
    assert torch.equal(result.cpu(), expected)


@pytest.mark.parametrize(
    "first, second, ends",
    (
        ((240, 1023), (4, 1023, 3), ENDS),
        ((240, 64), (4, 32, 64), ENDS),
        ((240, 64), (3, 64, 64), ENDS),
        ((240, 64), (4, 64, 64), ENDS.long()),
        ((240, 64), (4, 64, 64), None),
        ((4, 60, 64), (3, 64, 64), None),
        ((240, 64), (64,), ENDS),
    ),
)
def test_errors(first, second, ends):
    def attempt(device):
        at = None if ends is None else ends.to(device)
        with pytest.raises(Exception) as raised:
            F.grouped_mm(torch.ones(first, device=device), torch.ones(second, device=device), offs=at)
        return type(raised.value), str(raised.value).split("\n")[0]

    assert attempt("lazy") == attempt("cpu")
