"""`out=` of every kind, and `resize_`."""

import pytest
import torch
from helpers import STATES, both
from matrix_cases import Cases, matrix

from torch_lazyplug import config

case = Cases()


# out= and resize -----------------------------------------------------------------------------------------------------


@case
def out_same_size(x):
    out = torch.zeros(4, 6, device=x.device)
    result = torch.add(x, 1, out=out)
    return result, out


@case
def out_into_view(x):
    out = torch.zeros(8, 6, device=x.device)
    torch.mul(x, 2, out=out[2:6])
    return out


@case
def out_into_transposed(x):
    out = torch.zeros(6, 4, device=x.device).t()
    torch.exp(x, out=out)
    return out


@case
def out_resizes_empty(x):
    out = torch.empty(0, device=x.device)
    torch.sub(x, 1, out=out)
    return out


@case
def out_is_an_input(x):
    torch.add(x, x, out=x)


@case
def out_overlaps_nothing(x):
    torch.add(x[0], x[1], out=x[2])


@case
def out_with_conversion(x):
    out = torch.zeros(4, 6, dtype=torch.float64, device=x.device)
    torch.add(x, 1, out=out)
    return out


@case
def out_matmul(x):
    out = torch.empty(0, device=x.device)
    torch.mm(x, x.t(), out=out)
    return out


@case
def out_two_results(x):
    values, indices = torch.empty(0, device=x.device), torch.empty(0, dtype=torch.int64, device=x.device)
    torch.max(x, 1, out=(values, indices))
    return values, indices


@case
def out_reduction(x):
    out = torch.zeros(6, device=x.device)
    torch.sum(x, 0, out=out)
    return out


@case
def out_cat(x):
    out = torch.empty(0, device=x.device)
    torch.cat([x, x[:1]], out=out)
    return out


@case
def out_kron(x):
    out = torch.empty(0, device=x.device)
    torch.kron(x[:2, :2], x[:2, :1], out=out)
    return out


@case
def resize_smaller(x):
    x.resize_(2, 3)
    x.add_(1)


@case
def resize_larger_and_fill(x):
    x.resize_(5, 6)
    x[4] = 0


@case
def resize_keeps_views(x):
    view = x[0]
    x.resize_(6, 6)
    x[0] = 9
    x[4:] = 0
    return view


@case
def resize_view(x):
    y = x[1:3]
    y.resize_(2, 2)
    y.zero_()
    return y


@case
def resize_as(x):
    y = torch.zeros(3, device=x.device)
    y.resize_as_(x)
    y.copy_(x)
    return y


@case
def resize_storage(x):
    x.untyped_storage().resize_(24 * 4 + 40)
    x.add_(1)


@case
def resize_to_zero_and_back(x):
    y = x * 2
    y.resize_(0)
    y.resize_(2, 2)
    y.fill_(3)
    return y


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", case)
def test_case(name, state):
    both(case[name], matrix(), state=state)


@pytest.mark.parametrize("seed", range(1, 9))
def test_storages_that_kernels_resize_have_eagers_size(seed):
    """Also where there is more memory behind them than they need."""

    def grow(x, zeros):
        mask = torch.logical_and(x, x)
        part = mask.narrow(0, 1, 0)
        torch.gt(mask, zeros, out=part)
        return part

    with config.changed({"scramble": seed, "run_at_once": "never"}):
        both(grow, torch.ones(1), torch.zeros(1, 1), fallbacks=1)


@pytest.mark.parametrize("size", [10, 200])
def test_what_is_resized_lies_as_the_operands(size):
    def program(x, image):
        return (
            torch.neg(x.t(), out=torch.empty(0, device=x.device)),
            torch.add(x.t(), 1, out=torch.empty(0, device=x.device)),
            torch.cat([image, image], out=torch.empty(0, device=x.device)),
        )

    image = torch.ones(2, 3, size // 2, size).to(memory_format=torch.channels_last)
    both(program, torch.ones(size, size + 1), image)
