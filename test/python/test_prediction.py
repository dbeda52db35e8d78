"""Calls that are recognised from the last time: the same results, whatever the program does differently."""

import pytest
import torch
from helpers import DEVICE

import torch_lazyplug
from torch_lazyplug import config, ir_cache, metrics


def predicted() -> int:
    return metrics.counter_value("Predicted") or 0


@pytest.fixture(autouse=True)
def fresh():
    torch_lazyplug.wait_device_ops()
    ir_cache.reset()
    metrics.reset()
    yield
    config.set_reuse_ir(True)


def step(x, scale=2.0, extra=False):
    y = x * scale
    y = y + x
    if extra:
        y = y - 1
    y = torch.relu(y)
    return y.sum(0)


@pytest.mark.own_schedule("counts predictions")
def test_repetition_is_predicted():
    x = torch.randn(3, 4)
    lazy = x.to(DEVICE)
    for _ in range(3):
        assert torch.equal(step(lazy).cpu(), step(x))
    assert metrics.counter_value("NodesRecorded") == 12
    # The last step, and the last call of the second one: it was the first to follow a known graph.
    assert predicted() == 5
    assert metrics.counter_value("Compile") == 1


@pytest.mark.own_schedule("counts predictions")
def test_calls_without_tensors_are_predicted():
    x = torch.randn(3, 4)
    lazy = x.to(DEVICE)

    def step(x, number):
        x = torch.where(x > 0, x, number) + torch.zeros(4, device=x.device)  # the number becomes a tensor
        x[0] = number
        return x * torch.full((3, 1), number, device=x.device) + torch.arange(4, device=x.device)

    for i in range(5):
        before = predicted(), metrics.counter_value("NodesRecorded") or 0
        number = 1.5 + i / 16  # of one magnitude
        assert torch.equal(step(lazy, number).cpu(), step(x, number))
    assert predicted() - before[0] == metrics.counter_value("NodesRecorded") - before[1]


@pytest.mark.own_schedule("counts predictions")
def test_changing_scalars_are_inputs_of_a_predicted_call():
    x = torch.randn(3, 4)
    lazy = x.to(DEVICE)
    for i in range(6):
        assert torch.equal(step(lazy, scale=float(i)).cpu(), step(x, scale=float(i)))
    assert predicted() >= 12
    assert metrics.counter_value("Compile") == 1


def test_another_type_of_scalar_is_another_call():
    x = torch.ones(3, 4, dtype=torch.int64)
    lazy = x.to(DEVICE)
    for scale in (2, 2, 2, 0.5, 2, True):
        result = step(lazy, scale=scale).cpu()
        assert result.dtype == step(x, scale=scale).dtype
        assert torch.equal(result, step(x, scale=scale))


def test_divergence_loses_nothing_and_prediction_goes_on():
    x = torch.randn(3, 4)
    lazy = x.to(DEVICE)
    for extra in (False, False, False, True, False, True, True, False, False):
        assert torch.equal(step(lazy, extra=extra).cpu(), step(x, extra=extra))
    assert predicted() >= 12


@pytest.mark.parametrize(
    "change",
    {
        "shape": lambda x: x[:2],
        "strides": lambda x: x.t().contiguous().t(),
        "dtype": lambda x: x.double(),
        "broadcast": lambda x: x[:1].expand(3, 4),
        "empty": lambda x: x[:0],
        "offset": lambda x: torch.cat([x, x])[3:],
    }.items(),
    ids=lambda item: item[0],
)
def test_other_geometry_is_another_call(change):
    x = torch.randn(3, 4)
    lazy = x.to(DEVICE)
    for _ in range(3):
        step(lazy).cpu()
    result, expected = step(change[1](lazy)), step(change[1](x))
    assert result.stride() == expected.stride()
    torch.testing.assert_close(result.cpu(), expected)
    assert torch.equal(step(lazy).cpu(), step(x))


def test_default_dtype_is_part_of_the_call():
    x = torch.ones(4, dtype=torch.int32)
    lazy = x.to(DEVICE)
    for dtype in (torch.float32, torch.float32, torch.float32, torch.float64, torch.float32):
        torch.set_default_dtype(dtype)
        try:
            result = (lazy / 2).cpu()
        finally:
            torch.set_default_dtype(torch.float32)
        assert result.dtype == dtype


def test_shared_storage_is_seen_by_predicted_writes():
    def write(x, alias):
        y = x.clone()
        source = y[1:] if alias else x[1:]
        y[:-1].add_(source.clone() if alias else source)
        y.mul_(y if alias else x)
        return y

    x = torch.randn(5)
    lazy = x.to(DEVICE)
    for alias in (False, False, False, True, True, True, False):
        assert torch.equal(write(lazy, alias).cpu(), write(x, alias))


def test_errors_of_arguments_are_raised_at_their_line():
    lazy = torch.ones(3, 4, device=DEVICE)
    for _ in range(3):
        step(lazy).cpu()
    with pytest.raises(RuntimeError, match="must match the size"):
        lazy * 2.0 + torch.ones(7, device=DEVICE)
    assert torch.equal(step(lazy).cpu(), step(torch.ones(3, 4)))


def test_numbers_that_a_kernel_refuses_are_refused_at_their_line():
    lazy = torch.ones(300, 4, device=DEVICE)
    for _ in range(3):
        torch.nn.functional.threshold(torch.nn.functional.elu(lazy * 2, 0.5), 0.1, 3).cpu()
        torch.logit(lazy, 0.1).cpu()
    with pytest.raises(RuntimeError):
        torch.renorm(lazy, -1.0, 0, 1.0)
    x = torch.ones(300, dtype=torch.int8)
    for value in (3, 3, 3, 300, 3):
        eager, recorded = x.clone(), x.to(DEVICE)
        try:
            eager.masked_fill_(eager > 0, value)
        except RuntimeError as error:
            with pytest.raises(RuntimeError, match=str(error)[:30]):
                recorded.masked_fill_(recorded > 0, value)
        else:
            recorded.masked_fill_(recorded > 0, value)
            assert torch.equal(recorded.cpu(), eager)


def test_forced_fallback_is_not_overruled():
    lazy = torch.ones(3, 4, device=DEVICE)
    for _ in range(3):
        step(lazy).cpu()
    config.set_force_fallback("aten::mul.Tensor")
    try:
        before = metrics.counter_value("aten::mul") or 0
        step(lazy).cpu()
        assert metrics.counter_value("aten::mul") == before + 1
    finally:
        config.set_force_fallback("")


@pytest.mark.own_schedule("counts predictions")
def test_switched_off():
    config.set_reuse_ir(False)
    x = torch.randn(3, 4)
    lazy = x.to(DEVICE)
    for _ in range(4):
        assert torch.equal(step(lazy).cpu(), step(x))
    assert predicted() == 0
    assert metrics.counter_value("Compile") == 1


def test_random_ops_draw_new_numbers():
    x = torch.ones(1000, device=DEVICE)
    draws = [torch.nn.functional.dropout(x, 0.5).cpu() for _ in range(5)]
    assert all(not torch.equal(a, b) for a, b in zip(draws, draws[1:], strict=False))


@pytest.mark.own_schedule("counts predictions")
def test_random_calls_are_predicted_and_draw_what_others_draw():
    """With the default generator, one of the user's own, and one that is refused."""

    def draw():
        torch.manual_seed(3)
        generator = torch.Generator(DEVICE).manual_seed(4)
        x = torch.zeros(100, device=DEVICE)
        draws = []
        for _ in range(6):
            y = x + 1
            draws += [torch.bernoulli(y / 2), y.uniform_(1, 2, generator=generator), torch.dropout(y, 0.5, True)]
            draws[-1].sum().item()
        return torch.stack(draws).cpu()

    drawn = draw()
    metrics.reset()
    assert torch.equal(draw(), drawn)
    random_ops = sum(metrics.counter_value(f"lazy::{op}") for op in ("bernoulli", "uniform_", "bernoulli_"))
    assert random_ops == 18
    assert predicted() > metrics.counter_value("NodesRecorded") - 12
    config.set_reuse_ir(False)
    assert torch.equal(draw(), drawn)
    with pytest.raises(RuntimeError, match="Expected a 'lazy' device type for generator but found 'cpu'"):
        torch.zeros(100, device=DEVICE).uniform_(1, 2, generator=torch.Generator())


@pytest.mark.own_schedule("counts predictions")
def test_training_step_is_mostly_predicted():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 2))
    lazy = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 2))
    lazy.load_state_dict(model.state_dict())
    lazy.to(DEVICE)
    data = torch.randn(4, 8)

    def train(model, data):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        losses = []
        for _ in range(8):
            optimizer.zero_grad()
            loss = model(data).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    expected = train(model, data)
    torch_lazyplug.wait_device_ops()
    metrics.reset()
    assert train(lazy, data.to(DEVICE)) == expected
    assert predicted() > 0.5 * metrics.counter_value("NodesRecorded")
    assert metrics.counter_value("FallbackTotal") in (None, 0)
