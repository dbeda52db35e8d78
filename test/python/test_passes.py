"""Passes over graphs: programs compute the same with and without each, to the bit, and each says what it did."""

import pytest
import torch
import torch.nn.functional as F
from helpers import DEVICE, work
from passes import PASSES

import torch_lazyplug
from torch_lazyplug import config, ir_cache, metrics


@pytest.fixture(autouse=True)
def as_before():
    torch_lazyplug.wait_device_ops()
    ir_cache.reset()
    metrics.reset()
    yield
    config.set("disabled_passes", "")
    config.set("dump_dir", "")
    config.set_debug(False)


def changed(name):
    return metrics.counter_value(f"PassChanged/{name}") or 0


def program(device):
    """Something for each pass, an optimizer, and values that must be kept apart."""
    torch.manual_seed(0)
    x, w = torch.randn(4, 6).to(device), torch.randn(6, 6).to(device).requires_grad_()
    optimizer = torch.optim.AdamW([w], lr=0.1)
    kept = []
    for _ in range(3):
        optimizer.zero_grad()
        hidden = torch.relu(torch.relu(x @ w))
        copy = hidden.detach().clone()
        copy += 1
        before = copy.contiguous().clone()
        copy.mul_(before.t().contiguous().t())
        mask = torch.atan(torch.exp(x) * torch.exp(x))  # written where the product was
        torch.tanh(mask)  # nobody reads it
        loss = F.mse_loss(torch.neg(torch.neg(hidden)) * mask, copy)
        loss.backward()
        optimizer.step()
        kept += [copy.cpu(), before.cpu(), loss.detach().cpu()]
    return [*kept, w.detach().cpu(), w.grad.cpu()]


@pytest.mark.parametrize("off", ["", *PASSES, ",".join(PASSES)])
def test_results_do_not_depend_on_passes(off):
    expected = program("cpu")
    config.set("disabled_passes", off)
    with work() as done:
        actual = program(DEVICE)
    assert done.fallbacks == 0
    for a, e in zip(actual, expected, strict=True):
        assert a.stride() == e.stride() and torch.equal(a, e)
    for name in off.split(",") if off else ():
        assert changed(name) == 0
    if not off:
        assert all(changed(name) > 0 for name in PASSES if name not in ("foreach_groups", "dead_code"))


def test_what_nobody_reads_is_not_run():
    x = torch.ones(3).to(DEVICE)
    torch.tanh(x)
    before = metrics.counter_value("NodesExecuted") or 0
    assert (x + 1).sum().item() == 6
    assert metrics.counter_value("NodesExecuted") - before == 2


def test_a_copy_that_is_only_read_is_not_made():
    x = torch.relu(torch.ones(3, 3).to(DEVICE))
    before = metrics.counter_value("NodesExecuted") or 0
    (x.clone() + x.contiguous().to(torch.float32)).cpu()
    assert metrics.counter_value("NodesExecuted") - before == 2
    assert changed("no_op_copies") == 1


def test_copies_own_their_memory():
    """Whichever of the two is written, and however large the storage of the one is."""
    big = torch.arange(100.0, device=DEVICE)
    part = big[:3].clone()
    assert part.untyped_storage().nbytes() == 12
    twin = torch.relu(big)
    other = twin.clone()
    twin += 1
    assert other[:2].tolist() == [0, 1] and twin[:2].tolist() == [1, 2]
    other.zero_()
    assert twin[:2].tolist() == [1, 2]
    assert twin.data_ptr() != other.data_ptr()


def test_switching_a_pass_compiles_anew():
    def run():
        x = torch.relu(torch.ones(3, device=DEVICE))
        return (torch.exp(x) + torch.exp(x)).cpu()

    first = run()
    assert changed("common_subexpressions") == 1
    config.set("disabled_passes", "common_subexpressions")
    compiled = metrics.counter_value("Compile")
    assert torch.equal(run(), first)
    assert metrics.counter_value("Compile") == compiled + 1
    assert changed("common_subexpressions") == 1


@pytest.mark.own_schedule("counts graphs")
def test_dumps_have_the_users_lines(tmp_path):
    config.set("dump_dir", str(tmp_path / "graphs"))
    config.set_debug(True)
    x = torch.ones(3, device=DEVICE)
    (torch.relu(x) + torch.relu(x)).cpu()
    files = sorted(p.name.split("-", 2)[2] for p in (tmp_path / "graphs").iterdir())
    assert files == ["0-recorded.txt", "1-common_subexpressions.txt"]
    (recorded,) = (tmp_path / "graphs").glob("*-0-recorded.txt")
    lines = recorded.read_text().splitlines()
    assert sum("aten::relu(" in line and "test_passes.py:" in line for line in lines) == 2
    assert lines[-1].startswith("return %")
