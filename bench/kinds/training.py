"""Ways to train networks."""

import copy

import numpy as np
import torch
import torch.nn.functional as F
from registry import case
from torch import nn
from torch.nn.utils import parametrizations

from kinds import descend


def network(device, *, widths=(32, 64, 64, 10), dropout=0.0, normalised=False):
    layers = []
    for before, after in zip(widths, widths[1:], strict=False):
        layers += [nn.Linear(before, after)]
        layers += [nn.BatchNorm1d(after)] if normalised else []
        layers += [nn.ReLU()]
        layers += [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(*layers[: -1 - normalised - bool(dropout)]).to(device)


def batch(device, size=64, width=32, classes=10):
    """Points whose largest feature is their class."""
    x = torch.randn(size, width)
    return x.to(device), x[:, :classes].argmax(1).to(device)


def train(model, optimizer, x, y, **options):
    loss = F.cross_entropy(model(x), y, **options)
    descend(optimizer, loss)
    return loss


@case("MAML", rtol=1e-6)  # gradients of gradients are summed in another order
def maml(device):
    """Two inner steps by hand, trained through."""
    model = network(device, widths=(1, 40, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def adapted(x, y):
        weights = dict(model.named_parameters())
        for _ in range(2):
            loss = F.mse_loss(torch.func.functional_call(model, weights, (x,)), y)
            slopes = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
            weights = {name: w - 0.01 * g for (name, w), g in zip(weights.items(), slopes, strict=True)}
        return weights

    def step():
        loss = 0.0
        for _ in range(2):
            phase, x = torch.rand(1) * 3, torch.rand(20, 1) * 10 - 5
            y = (x + phase).sin().to(device)
            x = x.to(device)
            loss = loss + F.mse_loss(torch.func.functional_call(model, adapted(x[:10], y[:10]), (x[10:],)), y[10:])
        descend(optimizer, loss)
        return loss.item()

    return step


@case()
def optimizer_in_backward(device):
    """Each parameter has an optimizer, which steps as soon as its gradient is there."""
    model = network(device)
    optimizers = {p: torch.optim.SGD([p], lr=0.05, momentum=0.9) for p in model.parameters()}

    def update(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)

    def step():
        x, y = batch(device)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss.item()

    return step


@case()
def clipped_gradients(device):
    model = network(device)
    optimizer = torch.optim.Adam(model.parameters())

    def step():
        x, y = batch(device)
        loss = F.cross_entropy(model(x), y)
        norm = descend(optimizer, loss, max_norm=0.5)
        return loss.item(), norm.item()

    return step


@case()
def gradient_accumulation(device):
    model = network(device)
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        total = 0.0
        for _ in range(4):
            x, y = batch(device, size=16)
            loss = F.cross_entropy(model(x), y) / 4
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        return total

    return step


@case()
def averaged_weights(device):
    """An exponential moving average, parameter by parameter; a loss in ten is read."""
    model = network(device)
    average, steps = copy.deepcopy(model), 0
    optimizer = torch.optim.Adam(model.parameters())

    def step():
        nonlocal steps
        loss = train(model, optimizer, *batch(device))
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
                slow.mul_(0.999).add_(fast, alpha=0.001)
        steps += 1
        return loss.item() if steps % 10 == 0 else None

    return step


@case("averaged weights, foreach")
def averaged_weights_foreach(device):
    model = network(device)
    average = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters())

    def step():
        loss = train(model, optimizer, *batch(device))
        with torch.no_grad():
            torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 0.001)
        return loss.item()

    return step


@case()
def stochastic_weight_averaging(device):
    model = network(device, normalised=True)
    average = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.swa_utils.SWALR(optimizer, swa_lr=0.02, anneal_epochs=10)

    def step():
        loss = train(model, optimizer, *batch(device))
        average.update_parameters(model)
        schedule.step()
        return loss.item(), schedule.get_last_lr()[0]

    return step


def parametrized(device, wrap):
    model = nn.Sequential(wrap(nn.Linear(32, 64)), nn.ReLU(), wrap(nn.Linear(64, 10))).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return lambda: train(model, optimizer, *batch(device)).item()


@case()
def spectral_norm(device):
    return parametrized(device, parametrizations.spectral_norm)


@case()
def weight_norm(device):
    return parametrized(device, parametrizations.weight_norm)


@case("Monte-Carlo dropout", random=True)
def monte_carlo_dropout(device):
    model = network(device, dropout=0.2).train()

    @torch.no_grad()
    def step():
        x, _ = batch(device)
        chances = torch.stack([model(x).softmax(-1) for _ in range(8)])
        mean = chances.mean(0)
        unsure = -(mean * mean.clamp(min=1e-9).log()).sum(-1)
        return mean.argmax(-1).tolist(), unsure.max().item()

    return step


@case()
def label_smoothing_and_accuracy(device):
    """Counts what is right in every step, as progress bars do."""
    model = network(device)
    optimizer = torch.optim.AdamW(model.parameters())
    seen = right = 0

    def step():
        nonlocal seen, right
        x, y = batch(device)
        logits = model(x)
        loss = F.cross_entropy(logits, y, label_smoothing=0.1)
        descend(optimizer, loss)
        seen += len(y)
        right += (logits.argmax(1) == y).sum().item()
        return f"loss {loss.item():.4f}, accuracy {right / seen:.3f}"

    return step


@case()
def early_stopping(device):
    """Validates every fourth step, and begins anew from the best weights when it gets worse three times."""
    model = network(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x, y = batch(device, size=256)
    best, kept, worse, steps = float("inf"), None, 0, 0

    def validate():
        nonlocal best, kept, worse
        with torch.no_grad():
            loss = F.cross_entropy(model(x), y).item()
        if loss < best:
            best, kept, worse = loss, copy.deepcopy(model.state_dict()), 0
        else:
            worse += 1
        if worse == 3:
            model.load_state_dict(kept)
            worse = 0

    def step():
        nonlocal steps
        train(model, optimizer, *batch(device))
        steps += 1
        if steps % 4 == 0:
            validate()
        return best

    return step


@case("per-sample gradients")
def per_sample_gradients(device):
    """Clipped one by one, as for differential privacy, with torch.func."""
    model = network(device, widths=(32, 32, 10))
    weights = {name: p.detach() for name, p in model.named_parameters()}

    def loss(weights, x, y):
        return F.cross_entropy(torch.func.functional_call(model, weights, (x[None],)), y[None])

    gradients = torch.func.vmap(torch.func.grad_and_value(loss), in_dims=(None, 0, 0))

    def step():
        slopes, losses = gradients(weights, *batch(device, size=32))
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in slopes.values()]).norm(dim=0)
        share = (1.0 / norms).clamp(max=1.0)
        for name, slope in slopes.items():
            weights[name] = weights[name] - 0.1 * torch.einsum("n,n...->...", share, slope) / len(share)
        return losses.mean().item()

    return step


@case("Jacobian penalty")
def jacobian_penalty(device):
    model = network(device, widths=(8, 32, 3))
    optimizer = torch.optim.Adam(model.parameters())
    jacobians = torch.func.vmap(torch.func.jacrev(lambda x: model(x).tanh()))

    def step():
        x, y = batch(device, size=16, width=8, classes=3)
        loss = F.cross_entropy(model(x), y) + 0.01 * jacobians(x).square().sum((1, 2)).mean()
        descend(optimizer, loss)
        return loss.item()

    return step


@case("contrastive learning, InfoNCE")
def contrastive(device):
    model = network(device, widths=(32, 64, 32))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step():
        x = torch.randn(64, 32)
        views = [(x + 0.1 * torch.randn(64, 32)).to(device) for _ in range(2)]
        a, b = (F.normalize(model(view), dim=1) for view in views)
        similarity = a @ b.T / 0.1
        labels = torch.arange(64, device=device)
        loss = (F.cross_entropy(similarity, labels) + F.cross_entropy(similarity.T, labels)) / 2
        descend(optimizer, loss)
        return loss.item()

    return step


@case()
def siamese_triplets(device):
    """The hardest negative of each batch; only triplets with a loss count."""
    model = network(device, widths=(32, 64, 16))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step():
        x, y = batch(device, classes=4)
        points = model(x)
        apart = torch.cdist(points, points)
        same = y[:, None] == y
        positive = apart.masked_fill(~same, 0.0).amax(1)
        negative = apart.masked_fill(same, float("inf")).amin(1)
        losses = (positive - negative + 0.2).relu()
        hard = losses[losses > 0]
        if len(hard) == 0:
            return 0.0
        optimizer.zero_grad()
        hard.mean().backward()
        optimizer.step()
        return hard.mean().item()

    return step


@case()
def distillation(device):
    teacher, student = network(device, widths=(32, 128, 10)).eval(), network(device, widths=(32, 16, 10))
    optimizer = torch.optim.Adam(student.parameters())

    def step():
        x, y = batch(device)
        with torch.no_grad():
            wanted = (teacher(x) / 4).log_softmax(-1)
        logits = student(x)
        soft = F.kl_div((logits / 4).log_softmax(-1), wanted, log_target=True, reduction="batchmean") * 16
        loss = 0.7 * soft + 0.3 * F.cross_entropy(logits, y)
        descend(optimizer, loss)
        return loss.item()

    return step


@case("tabular network", random=True)
def tabular(device):
    """Categories and numbers, batch normalisation and dropout; loaded by a DataLoader."""
    table = torch.utils.data.TensorDataset(
        torch.randint(20, (512, 4)), torch.randn(512, 6), torch.randint(2, (512,)).float()
    )
    loader = torch.utils.data.DataLoader(table, batch_size=64, shuffle=True)
    embeddings = nn.ModuleList(nn.Embedding(20, 4) for _ in range(4)).to(device)
    body = network(device, widths=(22, 64, 32, 1), dropout=0.1, normalised=True)
    optimizer = torch.optim.AdamW([*embeddings.parameters(), *body.parameters()], lr=1e-3)
    batches = iter(loader)

    def step():
        nonlocal batches
        part = next(batches, None)
        if part is None:
            batches = iter(loader)
            part = next(batches)
        categories, numbers, labels = (column.to(device) for column in part)
        known = [embedding(categories[:, i]) for i, embedding in enumerate(embeddings)]
        logits = body(torch.cat([*known, numbers], 1)).squeeze(1)
        loss = F.binary_cross_entropy_with_logits(logits, labels)
        descend(optimizer, loss)
        return loss.item()

    return step


@case("autocast in bfloat16")
def autocast(device):
    model = network(device)
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        x, y = batch(device)
        with torch.autocast(torch.device(device).type, dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        descend(optimizer, loss)
        return loss.item()

    return step


@case("one-cycle schedule")
def one_cycle_schedule(device):
    model = network(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=1_000_000)

    def step():
        loss = train(model, optimizer, *batch(device))
        schedule.step()
        return loss.item()

    return step


@case()
def small_convolutional_network(device):
    """Augmented by flips and shifts that are drawn for each batch."""
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 10),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters())

    def step():
        images = torch.rand(16, 1, 16, 16).to(device)
        if torch.rand(()) < 0.5:
            images = images.flip(-1)
        shift = int(torch.randint(-2, 3, ()))
        labels = torch.randint(10, (16,)).to(device)
        return train(model, optimizer, images.roll(shift, -1), labels).item()

    return step


@case()
def adversarial_training(device):
    """Three steps of projected gradient on the input, then one on the weights."""
    model = network(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        x, y = batch(device)
        change = torch.zeros_like(x, requires_grad=True)
        for _ in range(3):
            loss = F.cross_entropy(model(x + change), y)
            (slope,) = torch.autograd.grad(loss, change)
            change = (change + 0.05 * slope.sign()).clamp(-0.1, 0.1).detach().requires_grad_()
        loss = train(model, optimizer, x + change.detach(), y)
        return loss.item()

    return step


@case()
def activation_checkpointing(device):
    blocks = nn.ModuleList(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(4)).to(device)
    head = nn.Linear(32, 10).to(device)
    optimizer = torch.optim.Adam([*blocks.parameters(), *head.parameters()])

    def step():
        x, y = batch(device)
        for block in blocks:
            x = x + torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
        loss = F.cross_entropy(head(x), y)
        descend(optimizer, loss)
        return loss.item()

    return step


@case()
def own_optimizer(device):
    """Lion, as one writes it: a loop over parameters."""
    model = network(device)
    momenta = [torch.zeros_like(p) for p in model.parameters()]

    def step():
        x, y = batch(device)
        loss = F.cross_entropy(model(x), y)
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter, momentum in zip(model.parameters(), momenta, strict=True):
                parameter.mul_(1 - 1e-4).sub_(1e-3 * (0.9 * momentum + 0.1 * parameter.grad).sign())
                momentum.lerp_(parameter.grad, 0.01)
        return loss.item()

    return step


@case("multi-task with logs")
def multi_task_with_logs(device):
    """Two heads, uncertain weights, and a line of logs every step."""
    body, heads = network(device, widths=(32, 64, 64)), nn.ModuleList([nn.Linear(64, 10), nn.Linear(64, 1)]).to(device)
    weights = nn.Parameter(torch.zeros(2, device=device))
    optimizer = torch.optim.AdamW([*body.parameters(), *heads.parameters(), weights], lr=1e-3)

    def step():
        x, y = batch(device)
        hidden = body(x).relu()
        losses = torch.stack([F.cross_entropy(heads[0](hidden), y), F.mse_loss(heads[1](hidden)[:, 0], x.sum(1))])
        loss = (losses * (-weights).exp() + weights).sum()
        descend(optimizer, loss)
        norm = sum(p.grad.square().sum() for p in body.parameters()).sqrt()
        print(f"loss {loss:.4f}, tasks {losses.tolist()}, gradient {norm:.3f}, weights {weights.data}")
        return loss.item()

    return step


@case("network in bfloat16")
def network_in_bfloat16(device):
    layers = nn.Linear(32, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 64), nn.Tanh(), nn.Linear(64, 10)
    model = nn.Sequential(*layers).to(device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step():
        x, y = batch(device)
        loss = train(model, optimizer, x.bfloat16(), y)
        return loss.item()

    return step


@case()
def ensemble(device):
    """Five networks as one, by vmap."""
    models = [network(device, widths=(8, 16, 1)) for _ in range(5)]
    weights, _ = torch.func.stack_module_state(models)
    base = copy.deepcopy(models[0])

    def loss_of(each, x, y):
        return F.mse_loss(torch.func.functional_call(base, each, (x,)), y)

    gradients = torch.func.vmap(torch.func.grad_and_value(loss_of), in_dims=(0, None, None))

    def step():
        nonlocal weights
        x = torch.randn(20, 8)
        slopes, losses = gradients(weights, x.to(device), x.square().sum(1, keepdim=True).to(device))
        weights = {name: (weight - 0.01 * slopes[name]).detach() for name, weight in weights.items()}
        return losses.tolist()

    return step


@case("batches by slices")
def batches_by_slices(device):
    """Data that lies on the device, in the order of each epoch's own, a slice for each batch."""
    size, points = 48, 480
    data, labels = batch(device, size=points)
    model = network(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    orders = torch.Generator().manual_seed(0)
    epoch = {"at": points}

    def step():
        if epoch["at"] == points:
            order = torch.randperm(points, generator=orders).to(device)
            epoch.update(at=0, data=data[order], labels=labels[order])
        part = slice(epoch["at"], epoch["at"] + size)
        epoch["at"] += size
        return train(model, optimizer, epoch["data"][part], epoch["labels"][part]).item()

    return step


@case("evaluation with NumPy")
def evaluation_with_numpy(device):
    """Batches that come from the CPU, and whose results go back there one by one."""
    model, data = network(device, widths=(16, 64, 4)).eval(), torch.randn(320, 16)

    @torch.no_grad()
    def step():
        found = [model(batch.to(device)).softmax(1).cpu().numpy() for batch in data.split(64)]
        return float(np.concatenate(found).max(1).mean())

    return step
