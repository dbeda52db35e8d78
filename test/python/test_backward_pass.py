"""Backward passes whose nodes run as one node of autograd's engine: what they compute, and when they do not."""

import contextlib

import pytest
import torch
import torch.nn.functional as F
from helpers import DEVICE, assert_same, assert_same_error, error_of, flag, run_fresh, work
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import torch_lazyplug

pytestmark = pytest.mark.lazy_only


@contextlib.contextmanager
def passes(expected):
    """That many passes of the block run as one node."""
    before = torch_lazyplug.metrics.counter_value("BackwardPass") or 0
    yield
    assert (torch_lazyplug.metrics.counter_value("BackwardPass") or 0) - before == expected


def by_the_engine():
    """PyTorch's engine runs each node in the block."""
    return flag("backward_pass", False)


class Branches(torch.nn.Module):
    """Uses each of its inputs, weights and intermediate results several times."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 16).view(4, 4))
        self.bias = torch.nn.Parameter(torch.linspace(0, 1, 4))
        self.norm = torch.nn.GroupNorm(2, 4)
        self.unused = torch.nn.Parameter(torch.ones(2))

    def forward(self, x):
        h = torch.tanh(x @ self.weight + self.bias)
        a, b = h.chunk(2, dim=1)
        h = self.norm(torch.cat([b, a * b + self.bias[:2]], dim=1)) + h
        for _ in range(3):
            h = (h @ self.weight).relu() + h * self.bias + x
        h[:, 0] *= 2
        return h


def gradients(model, x, differentiate):
    model.zero_grad()
    x = x.clone().requires_grad_()
    differentiate(model(x))
    return [None if g is None else g.clone() for g in (x.grad, *(p.grad for p in model.parameters()))]


def differentiate_sum(y):
    y.square().sum().backward()


def differentiate_two(y):
    torch.autograd.backward([y.sin(), y.sum()], [torch.ones_like(y), torch.tensor(2.0, device=DEVICE)])


def differentiate_twice(y):
    loss = y.square().sum()
    loss.backward(retain_graph=True)
    loss.backward()


@pytest.mark.parametrize(
    "differentiate, count", [(differentiate_sum, 1), (differentiate_two, 1), (differentiate_twice, 2)]
)
def test_gradients_are_the_engines_and_take_as_many_ops(differentiate, count):
    model = Branches()
    x = torch.rand(3, 4)
    expected = gradients(model, x, differentiate)
    model, x = model.to(DEVICE), x.to(DEVICE)
    with by_the_engine(), passes(0), work() as engine:
        of_engine = gradients(model, x, differentiate)
    with passes(count), work() as done:
        actual = gradients(model, x, differentiate)
    assert done.recorded == engine.recorded and done.fallbacks == 0
    for ours, theirs, cpu in zip(actual, of_engine, expected, strict=True):
        assert (ours is None) == (cpu is None)
        if ours is not None:
            assert_same(ours, theirs.cpu())
            torch.testing.assert_close(ours.cpu(), cpu)


def test_gradients_add_up_over_passes():
    weight = torch.nn.Parameter(torch.ones(3, device=DEVICE))
    with passes(3):
        for i in range(3):
            (weight * i).sum().backward()
    assert weight.grad.tolist() == [3.0, 3.0, 3.0]


def test_create_graph_is_kept():
    x = torch.tensor([1.0, 2.0], device=DEVICE, requires_grad=True)
    with passes(1), pytest.warns(UserWarning, match="create_graph=True"):
        (x**3).sum().backward(create_graph=True)
    (second,) = torch.autograd.grad(x.grad.sum(), x)
    x.grad = None
    assert second.tolist() == [6.0, 12.0]


def test_a_second_pass_over_a_freed_graph_raises_what_it_raises_on_the_cpu():
    def second_pass(device):
        y = torch.ones(2, device=device, requires_grad=True).exp().sum()
        y.backward()
        y.backward()

    assert_same_error(error_of(second_pass, DEVICE), error_of(second_pass, "cpu"))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda y: torch.autograd.backward([y], [torch.ones(5, device=y.device)]),
        lambda y: torch.autograd.backward([y], [torch.ones(2, device=y.device, dtype=torch.complex64)]),
        lambda y: y.backward(),
        lambda y: y.detach().sum().backward(),
    ],
)
def test_wrong_gradients_raise_what_they_raise_on_the_cpu(wrong):
    def differentiate(device):
        wrong(torch.ones(2, device=device, requires_grad=True) * 2)

    assert_same_error(error_of(differentiate, DEVICE), error_of(differentiate, "cpu"))


def test_an_error_leaves_the_rest_usable():
    x = torch.ones(2, device=DEVICE, requires_grad=True)
    y = x.exp()
    z = (y * 3).sum()
    with torch.no_grad():
        y += 1
    with passes(1), pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()
    with passes(1):
        (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def with_tensor_hook(x):
    y = x * 2
    y.register_hook(lambda gradient: gradient * 10)
    return y.sum()


def with_leaf_hook(x):
    x.register_hook(lambda gradient: gradient * 10)
    return (x * 2).sum()


def with_accumulation_hook(x):
    def scale(leaf):
        leaf.grad.mul_(10)

    x.register_post_accumulate_grad_hook(scale)
    return (x * 2).sum()


def with_node_hook(x):
    y = x * 2
    y.grad_fn.register_hook(lambda results, _: tuple(r if r is None else r * 10 for r in results))
    return y.sum()


def with_node_prehook(x):
    y = x * 2
    y.grad_fn.register_prehook(lambda gradients: tuple(g * 10 for g in gradients))
    return y.sum()


@pytest.mark.parametrize(
    "loss, expected",
    [
        (with_tensor_hook, 20),
        (with_leaf_hook, 20),
        (with_accumulation_hook, 20),
        (with_node_hook, 20),
        (with_node_prehook, 20),
        (lambda x: Twice.apply(x).sum(), 2),
    ],
)
def test_hooks_and_functions_of_python_are_the_engines(loss, expected):
    x = torch.ones(2, device=DEVICE, requires_grad=True)
    with passes(0):
        loss(x).backward()
    assert x.grad.tolist() == [expected] * 2


def test_retained_gradients_are_the_engines():
    x = torch.ones(2, device=DEVICE, requires_grad=True)
    y = x * 2
    y.retain_grad()
    with passes(0):
        (y * 3).sum().backward()
    assert y.grad.tolist() == [3.0, 3.0]


@pytest.mark.parametrize(
    "watching",
    [
        lambda: torch.autograd.profiler.profile(),
        lambda: torch.autograd.detect_anomaly(check_nan=False),
        lambda: FlopCounterMode(display=False),
        lambda: torch._dynamo.compiled_autograd._enable(lambda graph: graph),
    ],
)
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_who_watches_the_nodes_sees_each(watching):
    x = torch.ones(2, device=DEVICE, requires_grad=True)
    with passes(0), watching():
        (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_passes_in_inference_mode_are_the_engines():
    x = torch.ones(2, device=DEVICE, requires_grad=True)
    y = (x * 2).sum()
    with passes(0), torch.inference_mode():
        y.backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_long_chains():
    x = y = torch.ones(2, device=DEVICE, requires_grad=True)
    for _ in range(20_000):
        y = y + 1
    with passes(1):
        y.sum().backward()
    del y
    assert x.grad.tolist() == [1.0, 1.0]


def test_nodes_of_another_stream_are_the_engines():
    x = torch.ones(2, device=DEVICE, requires_grad=True)
    with torch.lazy.stream(torch.lazy.Stream()):
        y = x * 2
        with passes(1):
            (y * 1).sum().backward()
        y = x * 2
    with passes(0):
        y.sum().backward()
    assert x.grad.tolist() == [4.0, 4.0]


def test_gradients_that_are_asked_for():
    def ask(x, weight):
        h = torch.tanh(x * weight)
        y = (h * weight + h.exp()).square().sum()
        first = torch.autograd.grad(y, [weight, x, h], create_graph=True)
        second = torch.autograd.grad(sum(g.sum() for g in first[:2]), [x, weight])
        return [*first, *second]

    def leaves(device):
        return [torch.linspace(i, i + 1, 4).to(device).requires_grad_() for i in range(2)]

    with by_the_engine(), passes(0):
        of_engine = ask(*leaves(DEVICE))
    inputs = leaves(DEVICE)
    with passes(2):
        actual = ask(*inputs)
    assert [leaf.grad for leaf in inputs] == [None, None]
    for ours, theirs, cpu in zip(actual, of_engine, ask(*leaves("cpu")), strict=True):
        assert_same(ours.detach(), theirs.detach().cpu())
        torch.testing.assert_close(ours.detach().cpu(), cpu.detach())


def test_no_gradient_is_computed_that_nobody_asks_for():
    x = torch.ones(2, device=DEVICE, requires_grad=True)
    weight = torch.ones(2, device=DEVICE, requires_grad=True)

    def ask():
        y = (x * weight * 2).sum()
        with work() as done:
            (gradient,) = torch.autograd.grad(y, x)
        assert gradient.tolist() == [2.0, 2.0] and weight.grad is None
        return done.recorded

    with by_the_engine():
        of_engine = ask()
    with passes(1):
        assert ask() == of_engine
    with passes(0):
        (x * weight * 2).sum().backward(inputs=[x])
    assert x.grad.tolist() == [2.0, 2.0] and weight.grad is None


def test_inputs_that_are_not_reached_are_the_engines():
    for device in ("cpu", DEVICE):
        x = torch.ones(2, device=device, requires_grad=True)
        y = (x * 2).sum()
        other = torch.ones(2, device=device, requires_grad=True)
        with passes(0):
            with pytest.raises(RuntimeError, match="at index 1 appears to not have been used in the graph"):
                torch.autograd.grad(y, [x, other], retain_graph=True)
            gradients = torch.autograd.grad(y, [x, other], allow_unused=True)
        assert gradients[0].tolist() == [2.0, 2.0] and gradients[1] is None


def test_checkpoints_recompute_once():
    calls = []

    def block(h):
        calls.append(torch._C._current_graph_task_id())
        return (h.sin() * h.cos()).exp()

    x = torch.ones(2, device=DEVICE, requires_grad=True)
    with passes(0):  # what is saved has hooks
        checkpoint(block, x, use_reentrant=False).sum().backward()
    assert len(calls) == 2 and calls[0] == -1 and calls[1] >= 0
    expected = torch.ones(2, requires_grad=True)
    block(expected).sum().backward()
    torch.testing.assert_close(x.grad.cpu(), expected.grad)


def test_saved_tensors_may_be_elsewhere():
    x = torch.linspace(0, 1, 3).to(DEVICE).requires_grad_()
    with torch.autograd.graph.save_on_cpu():
        y = x.exp() * x.sin()
    with passes(0):
        y.sum().backward()
    expected = torch.linspace(0, 1, 3).requires_grad_()
    (expected.exp() * expected.sin()).sum().backward()
    torch.testing.assert_close(x.grad.cpu(), expected.grad)


def hook_while_unpacking(x):
    """A hook that is added while the pass runs, by what unpacks a saved tensor."""
    hooked = []

    def unpack(tensor):
        if not hooked:
            hooked.append(h.register_hook(lambda gradient: gradient * 10))
        return tensor

    h = x.sin()
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
        return (h * h.exp()).sum()


class DoubleInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, gradient):
        torch.set_grad_enabled(True)  # which the engine takes back
        return gradient * 2


def function_on_a_view(x):
    y = x.sin()
    DoubleInPlace.apply(y[1:3])
    return (y * y.sin()).sum()


@pytest.mark.parametrize("loss", [hook_while_unpacking, function_on_a_view])
def test_nodes_that_run_python_are_the_engines(loss):
    gradients = {}
    for device in ("cpu", DEVICE):
        x = torch.linspace(0.1, 0.9, 4).to(device).requires_grad_()
        y = loss(x)
        with passes(0):
            (gradients[device],) = torch.autograd.grad(y, x)
        assert not gradients[device].requires_grad
    torch.testing.assert_close(gradients[DEVICE].cpu(), gradients["cpu"])


def test_nodes_that_are_made_after_hooks_are_run_as_one():
    x = torch.ones(2, device=DEVICE, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
        y = x.exp()
        with passes(0):
            y.sum().backward()
    with passes(1):
        x.exp().sum().backward()
    with pytest.raises(TypeError), torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor):
        pass
    with passes(1):
        x.exp().sum().backward()


def test_gradients_die_when_they_have_been_used():
    """However deep the graph is."""
    x = torch.rand(1 << 16, device=DEVICE, requires_grad=True)
    y = x
    for _ in range(600):
        y = y * 1.0001
    loss = y.sum()
    del y
    torch.lazy.synchronize()
    torch.lazy.reset_peak_memory_stats()
    before = torch.lazy.memory_allocated()
    with passes(1):
        loss.backward()
    torch.lazy.synchronize()
    assert torch.lazy.max_memory_allocated() - before < 100 * 4 << 16


def view_of_given(x, given):
    (x + 1).view(2, 2).backward(given)
    given.zero_()  # which the gradient is a view of


def two_leaves_of_one_gradient(x, given):
    y = x.detach().requires_grad_()
    ((x + y) * 1).view(2, 2).backward(given)
    given.zero_()


@pytest.mark.parametrize("differentiate", [view_of_given, two_leaves_of_one_gradient])
def test_leaves_take_gradients_over_as_on_the_cpu(differentiate):
    gradients = {}
    for device in ("cpu", DEVICE):
        x = torch.ones(4, device=device, requires_grad=True)
        with passes(1 if device == DEVICE else 0), work() as done:
            differentiate(x, torch.ones(2, 2, device=device))
        gradients[device] = x.grad
        recorded = done.recorded
    assert_same(gradients[DEVICE], gradients["cpu"])
    x = torch.ones(4, device=DEVICE, requires_grad=True)
    with by_the_engine(), work() as done:
        differentiate(x, torch.ones(2, 2, device=DEVICE))
    assert recorded == done.recorded


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
def test_given_gradients_are_cast_where_the_caller_differentiates(dtype):
    def differentiate(device):
        x = torch.ones(4, device=device, requires_grad=True)
        given = torch.ones(4, dtype=dtype, device=device, requires_grad=True)
        y = x.exp()
        return torch.autograd.grad(y, y, given)[0].requires_grad

    with passes(1):
        actual = differentiate(DEVICE)
    assert actual == differentiate("cpu")


def test_passes_of_many_threads():
    """In a process whose saved tensors have never had hooks: nodes do not say which thread has made them."""
    run_fresh("""
        import threading

        def train(seed):
            x = torch.full((4,), float(seed), device="lazy", requires_grad=True)
            for _ in range(20):
                x.grad = None
                (x * x).sum().backward()
            results[seed] = x.grad.tolist()

        results = {}
        threads = [threading.Thread(target=train, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == {seed: [2.0 * seed] * 4 for seed in range(4)}
        assert torch_lazyplug.metrics.counter_value("BackwardPass") == 80
    """)


def test_hooks_of_single_saved_tensors_are_the_engines():
    """In a process of its own, whose passes are the engine's from then on."""
    run_fresh("""
        def differentiate(device):
            weight = torch.arange(1.0, 4.0, device=device).requires_grad_()
            y = weight.exp()
            nodes = []

            def unpack(tensor):
                torch.set_grad_enabled(True)
                nodes.append(type(torch._C._current_autograd_node()).__name__)
                return tensor

            y.grad_fn._raw_saved_result.register_hooks(lambda tensor: tensor, unpack)
            (y * weight).sum().backward()
            return nodes, weight.grad.requires_grad, weight.grad.tolist()

        nodes, requires_grad, gradient = differentiate("lazy")
        expected = differentiate("cpu")
        assert (nodes, requires_grad) == expected[:2]
        torch.testing.assert_close(torch.tensor(gradient), torch.tensor(expected[2]))
        assert not torch_lazyplug.metrics.counter_value("BackwardPass")
    """)


def test_passes_within_passes():
    """A reentrant checkpoint runs a pass in a node of Python."""
    x = torch.ones(2, device=DEVICE, requires_grad=True)
    with passes(1):
        checkpoint(lambda h: h.exp(), x, use_reentrant=True).sum().backward()
    torch.testing.assert_close(x.grad.cpu(), torch.ones(2).exp())


def test_graphs_die_after_the_pass():
    x = torch.rand(64, 64).to(DEVICE).requires_grad_()
    F.relu(x @ x).sum().backward()
    torch.lazy.synchronize()
    before = torch.lazy.memory_allocated()
    for _ in range(3):
        x.grad = None
        F.relu(x @ x).sum().backward()
    torch.lazy.synchronize()
    assert torch.lazy.memory_allocated() == before
