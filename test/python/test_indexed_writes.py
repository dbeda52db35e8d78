"""`copy_`, and writes at places that other tensors name."""

import helpers
import pytest
import torch
from helpers import STATES, both
from matrix_cases import Cases, matrix

case = Cases()


# copy_ ---------------------------------------------------------------------------------------------------------------


@case
def copy_between_disjoint_rows(x):
    x[2:].copy_(x[:2])


@case
def copy_overlapping_rows_via_clone(x):
    x[1:].copy_(x[:-1].clone())


@case
def copy_onto_itself(x):
    x.copy_(x)


@case
def copy_transposed(x):
    y = torch.empty(6, 4, device=x.device)
    y.copy_(x.t())
    return y


@case
def copy_into_transposed(x):
    y = torch.zeros(6, 4, device=x.device)
    y.t().copy_(x)
    return y


@case
def copy_broadcast(x):
    x.copy_(x[:, :1].clone())


@case
def copy_with_conversion(x):
    y = torch.zeros(4, 6, dtype=torch.int64, device=x.device)
    y.copy_(x + 0.75)
    y[0].copy_(x[1])
    return y


@case
def copy_into_expanded_source(x):
    return x[0].expand(4, 6).contiguous().add_(1)


# Indexing ------------------------------------------------------------------------------------------------------------


@case
def index_put(x):
    rows = torch.tensor([0, 2], device=x.device)
    x[rows] = 5


@case
def index_put_two_indices(x):
    rows, columns = torch.tensor([0, 2, 3], device=x.device), torch.tensor([1, 1, 5], device=x.device)
    x[rows, columns] = torch.tensor([1.0, 2.0, 3.0], device=x.device)


@case
def index_put_accumulate(x):
    rows = torch.tensor([1, 1, 2], device=x.device)
    x.index_put_((rows,), torch.ones(3, 6, device=x.device), accumulate=True)


@case
def index_put_on_view(x):
    x[:, 1:4][torch.tensor([0, 3], device=x.device)] = -1


@case
def index_read_is_a_copy(x):
    y = x[torch.tensor([0, 0, 1], device=x.device)]
    y.zero_()
    return y


@case
def index_add_fill_copy(x):
    index = torch.tensor([0, 2], device=x.device)
    x.index_add_(0, index, torch.ones(2, 6, device=x.device))
    x.index_fill_(1, index, -1)
    x.index_copy_(0, index, torch.full((2, 6), 9.0, device=x.device))


@case
def scatter_and_gather(x):
    index = torch.tensor([[0, 1, 2, 0, 1, 3]], device=x.device)
    x.scatter_(0, index, 100.0)
    x.scatter_add_(0, index, torch.ones(1, 6, device=x.device))
    return x.gather(0, index)


@case
def masked_fill(x):
    x.masked_fill_(x > 10, 0)
    x[:, 2:4].masked_fill_(x[:, 2:4] == 2, -2)


@case
def masked_assignment(x):
    x[x > 15] = 1


@case
def where_and_assign(x):
    x[1:] = torch.where(x[1:] > 12, x[1:], -x[1:])


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", case)
def test_case(name, state):
    # Boolean masks have results of a size only the data knows: these may fall back.
    both(case[name], matrix(), state=state, fallbacks=None if name == "masked_assignment" else 0)


@pytest.mark.parametrize("size", [6, 200])
def test_values_where_a_mask_is_true(size):
    """What fits is known only from the mask: such a write runs at once, and nobody guesses with other masks."""

    def program(x, mask, row):
        x[mask] = torch.arange(0.0, 0.5 * row.shape[0], 0.5, device=x.device)[: int(mask.sum())]
        x[mask[:, 0]] = x[mask[:, 0]] * 2 + row
        x.index_put_((mask,), row[:1], accumulate=True)
        y = (x * 2).requires_grad_()
        y[mask].sum().backward()
        return x + 1, y.grad

    x, mask = torch.randn(size, size), torch.zeros(size, size, dtype=torch.bool)
    mask.view(-1)[:size:2] = True
    mask[2, 0] = True
    picks = 2 if helpers.IS_LAZY else 0  # whose sizes only the data know
    both(program, x, mask, torch.randn(size), fallbacks=picks)


@pytest.mark.parametrize("size", [6, 200])
def test_values_that_do_not_fit_a_mask_are_refused_at_the_line(size):
    def program(device):
        x = torch.ones(size, size, device=device)
        x[x > 0] = torch.ones(size + 1, device=device)

    helpers.assert_same_error(helpers.error_of(program, helpers.DEVICE), helpers.error_of(program, "cpu"))
