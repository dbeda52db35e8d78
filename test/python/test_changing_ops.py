"""Ops that are deregistered, defined again, or given other kernels: what is recorded, cached or predicted then."""

import subprocess
import sys

import pytest
import torch
from helpers import DEVICE, finish_pending, work
from torch.library import Library, _scoped_library, custom_op

import torch_lazyplug

pytestmark = pytest.mark.lazy_only

_names = iter(range(1000))


@pytest.fixture
def name():
    return f"changing_{next(_names)}"


def define(library, name, schema, cpu, meta=None):
    library.define(name + schema)
    library.impl(name, cpu, "CPU")
    library.impl(name, meta or cpu, "Meta")


def op(name):
    return getattr(torch.ops.lazyplug_changing, name)


def is_recorded(tensor):
    return "lazyplug_changing" in torch_lazyplug.debug.get_tensors_text([tensor])


@pytest.mark.smoke
@pytest.mark.own_schedule("looks at what is pending")
def test_another_schema_under_the_same_name(name):
    x = torch.arange(6.0, device=DEVICE)
    for _ in range(3):  # recorded, from the caches, predicted
        with _scoped_library("lazyplug_changing", "FRAGMENT") as library:
            define(library, name, "(Tensor x, float a) -> Tensor", lambda x, a: x * a)
            y = op(name)(x, 2.0)
            assert is_recorded(y) and y.tolist() == [0, 2, 4, 6, 8, 10]
        with _scoped_library("lazyplug_changing", "FRAGMENT") as library:
            define(
                library,
                name,
                "(Tensor x, int[] dims, Tensor y) -> (Tensor, Tensor)",
                lambda x, d, y: (x.flip(d), x + y),
            )
            flipped, total = op(name)(x, [0], x)
            assert is_recorded(total) and total.tolist() == [0, 2, 4, 6, 8, 10]
            assert flipped.tolist() == [5, 4, 3, 2, 1, 0]


def test_results_are_right_after_the_op_is_gone(name):
    x = torch.ones(3, device=DEVICE)
    with _scoped_library("lazyplug_changing", "FRAGMENT") as library:
        define(library, name, "(Tensor x) -> Tensor", lambda x: x * 3)
        y = op(name)(x) + 1
    assert y.tolist() == [4, 4, 4]


@pytest.mark.own_schedule("looks at what is pending")
def test_the_cell_of_a_notebook_is_run_twice(name):
    cell = """
from torch.library import Library
library = Library("lazyplug_changing", "FRAGMENT")
library.define("{name}(Tensor x{arguments}) -> Tensor")
library.impl("{name}", lambda x{lambda_arguments}: x + {value}, "CPU")
library.impl("{name}", lambda x{lambda_arguments}: x.clone(), "Meta")
"""
    notebook = {}
    x = torch.zeros(2, device=DEVICE)
    pending = []
    for value, arguments in enumerate([(), (), (1,), (1, 2), (1,), ()]):
        exec(
            cell.format(
                name=name,
                arguments="".join(f", int a{i}" for i in arguments),
                lambda_arguments="".join(f", a{i}" for i in arguments),
                value=value,
            ),
            notebook,
        )
        pending.append(op(name)(x, *arguments))
        assert is_recorded(pending[-1])
    assert [y.tolist() for y in pending] == [[i, i] for i in range(6)]


@pytest.mark.own_schedule("looks at what is pending")
def test_a_custom_op_is_defined_twice(name):
    x = torch.ones(4, device=DEVICE)
    results = []
    for size in (1, 2, 3):

        @custom_op(f"lazyplug_changing::{name}", mutates_args=(), device_types="cpu")
        def first(x: torch.Tensor, size: int = size) -> torch.Tensor:
            return x[:size] * size

        first.register_fake(lambda x, size=size: x.new_empty(size))
        results.append(first(x))
        assert is_recorded(results[-1])
    assert [y.tolist() for y in results] == [[1], [2, 2], [3, 3, 3]]


def test_a_new_cpu_kernel_is_used_from_then_on(name):
    x = torch.ones(2, device=DEVICE)
    library = Library("lazyplug_changing", "FRAGMENT")
    define(library, name, "(Tensor x) -> Tensor", lambda x: x + 1)
    before = op(name)(x)
    library.impl(name, lambda x: x + 2, "CPU")
    after = op(name)(x)
    assert (before.tolist(), after.tolist()) == ([2, 2], [3, 3])
    with work() as done:
        assert op(name)(x).tolist() == [3, 3]
    assert done.compiles == 0 and done.fallbacks == 0


@pytest.mark.own_schedule("looks at what is pending")
def test_a_new_meta_kernel_tells_new_shapes(name):
    x = torch.arange(4.0, device=DEVICE)
    library = Library("lazyplug_changing", "FRAGMENT")
    define(library, name, "(Tensor x) -> Tensor", lambda x: x * 2)
    for _ in range(4):
        assert op(name)(x).tolist() == [0, 2, 4, 6]
    library.impl(name, lambda x: x[:2] * 2, "CPU")
    library.impl(name, lambda x: x[:2].clone(), "Meta")
    for _ in range(3):
        y = op(name)(x)
        assert is_recorded(y) and y.shape == (2,) and y.tolist() == [0, 2]


@pytest.mark.own_schedule("looks at what is pending")
def test_a_fake_implementation_comes_later_and_changes(name):
    x = torch.ones(4, device=DEVICE)

    @custom_op(f"lazyplug_changing::{name}", mutates_args=(), device_types="cpu")
    def twice(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, x])

    with work() as done:
        assert twice(x).shape == (8,)
    assert done.fallbacks == 1
    twice.register_fake(lambda x: x.new_empty(2 * len(x)))
    assert is_recorded(twice(x))

    twice.register_kernel("cpu", lambda x: torch.cat([x, x, x]))
    twice.register_fake(lambda x: x.new_empty(3 * len(x)))
    y = twice(x)
    assert is_recorded(y) and y.shape == (12,) and y.sum().item() == 12


@pytest.mark.own_schedule("looks at what is pending")
def test_a_meta_kernel_comes_later(name):
    x = torch.ones(3, device=DEVICE)
    library = Library("lazyplug_changing", "FRAGMENT")
    library.define(f"{name}(Tensor x) -> Tensor")
    library.impl(name, lambda x: x * 2, "CPU")
    with work() as done:
        op(name)(x)
    assert done.fallbacks == 1
    library.impl(name, lambda x: torch.empty_like(x), "Meta")
    assert is_recorded(op(name)(x))


def test_an_overridden_kernel_of_pytorch_comes_and_goes():
    x = torch.full((3,), -2.0, device=DEVICE)
    with _scoped_library("aten", "IMPL") as library:
        library.impl("digamma", lambda x: x * 10, "CPU")
        inside = x.digamma()
    outside = torch.ones(3, device=DEVICE).digamma()
    assert inside.tolist() == [-20, -20, -20]
    assert torch.equal(outside.cpu(), torch.ones(3).digamma())


@pytest.mark.own_schedule("looks at what is pending")
def test_graphs_of_ops_that_are_gone_can_be_looked_at_but_not_run(name):
    x = torch.ones(3, device=DEVICE)
    finish_pending()
    with _scoped_library("lazyplug_changing", "FRAGMENT") as library:
        define(library, name, "(Tensor x) -> Tensor", lambda x: x * 3)
        y = op(name)(x)
        graph = torch_lazyplug.computation.get_graph_hash([y])
        y.cpu()
    assert name in torch_lazyplug._C._lazy._latest_graph_dot()
    with pytest.raises(RuntimeError, match=f"{name} has been deregistered since"):
        torch_lazyplug.computation.run_cached_graph(graph, [x])
    finish_pending()


@pytest.mark.own_schedule("looks at what is pending")
def test_kernels_of_ops_that_are_never_used_cut_nothing(name):
    y = torch.ones(3, device=DEVICE) + 1
    library = Library("lazyplug_changing", "FRAGMENT")
    define(library, name, "(Tensor x) -> Tensor", lambda x: x * 3)
    library._destroy()
    assert torch_lazyplug._C._lazy._is_pending(y)


@pytest.mark.own_schedule("looks at what is pending")
def test_the_interpreter_exits_with_calls_pending():
    program = """
import torch
library = torch.library.Library("mine", "DEF")
library.define("f(Tensor x) -> Tensor")
library.impl("f", lambda x: print("ran") or x * 2, "CPU")
library.impl("f", lambda x: x.clone(), "Meta")
y = torch.ops.mine.f(torch.ones(3, device="lazy"))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
