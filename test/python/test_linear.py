"""Linear layers: one node of autograd, which computes what the CPU's two or more compute, and keeps what they keep."""

import functools

import helpers
import pytest
import torch
import torch.nn.functional as F
from helpers import DEVICE, assert_all_at_once, assert_same, copies, work
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import torch_lazyplug

SHAPES = {
    "rows": (5, 3),
    "one row": (1, 3),
    "sequences": (2, 4, 3),
    "vector": (3,),
    "images": (2, 2, 2, 3),
    "none": (0, 3),
}


# A gradient may be a view on the CPU: of a product that was computed transposed.
both = functools.partial(helpers.both, history=False)


def leaf(*shape):
    return torch.randn(shape, requires_grad=True)


def gradients(*arguments, **options):
    """By all that require some."""
    result = F.linear(*arguments)
    wanted = [argument for argument in arguments if argument.requires_grad]
    return torch.autograd.grad(result.square().sum(), wanted, **options)


def is_one_node(tensor):
    return type(tensor.grad_fn).__name__ == "LinearBackward0"


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_values_and_gradients(shape, bias):
    parameters = [leaf(4, 3), *([leaf(4)] if bias else [])]
    both(gradients, leaf(*shape), *parameters)
    with torch.no_grad():
        both(F.linear, leaf(*shape), *parameters)


@pytest.mark.parametrize("frozen", range(3))
def test_gradients_of_some_arguments(frozen):
    arguments = [leaf(5, 3), leaf(4, 3), leaf(4)]
    arguments[frozen].requires_grad_(False)
    both(gradients, *arguments)


LAYOUTS = {
    "input transposed": lambda x, w, b: (x.t().contiguous().t(), w, b),
    "input sliced": lambda x, w, b: (torch.cat([x, x], 1)[:, :3], w, b),
    "input expanded": lambda x, w, b: (x[:1].expand(5, 3), w, b),
    "weight transposed": lambda x, w, b: (x, w.t().contiguous().t(), b),
    "bias expanded": lambda x, w, b: (x, w, b[:1].expand(4)),
    "bias of one": lambda x, w, b: (x, w, b[:1]),
}


@pytest.mark.parametrize("make", LAYOUTS.values(), ids=LAYOUTS)
def test_in_other_layouts(make):
    def run(*leaves):
        return torch.autograd.grad(F.linear(*make(*leaves)).square().sum(), leaves)

    both(run, leaf(5, 3), leaf(4, 3), leaf(4))


@pytest.mark.parametrize("trains", [True, False])
@pytest.mark.parametrize(("shape", "take"), [((3, 64, 1), lambda x: x.mT), ((2, 5, 64), lambda x: x[:1, :4])])
def test_strides_of_single_rows_choose_the_product(shape, take, trains):
    """Whether of matrices or of batches, which give other bits."""

    def run(x, weight):
        assert take(x).is_contiguous()
        return F.linear(take(x), weight)

    both(run, torch.randn(shape), leaf(64, 64).requires_grad_(trains))


@pytest.mark.parametrize("shape", [(5, 3), (2, 4, 3)])
def test_twice_differentiated(shape):
    def penalty(x, weight, bias):
        (gradient,) = torch.autograd.grad(F.linear(x, weight, bias).square().sum(), x, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), [x, weight, bias])

    both(penalty, leaf(*shape), leaf(4, 3), leaf(4))


def test_forward_mode_and_function_transforms():
    def tangents(x, weight, bias, tangent):
        along = torch.func.jvp(lambda x: F.linear(x, weight, bias).sin(), (x,), (tangent,))
        each = torch.func.vmap(torch.func.grad(lambda x, w: F.linear(x, w, bias).sin().sum()), in_dims=(0, None))(
            x, weight
        )
        return *along, each

    both(tangents, torch.randn(5, 3), torch.randn(4, 3), torch.randn(4), torch.randn(5, 3))


class Seen(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.ops = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.ops.append(str(func))
        return func(*args, **(kwargs or {}))


def test_modes_see_the_ops_that_they_see_on_the_cpu():
    def ops(device):
        arguments = copies([leaf(5, 3), leaf(4, 3), leaf(4)], device)
        with Seen() as seen:
            gradients(*arguments)
        return seen.ops

    assert ops(DEVICE) == ops("cpu")


@pytest.mark.lazy_only
def test_it_is_one_node_that_records_what_its_parts_record():
    x, weight, bias = copies([leaf(2, 4, 3), leaf(4, 3), leaf(4)], DEVICE)
    result = F.linear(x, weight, bias)
    assert is_one_node(result)
    assert [next_one for next_one, _ in result.grad_fn.next_functions] == [
        torch.autograd.graph.get_gradient_edge(t).node for t in (x, weight, bias)
    ]
    with work() as done:
        torch.autograd.grad(result, [x, weight, bias], torch.ones_like(result))
    assert done.recorded == 4  # of which one is the gradient


@pytest.mark.lazy_only
def test_it_keeps_what_its_gradients_need():
    """What a gradient needs may not be written before it; anything else may."""
    x, weight = copies([leaf(5, 3), leaf(4, 3)], DEVICE)

    def written(x, weight, victim):
        result = F.linear(x, weight).sum()
        with torch.no_grad():
            victim.zero_()
        result.backward()

    fixed = weight.detach().clone()
    written(x, fixed, x)  # only the weight is kept
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        written(x, fixed, fixed)
    constant = x.detach().clone()
    written(constant, weight, weight)  # only the input is
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        written(constant, weight, constant)


def test_a_second_backward_pass():
    def run(x, weight, bias):
        result = F.linear(x, weight, bias).sum()
        result.backward(retain_graph=True)
        result.backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            result.backward()

    both(run, leaf(5, 3), leaf(4, 3), leaf(4))


def test_modules_with_hooks():
    def run(x):
        torch.manual_seed(0)
        layers = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).to(x.device)
        seen = []
        for layer in layers:
            layer.register_full_backward_hook(lambda layer, i, o: seen.extend(t for t in (*i, *o) if t is not None))
        layers(x).square().sum().backward()
        return [*seen, *(p.grad for p in layers.parameters())]

    both(run, leaf(5, 3))
    both(run, leaf(2, 5, 3))


def test_results_that_are_written():
    def run(x, weight):
        result = F.linear(x, weight)
        result.mul_(2).add_(1)
        return result, *torch.autograd.grad(result.sum(), [x, weight])

    both(run, leaf(5, 3), leaf(4, 3))
    both(run, leaf(2, 5, 3), leaf(4, 3))


def test_in_float64_and_bfloat16():
    for dtype in (torch.float64, torch.bfloat16, torch.complex64):
        arguments = [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in ((5, 3), (4, 3), (4,))]
        both(lambda *a: torch.autograd.grad(F.linear(*a).abs().sum(), a), *arguments)


@pytest.mark.lazy_only
def test_wrong_shapes_raise_as_on_the_cpu():
    for shapes in (((5, 3), (4, 2)), ((5, 3), (4, 3), (3,)), ((2, 5, 3), (4, 2), (4,))):
        arguments = [leaf(*shape) for shape in shapes]
        with pytest.raises(RuntimeError) as expected:
            F.linear(*arguments)
        with pytest.raises(RuntimeError) as actual:
            F.linear(*copies(arguments, DEVICE))
        assert_same(str(actual.value), str(expected.value))


@pytest.mark.lazy_only
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(5, 3), (2, 4, 3)], ids=["rows", "sequences"])
@pytest.mark.own_schedule("counts nodes")
def test_what_is_predicted_is_the_same_graph(shape, bias):
    """It reads views that nobody has made; where a program leaves what is predicted, they are made."""
    arguments = [leaf(*shape), leaf(4, 3), *([leaf(4)] if bias else [])]
    expected = gradients(*arguments)
    moved = copies(arguments, DEVICE)

    def step():
        assert_same(gradients(*moved), expected)
        with torch.no_grad():
            assert_same(F.linear(*moved), F.linear(*arguments))

    for _ in range(3):
        step()
    before = torch_lazyplug.metrics.counter_value("Predicted")
    with work() as done:
        step()
    assert torch_lazyplug.metrics.counter_value("Predicted") - before == done.recorded
    with work() as done:
        torch.ones(3, device=DEVICE).sum().item()  # something else, after which nothing is predicted at first
        step()
    assert done.compiles <= 1
    assert done.fallbacks == 0


@pytest.mark.parametrize("kind", ["vmap", "is_grads_batched", "jacobian"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_gradients_under_vmap_are_those_of_all_samples_at_once(kind, dims):
    def gradients(device, samples):
        torch.manual_seed(0)
        model = nn.Linear(4, 3).to(device)
        x = torch.randn(*(5,) * (dims - 1), 4).to(device).requires_grad_()
        if kind == "jacobian":
            return torch.autograd.functional.jacobian(model, x, vectorize=True)
        y = model(x)
        vectors = torch.randn(samples, *y.shape).to(device)
        if kind == "vmap":
            return torch.vmap(lambda v: torch.autograd.grad(y, [x, *model.parameters()], v))(vectors)
        return torch.autograd.grad(y, [x, *model.parameters()], vectors, is_grads_batched=True)

    assert_all_at_once(gradients)


def test_the_gradient_of_one_row_lies_as_on_the_cpu():
    def gradient(device):
        weight = torch.ones(1, 17, device=device)[:, :15].detach().requires_grad_()
        return torch.autograd.grad(F.linear(torch.ones(4, 15, device=device), weight).sum(), weight)[0]

    assert gradient(DEVICE).stride() == gradient("cpu").stride()
