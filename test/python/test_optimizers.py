"""Every optimiser of PyTorch's database, with each of its settings, takes the steps that it takes on the CPU."""

import copy

import pytest
import torch
from helpers import DEVICE, assert_same, work
from torch.testing._internal.common_optimizers import _get_optim_inputs_including_global_cliquey_kwargs, optim_db

STEPS = 3
SHAPES = {"Muon": [(4, 3), (3, 5)]}  # it takes matrices only


def settings(info):
    """The arguments of the constructor, each with `foreach`, `fused` and neither, as far as it knows them."""
    return [i.kwargs for i in _get_optim_inputs_including_global_cliquey_kwargs("cpu", torch.float32, info)]


def make_gradients(optimizer, parameters, step):
    if type(optimizer) is torch.optim.SparseAdam:
        for p in parameters:
            p.grad = (torch.ones_like(p) * (step + 1)).to_sparse()
        return None
    optimizer.zero_grad()
    loss = sum((p**2).sum() for p in parameters)
    for p, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        p.grad = gradient
    return loss


def train(info, arguments, device):
    torch.manual_seed(0)
    shapes = SHAPES.get(info.optim_cls.__name__, [(4, 3), (5,), (1,)])
    parameters = [torch.randn(shape).to(device).requires_grad_() for shape in shapes]
    if arguments.get("differentiable"):
        parameters = [p.clone() for p in parameters]
    optimizer = info.optim_cls(parameters, **copy.deepcopy(arguments))
    for step in range(STEPS):
        optimizer.step(lambda step=step: make_gradients(optimizer, parameters, step))
    return [p.detach() for p in parameters], optimizer.state_dict()["state"]


@pytest.mark.parametrize("info", optim_db, ids=lambda info: info.optim_cls.__name__)
def test_steps(info):
    is_sparse = info.optim_cls is torch.optim.SparseAdam
    for arguments in settings(info):
        with work() as done:
            actual = train(info, arguments, DEVICE)
        # On devices these two compute for all parameters at once unless told, which rounds differently.
        is_chosen = info.optim_cls in (torch.optim.ASGD, torch.optim.NAdam) and not {"foreach", "fused"} & {*arguments}
        tolerances = {"rtol": 1.3e-6, "atol": 1e-7} if is_chosen else {}
        assert_same(actual, train(info, arguments, "cpu"), str(arguments), **tolerances)
        assert is_sparse or not done.fallbacks, done.fallback_ops
