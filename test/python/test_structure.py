"""The layering of the C++ sources and their tests, and the scripts that check them."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.smoke


def load_tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


check_includes = load_tool("check_includes")
check_tests = load_tool("check_tests")


def write(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def problems_of(tmp_path, file, line):
    write(tmp_path / file, f"// A file.\n{line}\n")
    return check_includes.check(tmp_path)


def test_includes_point_down():
    assert check_includes.check(ROOT) == []


def test_every_layer_is_checked():
    checked = {check_includes.layer_of(path.relative_to(ROOT)) for path in check_includes.sources(ROOT)}
    assert checked == {"common", "device", "kernels", "lowering", "backend", "torch_lazyplug"}


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("common/a.h", '#include "device/b.h"'),
        ("device/a.cpp", '#include "lowering/b.h"'),
        ("lowering/a.cpp", '#include "device/b.h"'),
        ("lowering/passes/a.cpp", '#include "backend/b.h"'),
        ("backend/a.cpp", '  #  include "torch_lazyplug/csrc/b.h"'),
        ("backend/a.cpp", "#include <torch/csrc/jit/ir/ir.h>"),
        ("torch_lazyplug/csrc/a.cpp", "#include <torch/csrc/jit/ir/ir.h>"),
        ("device/a.cpp", '#include "stream.h"'),
        ("device/a.cpp", '#include "../common/config.h"'),
        ("device/a.cpp", "#include <backend/b.h>"),
        ("device/a.cpp", '#include "test/cpp/helpers.h"'),
        ("test/cpp/device/a.cpp", '#include "backend/b.h"'),
        ("backend/ops/a.cpp", '#include "backend/execution/b.h"'),
        ("backend/a.cpp", '#include "backend/ops/b.h"'),
        ("backend/elsewhere/a.cpp", '#include "backend/ops/b.h"'),
        ("lowering/ir/a.cpp", '#include "lowering/passes/b.h"'),
        ("lowering/passes/a.cpp", '#include "lowering/b.h"'),
        ("test/cpp/backend/a.cpp", "#include <torch/csrc/jit/ir/ir.h>"),
    ],
)
def test_forbidden_include(tmp_path, file, line):
    (problem,) = problems_of(tmp_path, file, line)
    assert problem.startswith(f"{file}:2: ")


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("common/a.cpp", '#include "common/a.h"'),
        ("device/a.cpp", '#include "common/config.h"'),
        ("lowering/a.cpp", "#include <torch/csrc/jit/ir/ir.h>"),
        ("backend/a.cpp", '#include "lowering/ir/trace.h"'),
        ("backend/a.cpp", '#include "device/stream.h"'),
        ("backend/execution/a.cpp", '#include "backend/ops/b.h"'),
        ("backend/execution/a.cpp", '#include "backend/execution/b.h"'),
        ("lowering/a.cpp", '#include "lowering/passes/b.h"'),
        ("torch_lazyplug/csrc/a.cpp", '#include "backend/executor.h"'),
        ("torch_lazyplug/csrc/a.cpp", "#include <torch/csrc/utils/pybind.h>"),
        ("test/cpp/lowering/a.cpp", '#include "lowering/ir/trace.h"'),
        ("test/cpp/lowering/a.cpp", '#include "test/cpp/lowering/helpers.h"'),
        ("test/cpp/lowering/a.cpp", '#include "helpers.h"'),
        ("device/a.cpp", "#include <vector>"),
        ("device/a.cpp", '// #include "backend/b.h"'),
    ],
)
def test_allowed_include(tmp_path, file, line):
    assert problems_of(tmp_path, file, line) == []


@pytest.mark.parametrize("via", ["a.cpp", "a.h"])
def test_cycle_of_includes(tmp_path, via):
    write(tmp_path / "backend/ops" / via, '#include "backend/ops/b.h"\n')
    write(tmp_path / "backend/ops/b.cpp", '#include "backend/ops/b.h"\n#include "backend/ops/c.h"\n')
    assert check_includes.check(tmp_path) == []
    write(tmp_path / "backend/ops/c.cpp", '#include "backend/ops/a.h"\n')
    (problem,) = check_includes.check(tmp_path)
    assert problem.endswith(": a cycle of includes")


def test_storages_streams_and_devices_are_one_thing(tmp_path):
    write(tmp_path / "backend/execution/lazy_storage.cpp", '#include "backend/execution/stream_context.h"\n')
    write(tmp_path / "backend/execution/stream_context.h", '#include "backend/execution/lazy_storage.h"\n')
    assert check_includes.check(tmp_path) == []


def test_every_room_has_its_place():
    for layer, rooms in check_includes.ROOMS.items():
        folders = {path.parent.relative_to(ROOT / layer).as_posix() for path in (ROOT / layer).rglob("*.cpp")}
        assert {folder.removeprefix(".") for folder in folders} == set(rooms)


def test_every_source_has_a_test():
    assert check_tests.check(ROOT) == []


def test_exceptions_are_sources():
    assert [name for name in check_tests.EXCEPTIONS if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(
    ("source", "test"),
    [
        ("common/a.cpp", "test/cpp/common/test_a.cpp"),
        ("backend/native/a_b.cpp", "test/cpp/backend/native/test_a_b.cpp"),
        ("torch_lazyplug/csrc/a.cpp", "test/cpp/csrc/test_a.cpp"),
    ],
)
def test_a_test_is_named_after_its_source(tmp_path, source, test):
    write(tmp_path / source)
    assert check_tests.check(tmp_path) == [f"{source}: {test} is missing"]
    write(tmp_path / test)
    assert check_tests.check(tmp_path) == []


def test_exceptions_have_no_test(tmp_path):
    source, test = "backend/registration/registration.cpp", "test/cpp/backend/registration/test_registration.cpp"
    write(tmp_path / source)
    assert check_tests.check(tmp_path) == []
    write(tmp_path / test)
    (problem,) = check_tests.check(tmp_path)
    assert problem.startswith(f"{source}: has a test")
