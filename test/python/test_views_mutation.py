"""Views and mutation, as in eager: values, strides, offsets, and who shares storage with whom.

Every case runs three times: on inputs with memory, on inputs that are themselves pending, and with everything
pending executed after each line. The cases take a 4x6 matrix of 0..23 and may return anything.
"""

import pytest
import torch
from helpers import DEVICE, STATES, both, finish_pending, work

CASES = {}


def case(fn):
    CASES[fn.__name__] = fn
    return fn


def matrix():
    return torch.arange(24, dtype=torch.float32).reshape(4, 6)


# Writes through a view are seen by its base --------------------------------------------------------------------------


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


# Metadata changed in place -------------------------------------------------------------------------------------------


@case
def t_in_place(x):
    y = x[:]
    y.t_()
    y[0] = 3
    return y


@case
def transpose_in_place(x):
    x.transpose_(0, 1)
    return x + 1


@case
def transpose_in_place_after_write(x):
    x.mul_(2).transpose_(0, 1).add_(1)


@case
def squeeze_in_place(x):
    y = x[:, 1:2]
    y.squeeze_()
    y.add_(1)
    return y


@case
def unsqueeze_in_place(x):
    x.unsqueeze_(0)
    x[0, 1] = 0


@case
def swapdims_in_place(x):
    x.swapdims_(0, 1)
    return x.contiguous()


@case
def as_strided_in_place(x):
    x.as_strided_((2, 3), (12, 2), 1)
    x.neg_()
    return x.as_strided((24,), (1,), 0)


@case
def detach_in_place(x):
    y = (x * 2).detach_()
    y.add_(1)
    return y


# .data, detach, set_, swapping ---------------------------------------------------------------------------------------


@case
def detach_shares(x):
    y = x.detach()
    y[0] = 1
    x[1] = 2
    return y


@case
def data_shares(x):
    x.data[0] = 1
    y = x.data
    y.mul_(2)
    return y


@case
def assign_data(x):
    old = x[1]
    x.data = torch.ones(2, 3, device=x.device)
    x.add_(1)
    old.add_(1)
    return x, old


@case
def swap_data(x):
    y = torch.zeros(3, device=x.device)
    view_of_x, view_of_y = x[0], y[:2]
    x.data, y.data = y.data, x.data
    x.add_(5)
    y.sub_(5)
    return x, y, view_of_x, view_of_y


@case
def swap_tensors(x):
    y = torch.zeros(3, device=x.device)
    torch.utils.swap_tensors(x, y)
    y.add_(1)
    return y


@case
def set_tensor(x):
    y = torch.empty(0, device=x.device)
    y.set_(x)
    y[2] = -2
    return y


@case
def set_storage(x):
    y = torch.empty(0, device=x.device)
    y.set_(x.untyped_storage(), 3, (2, 4), (6, 1))
    y.add_(1)
    return y


@case
def set_other_geometry(x):
    y = torch.empty(0, device=x.device)
    y.set_(x, 2, (3, 3), (1, 6))
    y.mul_(2)
    return y


@case
def set_empty(x):
    view = x[0]
    x.set_()
    view.add_(1)
    return x, view


@case
def storage_of_view_is_whole(x):
    return x[2].untyped_storage().nbytes(), x.untyped_storage().size()


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


# Reinterpretation ----------------------------------------------------------------------------------------------------


@case
def view_as_int(x):
    bits = x.view(torch.int32)
    bits[0] = 0x3F800000
    x[1] = 2
    return bits, bits + 1


@case
def view_as_smaller_dtype(x):
    halves = x.view(torch.int16)
    halves[:, ::2] = 0
    return halves


@case
def view_as_larger_dtype(x):
    wide = x.view(torch.int64)
    x.add_(1)
    return wide


@case
def view_as_bytes_of_slice(x):
    raw = x[1:3].view(torch.uint8)
    raw[0, :4] = 0
    return raw


@case
def view_as_complex(x):
    c = torch.view_as_complex(x.view(4, 3, 2))
    c[0] = 1 + 2j
    x[1] *= 2
    return c, c * 1j


@case
def view_as_real(x):
    c = torch.complex(x[:, :3], x[:, 3:])
    r = torch.view_as_real(c)
    r[..., 1] = 7
    c.mul_(2)
    return c, r


@case
def real_and_imag(x):
    c = torch.complex(x[:, :3], x[:, 3:])
    c.imag.zero_()
    c.real.add_(1)
    return c, c.real, c.imag


@case
def conjugate_view(x):
    c = torch.complex(x[:, :3], x[:, 3:])
    conjugate = c.conj()
    c[0] = 1j
    return conjugate, conjugate.resolve_conj(), conjugate.imag


# Shapes at the edges -------------------------------------------------------------------------------------------------


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
@pytest.mark.parametrize("name", CASES)
def test_case(name, state):
    # Boolean masks have results of a size only the data knows: these may fall back.
    both(CASES[name], matrix(), state=state, fallbacks=None if name == "masked_assignment" else 0)


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

    both(write, matrix().to(dtype), state=state, exact=True)


# Autograd meets views ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
def test_gradients_through_views_and_writes(state):
    def compute(x):
        y = x * 2
        y[1:3, ::2] *= x[0, ::2]
        y.t()[1] = x[:, 5] ** 2
        left, right = y.split(3, dim=1)
        (left * right.flip(1)).sum().backward()
        return y, left

    both(compute, matrix().requires_grad_(), state=state)


@pytest.mark.parametrize("state", STATES)
def test_gradients_of_overlapping_reads(state):
    def compute(x):
        (x.unfold(1, 3, 1).prod(-1) + x.as_strided((4, 4), (6, 1), 1)).sum().backward()

    both(compute, matrix().requires_grad_(), state=state)


def test_writing_what_backward_needs_is_an_error():
    x = matrix().to(DEVICE).requires_grad_()
    y = x.exp()
    y[0] = 0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_version_counter():
    x = matrix().to(DEVICE)
    start = x._version
    x[0].add_(1)
    x.detach().add_(1)
    assert x._version == start + 2


# Memory --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pending", (False, True))
def test_views_share_memory_once_available(pending):
    x = matrix().to(DEVICE)
    if pending:
        x = x + 1
    views = [x, x[1], x.t(), x[:, 3:], x.detach(), x.data, x.view(24), x.view(torch.int32)]
    finish_pending()
    base = x.data_ptr()
    assert base != 0
    for view in views:
        assert view.data_ptr() == base + view.storage_offset() * view.element_size()
        assert view.untyped_storage().data_ptr() == base


def test_data_ptr_is_never_null_or_stale():
    """Pending data has no address: the pointer is either made valid first or refused."""
    x = matrix().to(DEVICE) + 1
    try:
        pointer = x.data_ptr()
    except RuntimeError:
        finish_pending()
        pointer = x.data_ptr()
    assert pointer != 0
    x.add_(1)
    finish_pending()
    assert x.data_ptr() != 0
    torch.testing.assert_close(x.cpu(), matrix() + 2)


def test_different_results_have_different_memory():
    a = matrix().to(DEVICE) + 1
    b = matrix().to(DEVICE) + 1
    c = a.clone()
    finish_pending()
    assert len({t.data_ptr() for t in (a, b, c)}) == 3


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


def test_growing_by_cat():
    def grow(x):
        cache = x[:0]
        for row in range(4):
            cache = torch.cat([cache, x[row : row + 1] * 2])
        return cache

    both(grow, matrix())
