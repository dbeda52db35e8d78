"""Writes through views: the base and all other views see them, and values that were read before do not."""

import pytest
import torch
from helpers import DEVICE, STATES, both, finish_pending, work
from matrix_cases import Cases, matrix

case = Cases()


@case
def write_whole(x):
    x.add_(1)


@case
def write_row(x):
    x[1] = 7


@case
def write_row_tensor(x):
    x[1] = torch.arange(6, device=x.device) * 2.0


@case
def write_column(x):
    x[:, 2] += 10


@case
def write_element(x):
    x[2, 3] = -1


@case
def write_block(x):
    x[1:3, 2:5].mul_(2)


@case
def write_strided_block(x):
    x[::2, 1::3] = 0


@case
def write_negative_index(x):
    x[-1, -2:] = 5


@case
def write_ellipsis(x):
    x[..., 0].zero_()


@case
def write_none_index(x):
    x[None, :, 1].fill_(3)


@case
def write_through_transpose(x):
    t = x.t()
    t[2] = 9
    return t


@case
def write_through_transpose_of_slice(x):
    x[1:3].transpose(0, 1)[1:4].add_(100)


@case
def write_through_slice_of_transpose(x):
    x.transpose(0, 1)[1:4, ::2].add_(100)


@case
def write_through_permute(x):
    y = x.view(2, 2, 6).permute(2, 0, 1)
    y[3].mul_(-1)
    return y


@case
def write_through_view(x):
    y = x.view(2, 12)
    y[0, 5:8] = 0
    return y


@case
def write_through_reshape_that_copies(x):
    y = x.t().reshape(24)
    y.fill_(1)
    return y


@case
def write_through_unsqueeze(x):
    x.unsqueeze(1)[:, 0, 1] = 4


@case
def write_through_squeeze(x):
    x[:, 2:3].squeeze(1).neg_()


@case
def write_through_select(x):
    x.select(1, 4).copy_(x.select(1, 0))


@case
def write_through_narrow(x):
    x.narrow(1, 2, 3).sub_(1)


@case
def write_through_diagonal(x):
    x.diagonal().fill_(-5)


@case
def write_through_offset_diagonal(x):
    x.diagonal(1).add_(torch.arange(4, device=x.device))


@case
def write_through_unfold(x):
    windows = x.unfold(1, 2, 2)
    windows[:, 1].zero_()
    return windows


@case
def write_through_flatten(x):
    x.flatten()[7:9] = 0


@case
def write_through_movedim(x):
    x.view(2, 2, 6).movedim(2, 0)[0] = 1


@case
def write_through_expand_source(x):
    wide = x[:, :1].expand(4, 5)
    x[:, 0] += 1
    return wide


@case
def write_through_as_strided(x):
    y = x.as_strided((3, 2), (7, 2), 1)
    y.mul_(10)
    return y


@case
def write_through_as_strided_of_view(x):
    y = x[1:].as_strided((2, 2), (1, 6), 8)
    y.fill_(0)
    return y


@case
def as_strided_beyond_the_view(x):
    """A view of a view sees the whole storage."""
    row = x[2]
    everything = row.as_strided((24,), (1,), 0)
    everything[0] = -1
    return row, everything


@case
def chunk_and_write(x):
    parts = x.chunk(3, dim=1)
    parts[1].fill_(0)
    parts[2].add_(parts[0])
    return parts


@case
def split_and_write(x):
    a, b = x.split([1, 3])
    b.mul_(2)
    a.copy_(b[0])
    return a, b


@case
def unbind_and_write(x):
    rows = x.unbind()
    rows[3].zero_()
    return rows


@case
def tensor_split_and_write(x):
    parts = x.tensor_split((1, 4), dim=1)
    parts[1].exp_()
    return parts


@case
def hsplit_and_write(x):
    parts = x.hsplit(2)
    parts[0].add_(1)
    return parts


@case
def nested_views(x):
    a = x[1:]
    b = a[:, 1:5]
    c = b.t()
    d = c[::2]
    d.fill_(-3)
    return a, b, c, d


@case
def sibling_views(x):
    left, right = x[:, :3], x[:, 3:]
    left += right
    right *= left
    return left, right


@case
def overlapping_views(x):
    a, b = x[0:3], x[1:4]
    a += 1
    b *= 2
    a -= b[0].clone()
    return a, b


@case
def overlapping_different_geometry(x):
    column, row, diagonal = x[:, 1], x[1], x.diagonal()
    column.fill_(50)
    row.add_(1)
    diagonal.neg_()
    return column, row, diagonal


@case
def view_made_before_write_reads_after(x):
    view = x[:2].t()
    x.mul_(3)
    first = view * 1
    x.add_(1)
    return first, view + 0


@case
def old_value_survives_write(x):
    old = x * 2
    kept = x[0] + 0
    x.zero_()
    return old, kept


@case
def read_write_read(x):
    a = x.sum()
    x[0, 0] = 100
    b = x.sum()
    x[0, 0] = 200
    return a, b, x.sum()


@case
def self_assignment(x):
    x[0] = x[1]
    x[1] = x[0] + x[2]
    x[:] = x * x


@case
def in_place_with_itself(x):
    x.add_(x)
    x.mul_(x.clone())


@case
def in_place_with_transposed_self(x):
    square = x[:, :4]
    square.add_(square.t().clone())


@case
def broadcast_write(x):
    x += x[0].clone()
    x[:, 1:3] = torch.tensor([[1.0], [2.0], [3.0], [4.0]], device=x.device)


@case
def chained_in_place(x):
    return x.add_(1).mul_(2).sub_(3)


@case
def in_place_returns_self(x):
    y = x.add_(1)
    z = x[0].add_(1)
    return y, z


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", case)
def test_case(name, state):
    both(case[name], matrix(), state=state)


# More than one input -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
def test_inputs_that_share_storage(state):
    base = matrix()

    def write(whole, row, columns):
        row += 1
        columns.mul_(2)
        whole[0].copy_(row)

    both(write, base, base[1], base[:, 2:5], state=state)


@pytest.mark.parametrize("state", STATES)
def test_non_contiguous_inputs(state):
    def compute(a, b, c):
        a.add_(b)
        return a + b, b @ c, c.sum(1)

    both(compute, torch.randn(6, 4).t(), torch.randn(8, 12)[::2, ::2], torch.randn(6, 2), state=state)


@pytest.mark.smoke
@pytest.mark.parametrize(
    "dtype", (torch.int64, torch.int32, torch.uint8, torch.bool, torch.float64, torch.bfloat16, torch.complex64)
)
@pytest.mark.parametrize("state", STATES)
def test_writes_in_every_dtype(dtype, state):
    def write(x):
        x[1] = x[0]
        x[:, 2] = 1
        x.t()[3].zero_()
        return x[::2], x == x[0]

    both(write, matrix().to(dtype), state=state)


# Work ----------------------------------------------------------------------------------------------------------------


@pytest.mark.lazy_only
def test_views_record_nothing():
    x = matrix().to(DEVICE)
    with work() as done:
        x[1:].t().unsqueeze(0).expand(3, 6, 3).detach().view(torch.int32)
        finish_pending()
    assert done.recorded == 0
    assert done.flushes == 0


@pytest.mark.lazy_only
@pytest.mark.own_schedule("counts compilations")
def test_writes_through_views_compile_once():
    def step(x):
        x[:, 0] += 1
        x.t()[2].mul_(2)
        finish_pending()

    x = matrix().to(DEVICE)
    step(x)
    with work() as done:
        for _ in range(5):
            step(x)
    assert done.compiles == 0
    assert done.cache_hits == 5


def test_many_small_writes():
    """The way loops fill a buffer."""

    def fill(x):
        for row in range(4):
            for column in range(6):
                x[row, column] = row * column

    both(fill, matrix())
