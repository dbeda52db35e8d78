"""Mixed precision: `torch.autocast("lazy")` casts as `torch.autocast("cpu")` does, and `GradScaler("lazy")` scales."""

import copy
import itertools
import warnings

import pytest
import torch
from helpers import DEVICE, assert_same, run_in_bfloat16, work
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

DTYPES = [torch.bfloat16, torch.float16]
MAX_SAMPLES = 2
# Dropout and random samples draw other numbers than the CPU's generator does.
RANDOM = {"nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d"}


def autocast_ops(key):
    return {
        name
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("aten::") and torch._C._dispatch_has_kernel_for_dispatch_key(name, key)
    }


def autocast_op_infos():
    names = {name.split("::")[1].split(".")[0] for name in autocast_ops("AutocastCPU")}
    return [
        op
        for op in op_db
        if torch.float32 in op.dtypes
        and op.name not in RANDOM
        and not op.name.startswith("sparse")
        and names & {op.aten_name, op.name.split(".")[-1]}
    ]


def samples(op, requires_grad=False):
    for sample in itertools.islice(op.sample_inputs("cpu", torch.float32, requires_grad=requires_grad), MAX_SAMPLES):
        if not sample.kwargs.get("dropout_p"):
            yield (sample.input, *sample.args), sample.kwargs


def to_device(value):
    return tree_map(lambda x: x.to(DEVICE) if isinstance(x, torch.Tensor) else x, value)


def run(device, dtype, op, args, kwargs):
    try:
        with torch.autocast(device, dtype=dtype):
            return [x for x in tree_leaves(op(*args, **kwargs)) if isinstance(x, torch.Tensor)]
    except Exception as error:
        return type(error)


@pytest.mark.lazy_only
def test_the_same_ops_as_on_the_cpu():
    cpu = autocast_ops("AutocastCPU")
    assert len(cpu) > 100
    assert autocast_ops("AutocastPrivateUse1") == cpu | {"aten::lstm.input"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_op_has_the_policy_of_the_cpu(dtype):
    ops = autocast_op_infos()
    assert len(ops) > 80
    for op in ops:
        for args, kwargs in samples(op):
            expected = run("cpu", dtype, op, args, kwargs)
            actual = run(DEVICE, dtype, op, to_device(args), to_device(kwargs))
            if isinstance(expected, list):
                assert_same(actual, expected, op.name)
            else:
                assert actual == expected, op.name


def test_policies():
    half = torch.randn(3, 3, device=DEVICE).bfloat16()
    full = torch.randn(3, 3, device=DEVICE)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        assert torch.is_autocast_enabled(DEVICE)
        assert torch.get_autocast_dtype(DEVICE) is torch.bfloat16
        assert (full @ full).dtype is torch.bfloat16
        assert torch.nn.functional.mse_loss(half, half).dtype is torch.float32
        assert torch.cat([half, full]).dtype is torch.float32
        assert torch.cat([half, half]).dtype is torch.bfloat16
        assert (full + full).dtype is torch.float32
        assert (full.double() @ full.double()).dtype is torch.float64
        assert (full.int() + 1).dtype is torch.int32
    assert not torch.is_autocast_enabled(DEVICE)
    assert (full @ full).dtype is torch.float32


def test_nesting():
    x = torch.randn(2, 2, device=DEVICE)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        with torch.autocast(DEVICE, enabled=False):
            assert (x @ x).dtype is torch.float32
        with torch.autocast(DEVICE, dtype=torch.float16):
            assert (x @ x).dtype is torch.float16
        assert (x @ x).dtype is torch.bfloat16
        with torch.autocast("cpu", dtype=torch.float16):
            assert (x @ x).dtype is torch.bfloat16


def test_as_a_decorator():
    @torch.autocast(DEVICE, dtype=torch.bfloat16)
    def multiply(x):
        return x @ x

    assert multiply(torch.randn(2, 2, device=DEVICE)).dtype is torch.bfloat16


@pytest.mark.lazy_only
@pytest.mark.parametrize(("cache_enabled", "casts"), [(True, 1), (False, 3)])
def test_weights_are_cast_once(cache_enabled, casts):
    weight = torch.randn(4, 4, device=DEVICE, requires_grad=True)
    x = torch.randn(2, 4, device=DEVICE, dtype=torch.bfloat16)
    with torch.autocast(DEVICE, dtype=torch.bfloat16, cache_enabled=cache_enabled), work() as done:
        results = [x @ weight for _ in range(3)]
        torch.lazy.synchronize()
    assert all(result.dtype is torch.bfloat16 for result in results)
    assert done.recorded == 3 + casts
    assert done.fallbacks == 0


def test_an_unsupported_dtype_warns_and_disables():
    x = torch.randn(2, 2, device=DEVICE)
    with pytest.warns(UserWarning, match="target dtype is not supported"):
        context = torch.autocast(DEVICE, dtype=torch.float64)
    with context:
        assert (x @ x).dtype is torch.float32


class Multiply(torch.autograd.Function):
    seen = []

    @staticmethod
    @torch.amp.custom_fwd(device_type=DEVICE)
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x @ y

    @staticmethod
    @torch.amp.custom_bwd(device_type=DEVICE)
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        Multiply.seen.append(torch.is_autocast_enabled(DEVICE))
        return grad @ y.T, x.T @ grad


class MultiplyInFloat(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type=DEVICE, cast_inputs=torch.float32)
    def forward(ctx, x):
        assert not torch.is_autocast_enabled(DEVICE)
        return x @ x

    @staticmethod
    @torch.amp.custom_bwd(device_type=DEVICE)
    def backward(ctx, grad):
        return grad


def test_custom_functions():
    x = torch.randn(3, 3, device=DEVICE, requires_grad=True)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        y = Multiply.apply(x, x)
        assert y.dtype is torch.bfloat16
        assert MultiplyInFloat.apply(y).dtype is torch.float32
    Multiply.seen.clear()
    y.sum().backward()
    assert Multiply.seen == [True]
    assert x.grad.dtype is torch.float32


def train(device, dtype, steps=4):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 5)
    )
    x, y = torch.randn(8, 1, 8, 8), torch.randint(5, (8,))
    model, x, y = copy.deepcopy(model).to(device), x.to(device), y.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast(device, dtype=dtype):
            logits = model(x)
            assert logits.dtype is dtype
            loss = torch.nn.functional.cross_entropy(logits, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().cpu())
    return losses, [p.detach().cpu() for p in model.parameters()]


@pytest.mark.parametrize("dtype", DTYPES)
def test_training_is_that_of_the_cpu(dtype):
    with work() as done:
        actual = train(DEVICE, dtype)
    assert done.fallbacks == 0
    assert_same(actual, train("cpu", dtype))


def scaled_steps(device, gradients):
    """Steps of an optimizer whose gradients, before scaling, are as given."""
    weight = torch.ones(3, device=device, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler(device, init_scale=8.0, growth_interval=2)
    scales = []
    for gradient in gradients:
        optimizer.zero_grad()
        scaler.scale((weight * torch.full((3,), gradient, device=device)).sum()).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_([weight], 10.0)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return weight.detach().cpu(), scales, scaler.state_dict()


def test_the_scaler_skips_steps_and_grows():
    gradients = [1.0, 2.0, float("inf"), 0.5, float("nan"), 1.0, 1.0]
    with work() as done:
        weight, scales, state = scaled_steps(DEVICE, gradients)
    assert done.fallbacks == 0
    expected_weight, expected_scales, expected_state = scaled_steps("cpu", gradients)
    assert_same(weight, expected_weight)
    assert scales == expected_scales == [8.0, 16.0, 8.0, 8.0, 4.0, 4.0, 8.0]
    assert state == expected_state


def test_the_scaler_survives_saving():
    scaler = torch.amp.GradScaler(DEVICE, init_scale=4.0)
    scaler.scale(torch.ones(1, device=DEVICE))
    other = torch.amp.GradScaler(DEVICE)
    other.load_state_dict(scaler.state_dict())
    assert other.get_scale() == 4.0
    assert other.scale(torch.ones(1, device=DEVICE)).item() == 4.0


def test_the_scaler_keeps_found_inf_on_the_device():
    weight = torch.ones(2, device=DEVICE, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler(DEVICE)
    scaler.scale(weight.sum() * float("inf")).backward()
    scaler.unscale_(optimizer)
    (found_inf,) = scaler._found_inf_per_device(optimizer).values()
    assert found_inf.device.type == torch.device(DEVICE).type
    assert found_inf.item() == 1.0


@pytest.mark.lazy_only
def test_nothing_warns():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.amp.GradScaler(DEVICE)
        with torch.autocast(DEVICE):
            assert torch.get_autocast_dtype(DEVICE) in DTYPES


@pytest.mark.parametrize(
    "options",
    [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False, "batch_first": True}, {"proj_size": 3}],
    ids=["plain", "deep", "no bias", "projections"],
)
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported")
def test_lstm_layers_have_the_dtype_of_the_region(options):
    lstm = torch.nn.LSTM(4, 6, **options)
    x = torch.randn(5, 3, 4)
    with torch.no_grad():
        expected = run_in_bfloat16(lstm, x)
    lstm.to(DEVICE)
    with torch.no_grad(), torch.autocast(DEVICE, dtype=torch.bfloat16), work() as done:
        actual = lstm(x.to(DEVICE))
    assert done.fallbacks == 0
    # The CPU multiplies all steps by the input weights at once, where oneDNN does not run the layer.
    tolerances = {"rtol": 2e-2, "atol": 1e-2} if "proj_size" in options else {}
    assert_same(actual, expected, **tolerances)


def test_lstm_gradients_under_autocast():
    lstm = torch.nn.LSTM(4, 6).to(DEVICE)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        output, (hidden, cell) = lstm(torch.randn(5, 3, 4, device=DEVICE))
    assert {output.dtype, hidden.dtype, cell.dtype} == {torch.bfloat16}
    (output.float().sum() + cell.float().sum()).backward()
    assert all(p.grad.dtype is torch.float32 and p.grad.isfinite().all() for p in lstm.parameters())
