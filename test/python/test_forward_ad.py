"""Forward-mode derivatives, of views too: a tangent lies in a storage as large as its primal's."""

import pytest
import torch
import torch.autograd.forward_ad as fwAD
from helpers import STATES, both
from matrix_cases import matrix
from torch import nn
from torch.func import hessian, jacfwd, jvp, linearize

VIEWS = {
    "a row": lambda x: x[1],
    "a column": lambda x: x[:, 2],
    "a block": lambda x: x[1:3, ::2],
    "the transposed": lambda x: x.t(),
    "every other row": lambda x: x[::2],
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_jvp_of_a_view(view, state):
    def compute(x):
        primal = view(x)
        return jvp(lambda z: z.reshape(1, *z.shape).sin(), (primal,), (primal.cos(),))

    both(compute, matrix(), state=state)


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_view_of_a_view_in_jvp(view):
    def compute(x):
        primal = view(x)
        return jvp(lambda z: z.view(1, *z.shape), (primal,), (torch.ones_like(primal),))

    both(compute, matrix())


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_tangents_are_written_like_their_views(view):
    def compute(x):
        with fwAD.dual_level():
            primal = view(x)
            dual = fwAD.make_dual(primal, torch.ones_like(primal)) * 2
            base = torch.zeros_like(x)
            view(base).copy_(dual)
            return tuple(fwAD.unpack_dual(base.view(-1)))

    both(compute, matrix())


@pytest.mark.parametrize("derivative", [jacfwd, hessian])
def test_jacobians_of_a_row(derivative):
    both(lambda x: derivative(lambda z: (z.view(2, 3).exp() ** 2).sum(1))(x[1]), matrix())


def layers():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))


@pytest.mark.parametrize("forward", [lambda f, x, t: jvp(f, (x,), (t,)), lambda f, x, t: (f(x), linearize(f, x)[1](t))])
def test_a_row_through_layers(forward):
    def compute(x):
        return forward(layers().to(x.device), x[0], torch.ones_like(x[0]))

    both(compute, matrix())


def cell_of(kind, dtype, device):
    """A cell as a function of one tensor, and what it computes as one tensor."""
    torch.manual_seed(0)
    cell = kind(6, 4).to(device, dtype)
    hidden = torch.linspace(-1, 1, 3 * 4, dtype=dtype).view(3, 4).to(device)

    def run(x):
        result = cell(x, (hidden, hidden.flip(0)) if kind is nn.LSTMCell else hidden)
        return result[0] * result[1] if kind is nn.LSTMCell else result

    return run, list(cell.parameters())


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_recurrent_cells(kind, dtype):
    x, tangent = torch.linspace(-2, 2, 18, dtype=dtype).view(3, 6), torch.linspace(1, -1, 18, dtype=dtype).view(3, 6)
    rtol = 1e-5 if dtype is torch.float32 else 1e-12

    def compute(x, tangent):
        run, parameters = cell_of(kind, dtype, x.device)
        of_gradient = jvp(lambda z: torch.func.grad(lambda y: run(y).square().sum())(z), (x,), (tangent,))[1]
        with fwAD.dual_level():
            dual = fwAD.unpack_dual(run(fwAD.make_dual(x, tangent)))
        return *jvp(run, (x,), (tangent,)), of_gradient, *torch.autograd.grad(dual.tangent.sum(), parameters)

    def second(x):
        run, _ = cell_of(kind, dtype, x.device)
        return hessian(lambda z: run(z).sum())(x)

    tolerances = {"rtol": rtol, "atol": rtol / 10}
    both(compute, x, tangent, **tolerances, history=False)  # other ops than the CPU's, in the same order
    both(second, x, **tolerances, history=False)


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_zeros_like_a_view_have_its_storage(view):
    both(lambda t, x: [torch.ops.aten._new_zeros_with_same_feature_meta(t, view(x))], torch.ones(3), matrix())
