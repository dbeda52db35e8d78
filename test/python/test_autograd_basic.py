"""Autograd on the device: gradients and everything users hang on to them."""

import gc
import threading
import weakref

import pytest
import torch
import torch.nn.functional as F
from helpers import DEVICE, STATES, both, work
from torch.utils.checkpoint import checkpoint


@pytest.mark.smoke
@pytest.mark.parametrize("state", STATES)
def test_gradients(state):
    def compute(x, w, b):
        loss = F.layer_norm(torch.tanh(x @ w + b), (5,)).square().mean() + (x[:, 0] * b[0]).sum()
        loss.backward()
        return loss

    both(
        compute,
        torch.randn(3, 4, requires_grad=True),
        torch.randn(4, 5, requires_grad=True),
        torch.randn(5, requires_grad=True),
        state=state,
    )


def test_gradients_accumulate():
    def compute(x):
        for factor in (1, 2, 3):
            (x * factor).sum().backward()
        first = x.grad.clone()
        x.grad.zero_()
        x.square().sum().backward()
        return first

    both(compute, torch.randn(3, requires_grad=True))


def test_accumulation_keeps_the_gradient_object():
    x = torch.ones(3, device=DEVICE, requires_grad=True)
    x.sum().backward()
    gradient = x.grad
    x.sum().backward()
    assert x.grad is gradient
    assert gradient.tolist() == [2, 2, 2]


def test_set_to_none_and_zero():
    def compute(x):
        optimizer = torch.optim.SGD([x], lr=0.5)
        x.square().sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        zeros = x.grad.clone()
        x.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        return zeros

    both(compute, torch.randn(3, requires_grad=True))


def test_retain_graph():
    def compute(x):
        loss = x.exp().sum()
        loss.backward(retain_graph=True)
        loss.backward()

    both(compute, torch.randn(3, requires_grad=True))
    x = torch.randn(3, device=DEVICE, requires_grad=True)
    loss = x.exp().sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_retain_grad_and_detach():
    def compute(x):
        y = x * 2
        y.retain_grad()
        z = y.detach() * y
        z.sum().backward()
        return y.grad, z

    both(compute, torch.randn(3, requires_grad=True))


def test_no_grad_and_inference_mode():
    def compute(x):
        with torch.no_grad():
            a = x * 2
            x.add_(1)
        with torch.inference_mode():
            b = (x * 3).sum().item()
        with torch.enable_grad():
            c = x * 4
        return a, b, c, a.requires_grad, c.requires_grad

    both(compute, torch.randn(3, requires_grad=True))


def test_grad_function():
    def compute(x, y):
        z = (x * y).sum() + x.sum()
        return torch.autograd.grad(z, [x, y])

    both(compute, torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True))


def test_unused_inputs():
    def compute(x, y):
        return torch.autograd.grad((x * 2).sum(), [x, y], allow_unused=True)[0], y.grad is None

    both(compute, torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True))


def test_double_backward():
    def compute(x):
        (first,) = torch.autograd.grad(x.pow(3).sum(), x, create_graph=True)
        first.square().sum().backward()
        return first

    both(compute, torch.randn(3, requires_grad=True))


def test_gradient_argument_and_broadcasting():
    def compute(x, y, g):
        (x * y).backward(g)

    both(compute, torch.randn(3, 1, requires_grad=True), torch.randn(4, requires_grad=True), torch.randn(3, 4))


def test_hooks():
    def compute(x):
        seen = []
        x.register_hook(lambda g: g * 2)
        y = x * 3
        y.register_hook(lambda g: seen.append(g + 0))
        handle = x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
        y.square().sum().backward()
        handle.remove()
        return seen

    both(compute, torch.randn(3, requires_grad=True))


def test_hook_that_reads():
    """A read inside backward runs the pending part in the middle of the pass."""

    def compute(x):
        seen = []
        y = x * 3
        y.register_hook(lambda g: seen.append(g.sum().item()))
        (y * y).exp().sum().backward()
        return seen

    both(compute, torch.rand(3, requires_grad=True))


def test_module_hooks():
    model = torch.nn.Linear(3, 2).to(DEVICE)
    seen = []
    model.register_forward_hook(lambda module, inputs, output: seen.append(output.shape))
    model.register_full_backward_hook(lambda module, before, after: seen.append(after[0].device.type))
    model(torch.ones(4, 3, device=DEVICE)).sum().backward()
    assert seen == [(4, 2), torch.device(DEVICE).type]


def test_custom_function():
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return 3 * x**2 * grad

    def compute(x):
        y = Cube.apply(x)
        y.sum().backward()
        return y

    both(compute, torch.randn(3, requires_grad=True))


def test_custom_function_in_place():
    class AddOne(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.add_(1)

        @staticmethod
        def backward(ctx, grad):
            return grad

    def compute(x):
        y = x * 2
        AddOne.apply(y)
        y.square().sum().backward()
        return y

    both(compute, torch.randn(3, requires_grad=True))


def test_threads_train_their_own_models():
    def train(seed, device):
        generator = torch.Generator().manual_seed(seed)
        w = torch.randn(4, 3, generator=generator).to(device).requires_grad_()
        x = torch.randn(5, 4, generator=generator).to(device)
        for _ in range(10):
            (x @ w).tanh().square().sum().backward()
            with torch.no_grad():
                w.sub_(w.grad * 0.1)
            w.grad = None
        return w.detach().cpu()

    results = {}
    threads = [threading.Thread(target=lambda s=seed: results.update({s: train(s, DEVICE)})) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in range(4):
        torch.testing.assert_close(results[seed], train(seed, "cpu"))


def test_checkpointing():
    def compute(x, w):
        y = checkpoint(lambda a: (a @ w).relu().exp(), x, use_reentrant=False)
        y.sum().backward()
        return y

    both(compute, torch.randn(3, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True))


def test_dropout_scales_what_it_keeps():
    x = torch.ones(2000, device=DEVICE, requires_grad=True)
    y = F.dropout(x, 0.25)
    y.sum().backward()
    y, gradient = y.detach().cpu(), x.grad.cpu()
    torch.testing.assert_close(y, gradient)
    assert set(y.unique().tolist()) <= {0.0, torch.tensor(4 / 3).item()}
    assert 0.2 < (y == 0).float().mean() < 0.3


def test_mixed_devices_in_one_graph():
    def compute(x, y):
        z = (x.cpu() * 2).sum() + y.sum().cpu()
        z.backward()
        return z.item()

    both(compute, torch.randn(3, requires_grad=True), torch.randn(2, requires_grad=True))


def test_parameter_vector_and_clipping():
    def compute(x, y):
        (x.exp().sum() + y.exp().sum()).backward()
        norm = torch.nn.utils.clip_grad_norm_([x, y], 0.5)
        torch.nn.utils.clip_grad_value_([x, y], 0.2)
        return norm, torch.nn.utils.parameters_to_vector([x, y])

    both(compute, torch.randn(3, requires_grad=True), torch.randn(2, requires_grad=True))


def test_graph_is_freed():
    x = torch.ones(3, device=DEVICE, requires_grad=True)
    y = x * 2
    alive = weakref.ref(y)
    y.sum().backward()
    del y
    gc.collect()
    assert alive() is None


@pytest.mark.lazy_only
@pytest.mark.own_schedule("counts graphs")
def test_backward_compiles_once():
    w = torch.randn(4, 4).to(DEVICE).requires_grad_()
    x = torch.randn(3, 4).to(DEVICE)

    def step():
        w.grad = None
        (x @ w).tanh().sum().backward()
        return w.grad.sum().item()

    for _ in range(2):
        step()
    with work() as done:
        first = step()
        assert all(step() == first for _ in range(4))
    assert (done.compiles, done.fallbacks) == (0, 0)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_recomputes_the_same_dropout(reentrant):
    x = torch.randn(64, 64).to(DEVICE).requires_grad_()
    y = checkpoint(lambda x: F.dropout(x * 2, 0.5), x, use_reentrant=reentrant)
    y.sum().backward()
    kept = (y.detach() != 0).float()
    assert 0 < kept.mean().item() < 1
    torch.testing.assert_close(x.grad.cpu(), 4 * kept.cpu())
