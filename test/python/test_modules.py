"""Every module of PyTorch's database computes what it computes on the CPU, with its gradients, on plain and other
layouts, while it trains and while it is evaluated."""

import copy

import pytest
import torch
from helpers import DEVICE, assert_same, assert_same_error, tensors_in, work
from torch.testing._internal.common_modules import module_db
from torch.utils._pytree import tree_map_only

# Modules that draw random numbers, of which each device has its own: dropout, or parameters that are made when called.
DRAWS = ("nn.Transformer", "nn.Lazy", "nn.FractionalMaxPool")
COMPARED = [info for info in module_db if not info.name.startswith(DRAWS)]
DEPEND_ON_DATA = {"aten::masked_select"}  # the size of what these make
LAYOUTS = {
    "plain": lambda t: t,
    "channels_last": lambda t: t.contiguous(memory_format=torch.channels_last) if t.dim() == 4 else t,
    "transposed": lambda t: t.mT.contiguous().mT if t.dim() > 1 else t,
}


def samples(info, training):
    """Modules, and the arguments that they are called with."""
    for sample in info.module_inputs_func(
        info, device="cpu", dtype=torch.float32, requires_grad=True, training=training
    ):
        if sample.forward_input is not None:
            torch.manual_seed(0)
            module = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs)
            yield module.train(training), (sample.forward_input.args, sample.forward_input.kwargs)


def on(device, layout, arguments):
    def moved(tensor):
        copied = LAYOUTS[layout](tensor.detach().clone()).to(device)
        return copied.requires_grad_(tensor.requires_grad)

    return tree_map_only(torch.Tensor, moved, arguments)


def call(module, arguments, device, layout):
    """The results, their strides, gradients, and what the module holds then. Or the error, where a layout is not
    supported."""
    try:
        return compute(module, arguments, device, layout), None
    except RuntimeError as error:
        return None, error


def compute(module, arguments, device, layout):
    module = copy.deepcopy(module).to(device)
    args, kwargs = on(device, layout, arguments)
    results = tensors_in(module(*args, **kwargs))
    inputs = [t for t in [*tensors_in((args, kwargs)), *module.parameters()] if t.requires_grad]
    outputs = [t for t in results if t.requires_grad]
    gradients = []
    if outputs and inputs:
        loss = sum((t * (1 + torch.arange(t.numel(), device=device).view_as(t) % 3)).sum() for t in outputs)
        gradients = torch.autograd.grad(loss, inputs, allow_unused=True)
    strides = [t.stride() for t in [*results, *(g for g in gradients if g is not None)]]
    return [t.detach() for t in results], strides, list(gradients), module.state_dict()


@pytest.mark.parametrize("info", COMPARED, ids=lambda info: info.name)
def test_results_and_gradients(info):
    for training, layout in [(False, "plain"), *((True, layout) for layout in LAYOUTS)]:
        for number, (module, arguments) in enumerate(samples(info, training)):
            where = f"sample {number}, training={training}, {layout}: {module}"
            expected, expected_error = call(module, arguments, "cpu", layout)
            with work() as done:
                actual, error = call(module, arguments, DEVICE, layout)
            if expected_error:
                assert layout != "plain", where
                assert_same_error(error, expected_error)
                continue
            assert not error, (where, error)
            assert_same(actual, expected, where, rtol=1.3e-6, atol=1e-5)
            assert set(done.fallback_ops) <= DEPEND_ON_DATA, where
