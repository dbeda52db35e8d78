"""Modules, autograd, optimisers, mixed precision."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

from parity import probe

MODULE, GRAD, OPTIM, AMP = "Modules", "Autograd", "Optimizers", "Mixed precision"


def train(d, make_optimizer, steps=3):
    """The losses of a small training on the device must be the CPU's."""
    torch.manual_seed(0)
    reference, x = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)), torch.randn(6, 4)
    losses = []
    for device in ("cpu", d):
        model, batch = copy.deepcopy(reference).to(device), x.to(device)
        optimizer = make_optimizer(model.parameters())
        for _ in range(steps):
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    torch.testing.assert_close(losses[1], losses[0])


@probe(MODULE, "model.cuda()")
def module_method(d, m):
    model = getattr(nn.Linear(2, 2), d)()
    assert model.weight.device.type == d and isinstance(model.weight, nn.Parameter)


@probe(MODULE, "model.to('cuda') keeps tied weights tied")
def tied(d, m):
    model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    model[1].weight = model[0].weight
    model.to(d)
    assert model[0].weight is model[1].weight


@probe(MODULE, "nn.Linear(2, 2, device='cuda')")
def device_argument(d, m):
    assert nn.Linear(2, 2, device=d).weight.device.type == d


@probe(MODULE, "model.to_empty(device='cuda')")
def to_empty(d, m):
    model = nn.Linear(2, 2, device="meta").to_empty(device=d)
    assert model.weight.device.type == d


@probe(MODULE, "model.half(), model.to(memory_format=torch.channels_last)")
def formats(d, m):
    model = nn.Conv2d(2, 2, 3).to(d).to(memory_format=torch.channels_last)
    y = model(torch.ones(1, 2, 4, 4, device=d).to(memory_format=torch.channels_last))
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert nn.Linear(2, 2).to(d).bfloat16()(torch.ones(1, 2, device=d, dtype=torch.bfloat16)).dtype == torch.bfloat16


@probe(MODULE, "nn.Conv2d, nn.BatchNorm2d, nn.MaxPool2d")
def convolution(d, m):
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(2)).to(d)
    model(torch.rand(2, 1, 8, 8, device=d)).sum().backward()
    assert model[1].num_batches_tracked.item() == 1


@probe(MODULE, "nn.LSTM, nn.GRU")
def recurrent(d, m):
    for cell in (nn.LSTM, nn.GRU):
        model = cell(3, 4, batch_first=True).to(d)
        model(torch.rand(2, 5, 3, device=d))[0].sum().backward()
        assert model.weight_hh_l0.grad.abs().sum().item() > 0


@probe(MODULE, "nn.TransformerEncoderLayer, F.scaled_dot_product_attention")
def transformer(d, m):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).to(d)
    layer(torch.rand(2, 3, 8, device=d)).sum().backward()
    q = torch.rand(1, 2, 4, 8, device=d)
    assert F.scaled_dot_product_attention(q, q, q, is_causal=True).shape == q.shape


@probe(MODULE, "nn.Embedding, nn.EmbeddingBag")
def embedding(d, m):
    index = torch.tensor([0, 2, 0], device=d)
    model = nn.Embedding(3, 2).to(d)
    model(index).sum().backward()
    assert model.weight.grad[0].tolist() == [2, 2]
    assert nn.EmbeddingBag(3, 2).to(d)(index.view(1, 3)).shape == (1, 2)


@probe(MODULE, "nn.Dropout in training")
def dropout(d, m):
    x = torch.ones(1000, device=d)
    assert 300 < (nn.Dropout(0.5)(x) == 0).sum().item() < 700


@probe(MODULE, "model.state_dict(), model.load_state_dict(state)")
def state_dict(d, m):
    a, b = nn.Linear(2, 2).to(d), nn.Linear(2, 2).to(d)
    b.load_state_dict(a.state_dict())
    assert torch.equal(a.weight.cpu(), b.weight.cpu())


@probe(MODULE, "nn.utils.parametrize, nn.utils.clip_grad_norm_")
def utilities(d, m):
    model = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2).to(d))
    model(torch.ones(1, 2, device=d)).sum().backward()
    assert nn.utils.clip_grad_norm_(model.parameters(), 0.5).item() > 0


# Autograd ------------------------------------------------------------------------------------------------------------


@probe(GRAD, "loss.backward()")
def backward(d, m):
    x = torch.ones(3, device=d, requires_grad=True)
    (x * x).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


@probe(GRAD, "torch.autograd.grad(y, x, create_graph=True)")
def double_backward(d, m):
    x = torch.tensor(3.0, device=d, requires_grad=True)
    (first,) = torch.autograd.grad(x**3, x, create_graph=True)
    assert torch.autograd.grad(first, x)[0].item() == 18


@probe(GRAD, "torch.autograd.Function")
def custom_function(d, m):
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.saved_tensors[0]

    x = torch.full((2,), 5.0, device=d, requires_grad=True)
    Double.apply(x).sum().backward()
    assert x.grad.tolist() == [5, 5]


@probe(GRAD, "x.register_hook(f), model.register_forward_hook(f)")
def hooks(d, m):
    x, seen = torch.ones(2, device=d, requires_grad=True), []
    x.register_hook(lambda grad: seen.append(grad.device.type))
    model = nn.Linear(2, 2).to(d)
    model.register_forward_hook(lambda module, args, output: seen.append(output.device.type))
    model(x).sum().backward()
    assert seen == [d, d]


@probe(GRAD, "torch.utils.checkpoint.checkpoint(f, x)")
def checkpoint(d, m):
    from torch.utils.checkpoint import checkpoint

    for reentrant in (True, False):
        x = torch.ones(100, device=d, requires_grad=True)
        y = checkpoint(F.dropout, x, 0.5, use_reentrant=reentrant)
        y.sum().backward()
        assert torch.equal(x.grad.cpu(), y.detach().cpu())


@probe(GRAD, "torch.no_grad(), torch.inference_mode()")
def modes(d, m):
    x = torch.ones(2, device=d, requires_grad=True)
    with torch.no_grad():
        assert not (x * 2).requires_grad
    with torch.inference_mode():
        assert (x * 2).is_inference()


@probe(GRAD, "torch.func.grad, vmap, jvp, hessian")
def functional(d, m):
    def f(x):
        return (x**3).sum()

    x = torch.ones(2, device=d)
    assert torch.func.grad(f)(x).tolist() == [3, 3] and torch.func.hessian(f)(x).tolist() == [[6, 0], [0, 6]]
    assert torch.func.vmap(torch.dot)(torch.eye(2, device=d), torch.eye(2, device=d)).tolist() == [1, 1]
    assert torch.func.jvp(f, (x,), (x,))[1].item() == 6


@probe(GRAD, "torch.autograd.set_detect_anomaly(True)")
def anomaly(d, m):
    with torch.autograd.set_detect_anomaly(True, check_nan=True):
        x = torch.zeros(1, device=d, requires_grad=True)
        try:
            (x.sqrt() * 0).sum().backward()
        except RuntimeError as error:
            assert "nan" in str(error)
            return
    raise AssertionError("the NaN was not seen")


@probe(GRAD, "torch.autograd.gradcheck(f, x)")
def gradcheck(d, m):
    assert torch.autograd.gradcheck(torch.sigmoid, torch.rand(3, dtype=torch.float64, device=d, requires_grad=True))


@probe(GRAD, "with torch.autograd.graph.save_on_cpu():")
def save_on_cpu(d, m):
    x = torch.ones(3, device=d, requires_grad=True)
    with torch.autograd.graph.save_on_cpu():
        y = x.exp()
    y.sum().backward()
    assert x.grad.device.type == d


# Optimizers ----------------------------------------------------------------------------------------------------------


@probe(OPTIM, "torch.optim.SGD(momentum=0.9)")
def sgd(d, m):
    train(d, lambda p: torch.optim.SGD(p, 0.1, momentum=0.9))


@probe(OPTIM, "torch.optim.AdamW()")
def adamw(d, m):
    train(d, lambda p: torch.optim.AdamW(p, 0.1))


@probe(OPTIM, "torch.optim.AdamW(foreach=True)")
def foreach(d, m):
    train(d, lambda p: torch.optim.AdamW(p, 0.1, foreach=True))


@probe(OPTIM, "torch.optim.AdamW(fused=True)")
def fused(d, m):
    train(d, lambda p: torch.optim.AdamW(p, 0.1, fused=True))


@probe(OPTIM, "torch.optim.LBFGS()")
def lbfgs(d, m):
    x = torch.ones(2, device=d, requires_grad=True)
    optimizer = torch.optim.LBFGS([x])

    def closure():
        optimizer.zero_grad()
        loss = (x - 3).square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    torch.testing.assert_close(x.detach().cpu(), torch.full((2,), 3.0))


@probe(OPTIM, "optimizer.state_dict(), optimizer.load_state_dict(state)")
def optimizer_state(d, m):
    model = nn.Linear(2, 1).to(d)
    optimizers = [torch.optim.Adam(model.parameters()) for _ in range(2)]
    model(torch.ones(1, 2, device=d)).sum().backward()
    optimizers[0].step()
    optimizers[1].load_state_dict(optimizers[0].state_dict())
    assert optimizers[1].state[model.weight]["exp_avg"].device.type == d


@probe(OPTIM, "torch.optim.lr_scheduler.OneCycleLR(optimizer, ...)")
def scheduler(d, m):
    optimizer = torch.optim.SGD(nn.Linear(2, 2).to(d).parameters(), 0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=4)
    optimizer.step()
    schedule.step()
    assert schedule.get_last_lr()[0] > 0.04


@probe(OPTIM, "torch.optim.swa_utils.AveragedModel(model)")
def averaging(d, m):
    model = nn.Linear(2, 2).to(d)
    average = torch.optim.swa_utils.AveragedModel(model)
    average.update_parameters(model)
    assert torch.equal(average.module.weight.cpu(), model.weight.cpu())


# Mixed precision -----------------------------------------------------------------------------------------------------


@probe(AMP, "with torch.autocast('cuda', torch.bfloat16):")
def autocast(d, m):
    x = torch.ones(2, 2, device=d)
    with torch.autocast(d, dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16 and x.softmax(0).dtype == torch.float32
    assert (x @ x).dtype == torch.float32


@probe(AMP, "with torch.amp.autocast('cuda', torch.float16):")
def autocast_half(d, m):
    with torch.amp.autocast(d, dtype=torch.float16):
        assert F.linear(torch.ones(2, 2, device=d), torch.ones(2, 2, device=d)).dtype == torch.float16
    assert not torch.is_autocast_enabled(d)


@probe(AMP, "torch.amp.GradScaler('cuda')")
def grad_scaler(d, m):
    model = nn.Linear(2, 1).to(d)
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1), torch.amp.GradScaler(d, init_scale=8.0)
    with torch.autocast(d, dtype=torch.float16):
        loss = model(torch.ones(1, 2, device=d)).sum()
    before = model.weight.detach().clone()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.is_enabled() and not torch.equal(before.cpu(), model.weight.cpu())


@probe(AMP, "torch.amp.custom_fwd(device_type='cuda')")
def custom_fwd(d, m):
    class Identity(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type=d, cast_inputs=torch.float32)
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        @torch.amp.custom_bwd(device_type=d)
        def backward(ctx, grad):
            return grad

    with torch.autocast(d, dtype=torch.bfloat16):
        assert Identity.apply(torch.ones(2, device=d, dtype=torch.bfloat16)).dtype == torch.float32


@probe(AMP, "torch.get_autocast_dtype('cuda'), torch.set_autocast_dtype")
def autocast_dtype(d, m):
    with torch.autocast(d, dtype=torch.float16):
        assert torch.get_autocast_dtype(d) == torch.float16
