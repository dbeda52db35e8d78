"""The types of the bindings, `torch_lazyplug/_C/*.pyi`, tell what the extension has."""

import ast
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

import torch_lazyplug
from torch_lazyplug import _C

pytestmark = pytest.mark.lazy_only

STUBS = Path(torch_lazyplug.__file__).parent / "_C"
SUBMODULES = sorted(path.stem for path in STUBS.glob("*.pyi") if path.stem != "__init__")


def stub(name):
    return ast.parse((STUBS / f"{name}.pyi").read_text())


def defined(tree):
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def public(owner):
    return {name for name in dir(owner) if not name.startswith("__") and name != "_pybind11_conduit_v1_"}


def parameters_of_stub(function):
    arguments = function.args
    return [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]


def parameters_of_binding(function):
    """The names in what pybind says of a function; `arg0` and so on, if they have none."""
    text = re.match(r"\w+\((.*)\) -> ", function.__doc__.strip(), flags=re.S).group(1)
    return re.findall(r"(?:^|, )(\w+): ", text)


def assert_alike(function, binding, where):
    ours, bound = parameters_of_stub(function), parameters_of_binding(binding)
    assert len(ours) == len(bound), where
    unnamed = all(re.fullmatch(r"self|arg\d+", name) for name in bound)
    assert unnamed == (not function.args.args), f"{where}: unnamed parameters are positional only"
    assert unnamed or ours == bound, where


def test_each_submodule_has_a_stub_that_the_package_names():
    modules = {name for name in dir(_C) if isinstance(getattr(_C, name), ModuleType)}
    assert set(SUBMODULES) == modules == public(_C)
    assert {alias.name for node in stub("__init__").body[1:] for alias in node.names} == modules


@pytest.mark.parametrize("name", SUBMODULES)
def test_a_stub_names_what_the_module_has(name):
    module = getattr(_C, name)
    stubs = defined(stub(name))
    assert set(stubs) == public(module)
    for function_name, node in stubs.items():
        value = getattr(module, function_name)
        assert inspect.isclass(value) == isinstance(node, ast.ClassDef), function_name
        if isinstance(node, ast.FunctionDef):
            assert_alike(node, value, function_name)
            continue
        members = defined(node)
        assert set(members) == public(value), function_name
        for member_name, member in members.items():
            if not isinstance(getattr(value, member_name), property):
                assert_alike(member, getattr(value, member_name), member_name)
