"""Programs written for PyTorch's in-tree ``torch._lazy`` run with the module's name replaced."""

import importlib
import inspect
import pkgutil
import re
import types

import pytest
import torch
import torch._lazy
from helpers import finish_pending, run_fresh
from torch import fx

import torch_lazyplug

pytestmark = pytest.mark.lazy_only

MODULES = [module.name for module in pkgutil.iter_modules(torch._lazy.__path__)]


def replaced(module):
    """A module of torch._lazy as it would be if it had been written for this package."""
    source = inspect.getsource(module).replace("torch._C._lazy", "torch_lazyplug._C._lazy")
    source = re.sub(r"^import torch_lazyplug\._C\.\w+$", "import torch_lazyplug._C", source, flags=re.M)
    result = types.ModuleType(module.__name__ + "_replaced")
    exec(compile(source.replace("torch._lazy", "torch_lazyplug"), result.__name__, "exec"), vars(result))
    return result


def public_functions(module):
    return {
        name: value
        for name, value in vars(module).items()
        if inspect.isfunction(value) and not name.startswith("_") and value.__module__ == module.__name__
    }


@pytest.mark.parametrize("name", MODULES)
def test_modules_have_the_same_functions(name):
    in_tree = importlib.import_module(f"torch._lazy.{name}")
    ours = importlib.import_module(f"torch_lazyplug.{name}")
    helpers = {"force_lazy_device", "get_fallback_ops"}  # of the in-tree extract_compiled_graph
    for function_name, function in public_functions(in_tree).items():
        if function_name not in helpers:
            own = inspect.signature(getattr(ours, function_name))
            assert set(inspect.signature(function).parameters) <= set(own.parameters), function_name


@pytest.mark.parametrize("name", ["computation", "config", "debug", "ir_cache", "metrics", "ts_backend"])
def test_in_tree_modules_run_on_our_bindings(name, tmp_path):
    module = replaced(importlib.import_module(f"torch._lazy.{name}"))
    x = torch.ones(2, device="lazy") * 2
    calls = {
        "computation": lambda: module.run_cached_graph(
            module.get_graph_hash([x]), module.get_tensors_ts_device_data_node([x])[1]
        ),
        "config": lambda: (module.set_force_fallback(module.get_force_fallback()), module.set_reuse_ir(True)),
        "debug": lambda: [module.render_ir_graph([x]), *(module.dump_ir([x], form) for form in ("text", "backend"))],
        "ir_cache": lambda: (module.dump(str(tmp_path / "cache.dot")), module.reset()),
        "metrics": lambda: (module.counter_names(), module.counter_value("x"), module.metrics_report(), module.reset()),
        "ts_backend": lambda: module.init(),
    }
    calls[name]()
    assert x.tolist() == [2, 2]


def subtract(a, b):
    return a - b


def in_place(a, b):
    a.sub_(b)
    return b - 1, b + 1


def duplicates(a, b):
    c = torch.addcmul(a, a, b, value=5)
    return a - b, c, a + 1, c


@pytest.mark.parametrize("function", [subtract, in_place, duplicates])
@pytest.mark.own_schedule("extracts a graph that is pending as a whole")
def test_the_in_tree_extraction_runs_on_our_modules(function):
    from torch._lazy import extract_compiled_graph

    module = replaced(extract_compiled_graph)
    finish_pending()
    compiled = module.extract_compiled_graph(fx.symbolic_trace(function), [torch.randn(2, 3), torch.randn(2, 3)])
    for _ in range(3):
        args = [torch.randn(2, 3), torch.randn(2, 3)]
        copies = [arg.clone() for arg in args]
        expected = function(*args)
        actual = compiled(*copies)
        torch.testing.assert_close(tuple(actual), expected if isinstance(expected, tuple) else (expected,))
        torch.testing.assert_close(copies, args)


def test_a_training_loop_with_closures():
    torch.manual_seed(0)
    torch_lazyplug.ts_backend.init()
    model = torch.nn.Linear(3, 1).to("lazy")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = model(torch.ones(4, 3, device="lazy")).square().mean()
        loss.backward()
        optimizer.step()
        torch_lazyplug.add_step_closure(lambda value: losses.append(value.item()), args=(loss,))
        torch_lazyplug.mark_step()
    assert len(losses) == 5 and losses == sorted(losses, reverse=True)
    assert torch_lazyplug.to_cpu([loss])[0].device.type == "cpu"


def test_the_in_tree_functions_are_ours():
    # In a process of its own: test utilities replace them.
    run_fresh(
        """
        for name in ("mark_step", "add_step_closure", "run_step_closures", "wait_device_ops", "sync_multi", "to_cpu"):
            assert getattr(torch._lazy, name) is getattr(torch_lazyplug, name)
        """
    )


def test_dropped_in_bindings_have_the_in_tree_names():
    lazy = torch_lazyplug._C._lazy
    ts_backend = torch_lazyplug._C._lazy_ts_backend
    assert {name for name in dir(torch._C._lazy) if not name.startswith("__")} <= set(dir(lazy))
    assert {name for name in dir(torch._C._lazy_ts_backend) if not name.startswith("__")} <= set(dir(ts_backend))
    lazy._mark_step("lazy:0", [], wait=True)
    lazy._wait_device_ops(devices=["lazy", "lazy:0"])
    lazy._sync_multi([], ["lazy"], wait=True, sync_ltc_data=False)
    assert lazy._get_default_device_type() == "lazy"
