"""Activation checkpointing, torch.utils.benchmark and deterministic algorithms."""

import pytest
import torch
from helpers import DEVICE, IS_LAZY, both, run_fresh, work
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputation_draws_the_same_dropout_mask(reentrant):
    x = torch.ones(1000, device=DEVICE, requires_grad=True)
    y = checkpoint(nn.functional.dropout, x, 0.5, use_reentrant=reentrant)
    y.sum().backward()
    assert torch.equal(x.grad.cpu(), y.detach().cpu())
    assert 0 < (x.grad == 0).sum().item() < 1000


@pytest.mark.parametrize("reentrant", [True, False])
def test_numbers_after_backward_do_not_depend_on_checkpointing(reentrant):
    def draw(checkpointed):
        torch.manual_seed(3)
        x = torch.ones(16, device=DEVICE, requires_grad=True)
        drop = nn.Dropout(0.5)
        y = checkpoint(drop, x, use_reentrant=reentrant) if checkpointed else drop(x)
        y.sum().backward()
        return y.tolist(), x.grad.tolist(), torch.rand(4, device=DEVICE).tolist(), torch.rand(4).tolist()

    assert draw(True) == draw(False)


def test_own_numbers_when_the_state_is_not_preserved():
    x = torch.ones(1000, device=DEVICE, requires_grad=True)
    y = checkpoint(nn.functional.dropout, x, 0.5, use_reentrant=False, preserve_rng_state=False)
    y.sum().backward()
    assert not torch.equal(x.grad.cpu(), y.detach().cpu())


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradients_of_checkpointed_layers(reentrant):
    layers = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 2))
    parameters = [p.detach() for p in layers.parameters()]

    def step(x, *values):
        model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 2)).to(x.device)
        for parameter, value in zip(model.parameters(), values, strict=True):
            parameter.data.copy_(value)
        checkpoint_sequential(model, 2, x, use_reentrant=reentrant).square().sum().backward()
        return [p.grad for p in model.parameters()]

    both(step, torch.randn(3, 6, requires_grad=True), *parameters)


def test_selective_checkpointing():
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    def policy(context, op, *args, **kwargs):
        save = op is torch.ops.aten.mm.default
        return CheckpointPolicy.MUST_SAVE if save else CheckpointPolicy.PREFER_RECOMPUTE

    def step(x):
        contexts = lambda: create_selective_checkpoint_contexts(policy)  # noqa: E731
        y = checkpoint(lambda t: (t @ t).sin().exp(), x, use_reentrant=False, context_fn=contexts)
        y.sum().backward()
        return y

    both(step, torch.randn(4, 4, requires_grad=True))


@pytest.mark.lazy_only
def test_random_state_of_the_second_device():
    run_fresh(
        """
        from torch.utils.checkpoint import checkpoint
        x = torch.ones(100, device="lazy:1", requires_grad=True)
        for reentrant in (True, False):
            x.grad = None
            y = checkpoint(torch.nn.functional.dropout, x, 0.5, use_reentrant=reentrant)
            y.sum().backward()
            assert torch.equal(x.grad.cpu(), y.detach().cpu())
        """,
        devices=2,
    )


# torch.utils.benchmark -----------------------------------------------------------------------------------------------


def test_timer_waits_for_the_device():
    from torch.utils.benchmark import Timer

    # Every run writes `y`, so that none of them is dead: what nobody can see is not computed.
    x = torch.randn(512, 512, device=DEVICE)
    timer = Timer("y.addmm_(x, x)", globals={"x": x, "y": x.clone()}, num_threads=1)
    with work() as done:
        measured = timer.timeit(5)
    assert measured.number_per_run == 5
    if IS_LAZY:
        assert done.executed == done.recorded >= 5
    assert timer.blocked_autorange(min_run_time=0.01).median > 0


def test_compare_prints_a_table():
    from torch.utils.benchmark import Compare, Timer

    results = [
        Timer(
            "x + 1", globals={"x": torch.ones(4, device=device)}, label="add", sub_label=device, description="add"
        ).timeit(2)
        for device in ("cpu", DEVICE)
    ]
    assert "add" in str(Compare(results))


# Deterministic algorithms --------------------------------------------------------------------------------------------


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def scatter_add(x):
    index = torch.tensor([0, 1, 0, 2], device=x.device)
    return x.new_zeros(3, 4).index_add(0, index, x), x.new_zeros(4, 4).scatter_add(0, index.expand(4, 4), x)


def put_values(x):
    index = torch.tensor([0, 1, 0, 2], device=x.device)
    x.index_put_((index,), x.clone(), accumulate=True)
    return x[index], x.cumsum(0)


@pytest.mark.parametrize("function", [scatter_add, put_values])
def test_deterministic_results(deterministic, function):
    both(function, torch.randn(4, 4))


def test_what_is_refused_on_the_cpu_is_refused(deterministic):
    source = torch.ones(2, 1, 4, 4, requires_grad=True)
    results = []
    for device in ("cpu", DEVICE):
        x = source.detach().to(device).requires_grad_()
        try:
            nn.functional.max_unpool2d(*nn.functional.max_pool2d(x, 2, return_indices=True), 2)
            results.append(None)
        except RuntimeError as error:
            results.append(str(error))
    assert results[0] == results[1]
    assert "does not have a deterministic implementation" in results[0]


def test_new_memory_is_filled(deterministic):
    assert torch.empty(3, device=DEVICE).isnan().all().item()
    assert torch.empty(3, dtype=torch.int64, device=DEVICE).eq(torch.iinfo(torch.int64).max).all().item()
    assert torch.empty(3, device=DEVICE).resize_(5).isnan().all().item()
