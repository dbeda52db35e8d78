"""Comparison with the CPU for sparse, compressed, quantized and nested tensors."""

import torch
from helpers import DEVICE, assert_same_error, tensors_in


def same_on_both(fn):
    """Runs `fn(device)` on both sides, and compares everything a user can see of the results, or the errors.
    Returns the device's results."""
    expected, expected_error = _attempt(fn, "cpu")
    actual, error = _attempt(fn, DEVICE)
    if expected_error is not None:
        assert_same_error(error, expected_error)
    elif error is not None:
        raise error
    found, wanted = tensors_in(actual), tensors_in(expected)
    assert len(found) == len(wanted)
    for a, e in zip(found, wanted, strict=True):
        assert_same_composed(a, e)
    if not wanted:
        assert actual == expected
    return actual


def _attempt(fn, device):
    torch.manual_seed(0)
    try:
        return fn(device), None
    except Exception as error:  # noqa: BLE001  (any kind: its kind is what is compared)
        return None, error


def assert_same_composed(actual, expected):
    assert actual.device.type == torch.device(DEVICE).type
    for name in ("layout", "dtype", "is_nested", "is_quantized", "is_sparse", "requires_grad"):
        assert getattr(actual, name) == getattr(expected, name), name
    if expected.is_nested:
        assert_all_same(actual.unbind(), expected.unbind())
    elif expected.is_sparse:
        assert (actual.shape, actual._nnz()) == (expected.shape, expected._nnz())
        assert actual.is_coalesced() == expected.is_coalesced()
        assert_all_same([actual._indices(), actual._values()], [expected._indices(), expected._values()])
    elif expected.is_quantized:
        assert (actual.shape, actual.stride(), actual.qscheme()) == (
            expected.shape,
            expected.stride(),
            expected.qscheme(),
        )
        assert_all_same([actual.int_repr()], [expected.int_repr()])
    elif expected.layout != torch.strided:
        assert actual.shape == expected.shape
        assert_all_same([actual.values(), actual.to_dense()], [expected.values(), expected.to_dense()])
    else:
        assert (actual.shape, actual.stride()) == (expected.shape, expected.stride())
        torch.testing.assert_close(actual.detach().cpu(), expected.detach(), equal_nan=True)


def assert_all_same(actual, expected):
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        assert_same_composed(a, e)
