"""What this package wraps is told from what others wrap."""

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torch_lazyplug
from torch_lazyplug import accessors, cpu_choices, deepcopy, dlpack, safetensors_support, sharing, transformers_support
from torch_lazyplug._wrapping import wrap_attribute, wrap_once

pytestmark = pytest.mark.lazy_only

PACKAGE_ROOT = Path(torch_lazyplug.__file__).resolve().parents[1]


def twice(function):
    return lambda *args: 2 * function(*args)


def wrapped_by_another_library(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def double(x):
    """Of a number."""
    return 2 * x


def test_a_wrapper_has_name_and_documentation():
    wrapper = wrap_once(double, twice)
    assert wrapper(3) == 12
    assert (wrapper.__name__, wrapper.__doc__, wrapper.__wrapped__) == ("double", "Of a number.", double)


def test_a_function_is_wrapped_once():
    wrapper = wrap_once(double, twice)
    assert wrap_once(wrapper, twice) is wrapper
    around_ours = wrapped_by_another_library(wrapper)
    assert wrap_once(around_ours, twice) is around_ours


def test_wrappers_of_others_are_wrapped():
    wrapper = wrap_once(wrapped_by_another_library(double), twice)
    assert wrapper(3) == 12
    assert wrap_once(double, twice) is not double


def test_attributes_are_wrapped_once():
    class Owner:
        method = double

    wrap_attribute(Owner, "method", twice)
    wrap_attribute(Owner, "method", twice)
    assert Owner.method(3) == 12


@pytest.mark.parametrize(
    "module", [accessors, cpu_choices, deepcopy, dlpack, safetensors_support, sharing, transformers_support]
)
def test_installing_again_changes_nothing(module):
    names = ("data_ptr", "__deepcopy__", "__dlpack_device__")
    before = [getattr(torch.Tensor, name) for name in names]
    module.install()
    assert [getattr(torch.Tensor, name) for name in names] == before


# Another library was first, and has wrapped everything that we wrap.
PROGRAM = """
import copy, functools
from multiprocessing import reduction
import torch, torch.multiprocessing

def wrapped(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        calls.add(function.__name__)
        return function(*args, **kwargs)
    return wrapper

def wrap(owner, *names):
    for name in names:
        setattr(owner, name, wrapped(getattr(owner, name)))

calls = set()
wrap(torch.Tensor, "data_ptr", "__deepcopy__", "__dlpack_device__")
wrap(torch.UntypedStorage, "data_ptr", "copy_")
wrap(torch._C, "_to_dlpack_versioned")
reducers = reduction.ForkingPickler._extra_reducers
reducers[torch.UntypedStorage] = wrapped(reducers[torch.UntypedStorage])

import torch_lazyplug

x = torch.ones(3, device="lazy") + 1
assert x.data_ptr() == x.untyped_storage().data_ptr() != 0
y = torch.ones(3, device="lazy") + 2
z = copy.deepcopy([y, y[1:]])
assert z[0].untyped_storage()._cdata == z[1].untyped_storage()._cdata and z[1].tolist() == [3, 3]
assert torch.from_dlpack(y + 1).device.type == "lazy" and torch.from_dlpack(y + 1).tolist() == [4, 4, 4]
other = torch.zeros(3).untyped_storage()
other.copy_((y * 2).untyped_storage())
assert torch.tensor(other.tolist(), dtype=torch.uint8).view(torch.float32).tolist() == [6, 6, 6]
assert reducers[torch.UntypedStorage](y.untyped_storage())[0].__module__ == "torch_lazyplug.sharing"
assert calls >= {"data_ptr", "copy_"}, calls
"""


def test_another_library_that_wrapped_first_does_not_keep_ours_out():
    env = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTHONPATH": str(PACKAGE_ROOT)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
