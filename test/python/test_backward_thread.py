"""Backward passes run on the thread that asks for them, as on the CPU, and leave autograd's switch as it was."""

import threading

import pytest
import torch
from helpers import DEVICE
from torch.utils.checkpoint import checkpoint

from torch_lazyplug.backward import CallingThreadEngine

pytestmark = pytest.mark.lazy_only


@pytest.fixture
def seen():
    """The threads on which `watch`'s hooks have run."""
    return []


def watch(tensor, seen):
    tensor.register_hook(lambda gradient: seen.append(threading.get_ident()))
    return tensor


def make_leaf(device=DEVICE):
    return torch.tensor([1.0, 2.0, 3.0], device=device, requires_grad=True)


def test_hooks_run_on_the_calling_thread(seen):
    x = make_leaf()
    watch(x.sin(), seen).sum().backward()
    torch.autograd.grad(watch(x.cos(), seen).sum(), x)
    assert seen == [threading.get_ident()] * 2
    assert torch.equal(x.grad.cpu(), torch.cos(torch.tensor([1.0, 2.0, 3.0])))


def test_also_in_threads_that_users_start(seen):
    def differentiate():
        watch(make_leaf() * 2, seen).sum().backward()
        idents.append(threading.get_ident())

    idents = []
    threads = [threading.Thread(target=differentiate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == sorted(idents)
    assert threading.get_ident() not in seen


def test_also_if_it_starts_on_the_cpu(seen):
    x = make_leaf()
    watch(x * 3, seen).cpu().sum().backward()
    assert seen == [threading.get_ident()]
    assert x.grad.tolist() == [3.0, 3.0, 3.0]


def test_also_from_edges_of_the_graph(seen):
    x = make_leaf()
    y = watch(x * 3, seen).sum()
    torch.autograd.backward([torch.autograd.graph.get_gradient_edge(y)], [torch.ones((), device=DEVICE)])
    assert seen == [threading.get_ident()]


class Watched(torch.autograd.Function):
    """Twice its argument. Notes on which thread it is differentiated."""

    generate_vmap_rule = True
    threads = []

    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, gradient):
        Watched.threads.append(threading.get_ident())
        return gradient * 2


@pytest.mark.parametrize(
    "transform",
    [
        torch.func.grad,
        torch.func.jacrev,
        lambda f: torch.func.jacrev(torch.func.grad(f)),
        lambda f: torch.func.vmap(torch.func.grad(f)),
    ],
)
def test_also_under_function_transforms(transform):
    Watched.threads = []
    x = torch.rand(2, 3).to(DEVICE)
    transform(lambda x: Watched.apply(x.square()).sum())(x)
    assert set(Watched.threads) == {threading.get_ident()}


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoints_recompute_on_the_calling_thread(seen, use_reentrant):
    def block(h):
        idents.append(threading.get_ident())
        return h.sin() * h

    idents = []
    x = make_leaf()
    watch(checkpoint(block, x, use_reentrant=use_reentrant), seen).sum().backward()
    assert set(idents) == set(seen) == {threading.get_ident()}
    assert len(idents) == 2
    expected = make_leaf("cpu")
    block(expected).sum().backward()
    assert torch.equal(x.grad.cpu(), expected.grad)


def test_the_switch_is_off_within_and_as_before_afterwards():
    within = []
    for enabled in (True, False):
        with torch.autograd.set_multithreading_enabled(enabled):
            y = make_leaf() * 2
            y.register_hook(lambda gradient: within.append(torch.autograd.is_multithreading_enabled()))
            y.sum().backward()
            assert torch.autograd.is_multithreading_enabled() == enabled
    assert within == [False, False]


def test_the_switch_is_as_before_after_an_error():
    y = make_leaf() * 2

    def fail(gradient):
        raise ValueError("from a hook")

    y.register_hook(fail)
    with pytest.raises(ValueError, match="from a hook"):
        y.sum().backward()
    assert torch.autograd.is_multithreading_enabled()


def test_other_accelerators_keep_their_threads(monkeypatch):
    within = []
    y = make_leaf("cpu") * 2
    y.register_hook(lambda gradient: within.append(torch.autograd.is_multithreading_enabled()))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    y.sum().backward()
    assert within == [True]


def test_backward_follows_the_stream_of_the_forward_pass():
    stream = torch.lazy.Stream()
    current = torch.lazy.current_stream()
    streams = []
    x = make_leaf()
    with torch.lazy.stream(stream):
        y = x * 2
    y.register_hook(lambda gradient: streams.append(torch.lazy.current_stream()))
    y.sum().backward()
    assert torch.lazy.current_stream() == current
    assert x.grad.tolist() == [2.0, 2.0, 2.0]


def test_the_engine_is_installed_once():
    assert isinstance(torch.autograd.Variable._execution_engine, CallingThreadEngine)
    assert torch.autograd.Variable._execution_engine.is_checkpoint_valid()
