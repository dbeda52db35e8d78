"""Shapes at the edges, and the strides of results."""

import pytest
import torch
from helpers import STATES, both
from matrix_cases import Cases, matrix

case = Cases()


@case
def empty_slice(x):
    x[2:2] = 5
    return x[2:2], x[:, 6:].sum()


@case
def zero_dimensional(x):
    y = x[1, 2]
    y += 10
    return y, y.view(1), y.expand(3)


@case
def empty_tensor(x):
    y = torch.empty(0, 3, device=x.device)
    y.add_(1)
    return y, y.sum(), torch.cat([y, x[:, :3]])


@case
def contiguous_is_self(x):
    return x.contiguous(), x.t().contiguous(), x[1:].contiguous()


@case
def to_same_is_self(x):
    return x.to(x.device), x.to(torch.float32), x.to(x.dtype, copy=True)


@case
def clone_formats(x):
    return (
        x.t().clone(),
        x.t().clone(memory_format=torch.contiguous_format),
        x[:, ::2].clone(),
        x[:, :1].expand(4, 3).clone(),
    )


@case
def channels_last(x):
    image = x.view(1, 2, 2, 6).contiguous(memory_format=torch.channels_last)
    image[:, 1] += 1
    return image, image * 2, image.contiguous(), torch.relu(image - 8)


@case
def strides_of_results(x):
    t = x.t()
    return t + 1, t + x.view(6, 4), t * x[:, :1].t(), t[::2] + t[1::2], t.to(torch.float64), t.sum(0, keepdim=True)


@case
def expand_then_compute(x):
    wide = x[:1].expand(4, 6)
    return wide, wide + 1, wide.t() @ x


@case
def rearranging_functions(x):
    return x.roll(1, 0), x.flip(1), x.rot90(), torch.stack([x, x], 1), x.repeat(2, 1), x.tile(1, 2), x.tril(), x.triu(1)


@case
def in_place_on_many(x):
    parts = list(x.chunk(2))
    torch._foreach_add_(parts, 1)
    torch._foreach_mul_(parts, [2.0, 3.0])
    return parts


@case
def in_place_with_hidden_mutation(x):
    """Batch norm writes its running statistics without saying so in its schema."""
    mean, variance = torch.zeros(6, device=x.device), torch.ones(6, device=x.device)
    y = torch.nn.functional.batch_norm(x, mean, variance, training=True)
    return y, mean, variance


@case
def sort_and_topk_views(x):
    values, indices = x.neg().sort(dim=1)
    values[:, 0] = 0
    return values, indices, x.topk(2, dim=0).values


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", case)
def test_case(name, state):
    both(case[name], matrix(), state=state)


def test_growing_by_cat():
    def grow(x):
        cache = x[:0]
        for row in range(4):
            cache = torch.cat([cache, x[row : row + 1] * 2])
        return cache

    both(grow, matrix())


@pytest.mark.parametrize("is_differentiated", [False, True])
@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (2, 1, 0)])
def test_one_dimensional_max_pooling(order, is_differentiated):
    x = torch.randn([(3, 4, 9)[i] for i in order]).permute(order)  # each order is its own inverse
    on_cpu, on_device = (x.detach().clone().to(device).requires_grad_(is_differentiated) for device in ("cpu", "lazy"))
    expected, result = (torch.nn.functional.max_pool1d(t, 3, stride=2, padding=1) for t in (on_cpu, on_device))
    assert result.stride() == expected.stride()
    assert torch.equal(result.cpu(), expected)
    if is_differentiated:
        for t in (expected, result):
            t.square().sum().backward()
        assert torch.equal(on_device.grad.cpu(), on_cpu.grad)
