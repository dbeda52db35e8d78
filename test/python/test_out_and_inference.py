"""out= arguments that are resized, and ops that have no Meta kernel or a wrong one: as in eager, and captured."""

import pytest
import torch
from composed import same_on_both
from helpers import DEVICE, both, work


def eye_lu(device):
    return [t.to(device) for t in torch.linalg.lu_factor(torch.eye(3))]


def ldl(device):
    return [t.to(device) for t in torch.linalg.ldl_factor(torch.eye(3))]


def out(device, *sizes, dtype=torch.float32):
    return torch.zeros(*sizes, device=device, dtype=dtype)


RESIZED = {
    "lu_solve": lambda d: torch.linalg.lu_solve(*eye_lu(d), torch.ones(3, 4, device=d), out=out(d, 0)),
    "ldl_solve": lambda d: torch.linalg.ldl_solve(*ldl(d), torch.ones(3, 4, device=d), out=out(d, 0)),
    "ormqr": lambda d: torch.ormqr(
        torch.ones(3, 3, device=d), torch.ones(3, device=d), torch.ones(3, 4, device=d), out=out(d, 0)
    ),
    "cholesky_inverse": lambda d: torch.cholesky_inverse(torch.ones(0, 2, 2, device=d), out=out(d, 3, 2, 2)),
    "householder": lambda d: torch.linalg.householder_product(
        torch.ones(0, 3, 2, device=d), torch.ones(0, 2, device=d), out=out(d, 3, 2, 2)
    ),
    "normal_mean": lambda d: torch.normal(torch.ones(3, device=d), 1.0, out=out(d, 0)),
    "wrong_dtype": lambda d: torch.bitwise_not(out(d, 0, dtype=torch.int64), out=out(d, ())),
    "add": lambda d: torch.add(torch.ones(0, 2, device=d), 1, out=out(d, 3)),
}


@pytest.mark.parametrize("name", RESIZED)
def test_resized_out(name):
    same_on_both(RESIZED[name])


def test_the_last_bit_does_not_depend_on_when_out_is_resized():
    """Of these, float64 results of float32 numbers take the vectorised kernel in the order of the operands only."""
    values = torch.linspace(-3, 3, 99).reshape(33, 3)

    def call(device):
        a, b = (t.to(device).t() for t in (values, values.flip(0) * 0.7))
        return [torch.atan2(a, b, out=out(device, *sizes, dtype=torch.float64)) for sizes in ((0,), (2, 33, 3))]

    expected, actual = call("cpu"), call(DEVICE)
    for wanted, got in zip(expected, actual, strict=True):
        assert got.stride() == wanted.stride()
        assert torch.equal(got.cpu(), wanted)


@pytest.mark.lazy_only
def test_nothing_falls_back_to_resize_an_empty_result():
    with work() as done:
        RESIZED["cholesky_inverse"]("lazy")
    assert done.fallbacks == 0


def test_an_empty_result_may_be_the_argument():
    both(lambda x: torch.nn.functional.channel_shuffle(x, 2), torch.ones(0, 4, 2, 2), fallbacks=None)


WITHOUT_META = {
    "cholesky_inverse": lambda x: torch.cholesky_inverse(x + 3 * torch.eye(3, device=x.device)),
    "geqrf": lambda x: torch.geqrf(x),
    "histogram": lambda x: torch.histogram(x, 4, range=(0.0, 3.0)),
    "histogramdd": lambda x: torch.histogramdd(x, [2, 2, 2], range=[0.0, 1.0, 0.0, 1.0, 0.0, 1.0])[0],
}
LOSSES = {
    "multi_margin": lambda x: torch.nn.functional.multi_margin_loss(x, x[0].long()),
    "multilabel_margin": lambda x: torch.nn.functional.multilabel_margin_loss(x, x.long()),
}


def values():
    return torch.tensor([[0.0, 1, 2], [1, 0, 2], [2, 1, 0]])


@pytest.mark.parametrize("name", WITHOUT_META)
def test_captured_without_a_meta_kernel(name):
    both(WITHOUT_META[name], values())


@pytest.mark.parametrize("name", LOSSES)
def test_captured_backward_without_a_meta_kernel(name):
    def call(x):
        x = x.clone().requires_grad_()
        return torch.autograd.grad(LOSSES[name](x), x)

    both(call, values())
