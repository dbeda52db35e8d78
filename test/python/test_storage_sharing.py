"""Who shares storage with whom, when tensors change their geometry or their storage in place."""

import pytest
import torch
from helpers import DEVICE, STATES, assert_same_error, both, error_of, finish_pending
from matrix_cases import Cases, matrix

case = Cases()


@pytest.mark.parametrize("sizes", [(3, 3), (3, 0), (0, 3)], ids=str)
def test_storages_swap_what_they_hold(sizes):
    def swap(device):
        first, second = (torch.arange(float(n), device=device).add_(10 * n) for n in sizes)
        views = first[1:], second[1:]
        first.untyped_storage()._swap_data_ptr_(second.untyped_storage())
        held = [t.untyped_storage().nbytes() for t in (first, second)]
        for view in [v for v, size in zip(views, held, strict=True) if size]:
            view.mul_(2) if view.numel() else None
        rest = [t.as_strided((size // 4,), (1,)) for t, size in zip((first, second), held, strict=True)]
        return held, [t.tolist() for t in rest]

    assert swap(DEVICE) == swap("cpu")


@pytest.mark.parametrize("size, where", [(4, None), (3, "meta")])
def test_storages_that_cannot_be_swapped(size, where):
    def swap(device):
        storage = torch.zeros(size, device=where or device).untyped_storage()
        torch.ones(3, device=device).untyped_storage()._swap_data_ptr_(storage)

    assert_same_error(error_of(swap, DEVICE), error_of(swap, "cpu"))


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


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", case)
def test_case(name, state):
    both(case[name], matrix(), state=state)


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
