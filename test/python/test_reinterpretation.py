"""Memory that is seen as another dtype, as complex numbers or as their parts."""

import pytest
import torch
from helpers import STATES, both
from matrix_cases import Cases, matrix

case = Cases()


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


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", case)
def test_case(name, state):
    both(case[name], matrix(), state=state)
