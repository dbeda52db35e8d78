"""What must be equal on both sides, and in which words it is not."""

import re

import torch


class Mismatch(Exception):
    """`kind` says what is different, `statement` where that was seen, or None at the end."""

    def __init__(self, kind, detail, statement=None):
        super().__init__(f"{kind}: {detail}")
        self.kind, self.detail, self.statement = kind, detail, statement


IGNORED: set[str] = set()  # kinds of mismatches

PROPERTIES = {
    "dtype": lambda t: t.dtype,
    "shape": lambda t: tuple(t.shape),
    "stride": lambda t: t.stride(),
    "storage_offset": lambda t: t.storage_offset(),
    # What a kernel allocates to return no element is its own affair.
    "storage size": lambda t: t.untyped_storage().nbytes() if t.numel() else None,
    "conjugate bit": lambda t: t.is_conj(),
    "negative bit": lambda t: t.is_neg(),
    "requires_grad": lambda t: t.requires_grad,
    "is_leaf": lambda t: t.is_leaf,
    "version": lambda t: t._version,
}


def _properties(tensor):
    try:
        return [read(tensor) for read in PROPERTIES.values()]
    except RuntimeError as error:  # a view that autograd cannot rebuild
        return [str(error).splitlines()[0]]


def check_metadata(name, expected, actual, any_version=False):
    """Reads no data, so that what is pending stays pending."""
    wanted, got = _properties(expected), _properties(actual)
    if wanted != got:
        for label, w, g in zip(PROPERTIES, wanted, got, strict=True):
            if w != g:
                label = "degenerate stride" if label == "stride" and _is_degenerate(expected, w, g) else label
                if label in IGNORED or (label == "version" and any_version):
                    continue
                raise Mismatch(label, f"{label} of {name} is {g}, on the CPU {w}")


def _is_degenerate(tensor, wanted, got):
    """Only strides differ that no element depends on."""
    if tensor.numel() == 0:
        return True
    return all(w == g or size == 1 for size, w, g in zip(tensor.shape, wanted, got, strict=True))


def check_values(name, expected, actual):
    # A gradient of zeros may have no memory on the CPU.
    wanted = (expected.clone() if expected._is_zerotensor() else expected).detach().tolist()
    got = actual.detach().cpu().tolist()
    if repr(wanted) != repr(got):
        kind = "rounding" if _nearly_equal(expected, actual) else "values"
        raise Mismatch(kind, f"{name} is {got}, on the CPU {wanted}")


def _nearly_equal(expected, actual):
    expected, actual = expected.detach().resolve_conj().resolve_neg(), actual.detach().cpu()
    if not (expected.is_floating_point() or expected.is_complex()):
        return False
    wide = torch.complex128 if expected.is_complex() else torch.float64
    tolerance = 64 * torch.finfo(expected.dtype).eps
    return torch.allclose(actual.to(wide), expected.to(wide), tolerance, tolerance, equal_nan=True)


def check_tensor(name, expected, actual):
    check_values(name, expected, actual)
    if expected.requires_grad and _is_leaf(expected):
        _check_gradient(f"{name}.grad", expected.grad, actual.grad)


def _is_leaf(tensor):
    try:
        return tensor.is_leaf
    except RuntimeError:  # a view that autograd cannot rebuild
        return False


def _check_gradient(name, expected, actual):
    if (expected is None) != (actual is None):
        raise Mismatch("gradient", f"{name} is {actual}, on the CPU {expected}")
    if expected is not None:
        # Whether a gradient is added in place depends on who else holds it.
        check_metadata(name, expected, actual, any_version=True)
        check_values(name, expected, actual)


def check_sharing(expected, actual):
    """The same pairs of variables share memory: `expected` and `actual` are dictionaries with the same keys."""
    for name, owner in _first_owners(expected).items():
        if name != owner and not torch._C._is_alias_of(actual[name], actual[owner]):
            raise Mismatch("sharing", f"{name} does not share memory with {owner}")
    if len(set(_first_owners(expected).values())) != len(set(_first_owners(actual).values())):
        raise Mismatch("sharing", f"shared: {_first_owners(actual)}, on the CPU {_first_owners(expected)}")


def _first_owners(variables):
    owners = {}
    return {name: owners.setdefault(t.untyped_storage()._cdata, name) for name, t in variables.items()}


_DEVICE = re.compile(r",\s*device='lazy:\d+'")


def check_observed(expected, actual):
    """Numbers, lists and texts that a program has read."""
    wanted, got = repr(expected), repr(actual)
    if isinstance(expected, str):
        # Lines are folded at other places when the device is named.
        wanted, got = ("".join(_DEVICE.sub("", text).split()) for text in (expected, str(actual)))
    if wanted != got:
        kind = "observed rounding" if _close_numbers(expected, actual) else "observed"
        raise Mismatch(kind, f"read {got}, on the CPU {wanted}")


def _close_numbers(expected, actual):
    try:
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5, equal_nan=True)
    except (AssertionError, ValueError, TypeError):
        return False
    return True
