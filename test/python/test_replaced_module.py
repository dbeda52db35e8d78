"""A program written for ``torch._lazy`` runs with only the module's name replaced, and does the same.

The in-tree device runs it without the plugin, in a process of its own; the plugin runs the text with the name replaced.
"""

import importlib
import importlib.util
import inspect
import os
import pkgutil
import re
import subprocess
import sys
import textwrap

import pytest
import torch
import torch._C._lazy
import torch._C._lazy_ts_backend
import torch._lazy
from helpers import run_fresh

import torch_lazyplug

pytestmark = [pytest.mark.lazy_only, pytest.mark.own_schedule("extracts graphs that are pending as a whole")]

MODULES = ["", *(f".{module.name}" for module in pkgutil.iter_modules(torch._lazy.__path__))]

# Parts of the in-tree extraction that only it uses: ours is made otherwise.
INNER = {"GraphInputMatcher", "ReturnValueHandler", "force_lazy_device", "get_fallback_ops"}


def pristine(name):
    """A module of torch._lazy as it is without the plugin, which replaces functions in it."""
    spec = importlib.util.find_spec(f"torch._lazy{name}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def public_names(module):
    """The functions and classes that a module offers, its own and those of its siblings."""
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__.startswith("torch._lazy")
    }


def assert_callable_alike(ours, in_tree, name):
    """Every call that suits the in-tree signature suits ours, and means the same."""
    ours, in_tree = (list(inspect.signature(function).parameters.values()) for function in (ours, in_tree))
    for own, expected in zip(ours, in_tree, strict=False):
        assert (own.name, own.kind) == (expected.name, expected.kind), name
        if expected.default is not expected.empty:
            assert own.default == expected.default, name
    assert len(ours) >= len(in_tree), name
    for added in ours[len(in_tree) :]:
        assert added.default is not added.empty or added.kind in (added.VAR_POSITIONAL, added.VAR_KEYWORD), name


@pytest.mark.parametrize("name", MODULES)
def test_functions_and_classes_have_the_same_signatures(name):
    in_tree = pristine(name)
    ours = importlib.import_module(f"torch_lazyplug{name}")
    offered = {key: value for key, value in public_names(in_tree).items() if key not in INNER}
    assert len(offered) >= {"": 8, ".closure": 5, ".tensor_factory_functions": 0}.get(name, 1)
    for function_name, value in offered.items():
        own = getattr(ours, function_name)
        assert_callable_alike(own, value, f"{name}.{function_name}")
        for method_name, method in inspect.getmembers(value, inspect.isfunction) if inspect.isclass(value) else ():
            if method_name == "__call__" or not method_name.startswith("_"):
                assert_callable_alike(getattr(own, method_name), method, f"{function_name}.{method_name}")


def test_the_list_of_factories_is_the_in_tree_one():
    in_tree = importlib.import_module("torch._lazy.tensor_factory_functions").tensor_factory_functions
    assert set(in_tree) <= set(torch_lazyplug.tensor_factory_functions.tensor_factory_functions)


def parameters(binding):
    """Names and defaults in what pybind says of a function."""
    text = re.match(r"\w+\((.*)\) -> ", binding.__doc__.strip(), flags=re.S).group(1)
    pairs = re.findall(r"(\w+): [\w.]+(?:\[[^=]*?\])?(?: = ([^,]+))?(?:, |$)", text)
    assert len(pairs) == len(re.findall(r"\w+: ", text)), text
    return pairs


@pytest.mark.parametrize("module", ["_lazy", "_lazy_ts_backend"])
def test_bindings_have_the_same_signatures(module):
    in_tree, ours = getattr(torch._C, module), getattr(torch_lazyplug._C, module)
    names = [name for name in dir(in_tree) if not name.startswith("__")]
    assert len(names) >= {"_lazy": 19, "_lazy_ts_backend": 4}[module]
    for name in names:
        expected, own = parameters(getattr(in_tree, name)), parameters(getattr(ours, name))
        assert [parameter for parameter, _ in own] == [parameter for parameter, _ in expected], name
        for (parameter, default), (_, own_default) in zip(expected, own, strict=True):
            assert not default or default == own_default, (name, parameter)


# Each public function, as the in-tree tests and the documentation use it.
PROGRAM = """
    import sys, tempfile
    import torch
    import torch._C._lazy
    import torch._lazy
    import torch._lazy.closure, torch._lazy.computation, torch._lazy.config, torch._lazy.debug
    import torch._lazy.device_context, torch._lazy.ir_cache, torch._lazy.metrics, torch._lazy.ts_backend
    from torch._lazy.extract_compiled_graph import extract_compiled_graph
    from torch._lazy.tensor_factory_functions import tensor_factory_functions

    torch._lazy.ts_backend.init()
    torch.manual_seed(0)

    # training, with closures
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).to(device="lazy")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses, steps = [], []
    for step in range(4):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 3).to("lazy")).square().mean()
        loss.backward()
        optimizer.step()
        torch._lazy.add_step_closure(lambda value: losses.append(round(value.item(), 4)), args=(loss,))
        torch._lazy.closure.add_step_closure(steps.append, (step,), run_async=False)
        torch._lazy.mark_step()
    torch._lazy.wait_device_ops()
    torch._lazy.wait_device_ops(["lazy:0"])
    print("losses", losses, steps)
    print("context", torch._lazy.device_context.get_device_context() is torch._lazy.run_step_closures())

    # asynchronous closures
    done = []
    torch._lazy.add_step_closure(done.append, args=("asynchronous",), run_async=True)
    torch._lazy.add_step_closure(done.append, args=("after it is queued",))
    torch._lazy.mark_step("lazy:0", wait=True)
    handler = torch._lazy.closure.AsyncClosureHandler(max_queue_size=5)
    handler([lambda: done.append("by hand")])
    torch._lazy.closure.ClosureHandler()([lambda: done.append("at once")])
    for _ in range(200):
        if len(done) < 4:
            __import__("time").sleep(0.05)
    print("closures", sorted(done))

    # tensors
    x = torch.arange(6.0).reshape(2, 3).to("lazy")
    y = x * 2 + 1
    print("ids", torch._lazy.get_tensor_id(x) != torch._lazy.get_tensor_id(y), type(torch._lazy.get_tensor_id(x)))
    torch._lazy.sync_multi([x, y], [])
    tree = torch._lazy.to_cpu({"y": y, "more": [x + 1]})
    print("to_cpu", tree["y"].device, tree["y"].tolist(), tree["more"][0].tolist())
    with tempfile.NamedTemporaryFile() as file:
        torch._lazy.save({"x": x, "y": y}, file.name)
        loaded = torch.load(file.name)
        print("saved", {name: (tensor.device.type, tensor.sum().item()) for name, tensor in loaded.items()})

    # metrics and settings
    torch._lazy.metrics.reset()
    z = (x + y).relu()
    names = torch._lazy.metrics.counter_names()
    print("counted", "lazy::relu" in names or torch._lazy.mark_step(wait=True) or
          "lazy::relu" in torch._lazy.metrics.counter_names())
    print("absent", torch._lazy.metrics.counter_value("no such counter"))
    print("report", type(torch._lazy.metrics.metrics_report()))
    torch._lazy.config.set_force_fallback("aten::relu")
    print("forced", torch._lazy.config.get_force_fallback(), (x - 2).relu().cpu().tolist())
    print("fell back", torch._lazy.metrics.counter_value("aten::relu") >= 1)
    torch._lazy.config.set_force_fallback("")
    torch._lazy.config.set_reuse_ir(True)
    print("predicted", [(x * i).sum().item() for i in range(3)])
    torch._lazy.config.set_reuse_ir(False)
    torch._C._lazy._set_symbolic_shape_mode(True)
    print("symbolic", torch._C._lazy._get_symbolic_shape_mode())
    torch._C._lazy._set_symbolic_shape_mode(False)

    # graphs
    pending = x * y
    print("rendered", "digraph" in torch._lazy.debug.render_ir_graph([pending]))
    print("text", "aten::mul" in torch._lazy.debug.dump_ir([pending], "text"))
    print("backend", "aten::mul" in torch._lazy.debug.dump_ir([pending], "backend"))
    ids, values = torch._lazy.computation.get_tensors_ts_device_data_node([pending])
    print("inputs", sorted(ids) == sorted(map(torch._lazy.get_tensor_id, (x, y))), len(values))
    graph = torch._lazy.computation.get_graph_hash([pending])
    torch._lazy.sync_multi([pending], [])
    again = torch._lazy.computation.run_cached_graph(graph, values)
    print("again", type(graph), torch.equal(again[0].cpu(), pending.cpu()))
    with tempfile.NamedTemporaryFile() as file:
        torch._lazy.ir_cache.dump(file.name)
    torch._lazy.ir_cache.reset()

    class Module(torch.nn.Module):
        def forward(self, a, b):
            return a * 2 - b, a.sum()

    compiled = extract_compiled_graph(torch.fx.symbolic_trace(Module()), [torch.ones(2), torch.ones(2)])
    print("compiled", [result.tolist() for result in compiled(torch.tensor([3.0, 4.0]), torch.ones(2))])
    print("factories", torch.ones in tensor_factory_functions, len(tensor_factory_functions) >= 25)
"""


def run_in_tree():
    """What the program prints without the plugin."""
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    environment.pop("PYTHONPATH", None)
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_program_does_the_same_with_the_name_replaced():
    expected = run_in_tree()
    replaced = PROGRAM.replace("import torch._C._lazy\n", "import torch_lazyplug._C\n")
    replaced = replaced.replace("torch._C._lazy", "torch_lazyplug._C._lazy").replace("torch._lazy", "torch_lazyplug")
    assert "torch._" not in replaced
    assert run_fresh(replaced).splitlines() == expected.splitlines()
    assert len(expected.splitlines()) >= 20
