"""torch.distributed: process groups for the CPU send tensors of the device, and models train that are copied to several
processes, or divided among them."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers import run_fresh

pytestmark = pytest.mark.lazy_only

PROLOGUE = """
import torch.distributed as dist
RANK = {rank}
dist.init_process_group({backend}init_method="file://{path}", rank=RANK, world_size=2)
torch.set_num_threads(1)
"""


def run_two(code, tmp_path, backend='"gloo", '):
    """Runs code in two processes of one group, with their number as RANK."""

    def run(rank):
        prologue = PROLOGUE.format(rank=rank, path=tmp_path / "meeting", backend=backend)
        return run_fresh(prologue + code + "\ndist.destroy_process_group()\n", GLOO_SOCKET_IFNAME="lo")

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(run, range(2)))


def test_collectives_do_what_they_do_on_the_cpu(tmp_path):
    run_two(
        """
def values(device):
    return torch.arange(8.0, device=device).view(2, 4).t() * (RANK + 1)

def two(device):
    return [torch.zeros(4, 2, device=device) for _ in range(2)]

def all_reduce(d):
    x = values(d) + 1
    work = dist.all_reduce(x, dist.ReduceOp.MAX, async_op=True)
    assert work.wait() and work.is_completed()
    return x

def all_reduce_coalesced(d):
    xs = [values(d), values(d)[0]]
    dist.all_reduce_coalesced(xs)
    return xs

def part_of_a_tensor(d):
    x = values(d)
    dist.all_reduce(x[1:3])
    return x

def broadcast(d):
    x = values(d)
    dist.broadcast(x, 1)
    return x

def reduce(d):
    x = values(d)
    dist.reduce(x, 0)
    return x if RANK == 0 else None

def all_gather(d):
    results = two(d)
    dist.all_gather(results, values(d).contiguous())
    return results

def all_gather_into_tensor(d):
    x = torch.zeros(8, 2, device=d)
    dist.all_gather_into_tensor(x, values(d).contiguous())
    return x

def gather(d):
    results = two(d) if RANK == 0 else None
    dist.gather(values(d).contiguous(), results, dst=0)
    return results

def scatter(d):
    x = torch.zeros(4, 2, device=d)
    dist.scatter(x, [values(d).contiguous(), values(d) + 1] if RANK == 0 else None, src=0)
    return x

def reduce_scatter(d):
    x = torch.zeros(2, 2, device=d)
    dist.reduce_scatter_tensor(x, values(d).contiguous())
    return x

def all_to_all(d):
    x = torch.zeros(4, 2, device=d)
    dist.all_to_all_single(x, values(d).contiguous())
    return x

def send_and_receive(d):
    x = torch.zeros(4, 2, device=d)
    works = [dist.isend(values(d).contiguous(), 1 - RANK), dist.irecv(x, 1 - RANK)]
    for work in works:
        work.wait()
    return x

def objects(d):
    results = [None, None]
    dist.all_gather_object(results, {"rank": RANK, "x": values(d)})
    return [result["x"] for result in results]

def on_cpu(value):
    return [on_cpu(v) for v in value] if isinstance(value, list) else None if value is None else value.cpu()

for function in (all_reduce, all_reduce_coalesced, part_of_a_tensor, broadcast, reduce, all_gather,
                 all_gather_into_tensor, gather, scatter, reduce_scatter, all_to_all, send_and_receive, objects):
    expected, actual = function("cpu"), function("lazy")
    assert str(on_cpu(actual)) == str(expected), (function.__name__, actual, expected)
x = torch.ones(3, device="lazy")
future = dist.all_reduce(x, async_op=True).get_future()
assert future.wait()[0].device == x.device and future.value()[0].tolist() == [2, 2, 2]
dist.barrier()
""",
        tmp_path,
    )


@pytest.mark.parametrize("options", ["", "bucket_cap_mb=0.0001, gradient_as_bucket_view=True", "static_graph=True"])
def test_distributed_data_parallel_trains_as_on_the_cpu(options, tmp_path):
    run_two(
        f"""
def train(device):
    torch.manual_seed(RANK)  # DDP gives all the parameters of the first
    layers = torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 2)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers).to(device), {options})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(4):
        batch = torch.randn(16, 6, generator=torch.Generator().manual_seed(10 * step + RANK)).to(device)
        optimizer.zero_grad()
        with model.no_sync() if step == 2 and not {"static" in options} else torch.enable_grad():
            loss = model(batch).square().mean()
            loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert all(p.device.type == p.grad.device.type == device for p in model.parameters())
    return losses, [p.detach().cpu() for p in model.parameters()], [b.cpu() for b in model.buffers()]

torch.testing.assert_close(train("lazy"), train("cpu"), rtol=1e-4, atol=1e-5)
assert not torch_lazyplug.metrics.executed_fallback_ops(), torch_lazyplug.metrics.executed_fallback_ops()
""",
        tmp_path,
    )


def test_the_default_backend_is_for_both_devices(tmp_path):
    run_two(
        """
for device in ("lazy", "cpu"):
    x = torch.arange(3.0, device=device) + RANK
    dist.all_reduce(x)
    assert x.device.type == device and x.tolist() == [1, 3, 5]
results = [None, None]
dist.all_gather_object(results, RANK)
assert results == [0, 1]
dist.barrier()
""",
        tmp_path,
        backend="",
    )


def test_messages_of_a_batch_go_where_gloo_is_named(tmp_path):
    run_two(
        """
for device in ("lazy", "cpu"):
    there, here = torch.full((3,), float(RANK), device=device), torch.empty(3, device=device)
    batch = [dist.P2POp(dist.isend, there, 1 - RANK), dist.P2POp(dist.irecv, here, 1 - RANK)]
    for message in dist.batch_isend_irecv(batch):
        message.wait()
    assert here.device.type == device and here.tolist() == [1.0 - RANK] * 3
""",
        tmp_path,
    )


@pytest.mark.parametrize("kind", ["fully_shard", "tensor parallel"])
def test_models_that_are_divided_train_as_on_the_cpu(kind, tmp_path):
    run_two(
        f"""
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

def train(device):
    torch.manual_seed(0)
    mesh = init_device_mesh(device, (2,))
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.GELU(), torch.nn.Linear(16, 2)).to(device)
    if {kind == "fully_shard"}:
        fully_shard(model[0], mesh=mesh)
        fully_shard(model, mesh=mesh)
    else:
        parallelize_module(model, mesh, {{"0": ColwiseParallel(), "2": RowwiseParallel()}})
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(4):
        batch = torch.randn(16, 6, generator=torch.Generator().manual_seed(step)).to(device)
        loss = model(batch).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, [p.full_tensor().detach().cpu() for p in model.parameters()]

torch.testing.assert_close(train("lazy"), train("cpu"), rtol=1e-4, atol=1e-5)
""",
        tmp_path,
        backend="",
    )
