"""Statistics and machine learning without deep networks."""

import torch
import torch.nn.functional as F
from registry import case
from torch import nn

from kinds import descend


def noisy_wave(count, device):
    """Points of a line, and a noisy sine of them."""
    x = torch.linspace(0, 6, count)
    return x[:, None].to(device), (x.sin() + 0.1 * torch.randn(count)).to(device)


class GaussianProcess(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_length = nn.Parameter(torch.zeros(()))
        self.log_scale = nn.Parameter(torch.zeros(()))
        self.log_noise = nn.Parameter(torch.tensor(-2.0))

    def forward(self, x, y):
        """The negative logarithm of the marginal likelihood."""
        distance = torch.cdist(x, x).square()
        kernel = self.log_scale.exp() * (-0.5 * distance / self.log_length.exp() ** 2).exp()
        kernel = kernel + self.log_noise.exp() * torch.eye(len(x), device=x.device)
        factor = torch.linalg.cholesky(kernel)
        alpha = torch.cholesky_solve(y[:, None], factor).squeeze(1)
        return 0.5 * y @ alpha + factor.diagonal().log().sum()


@case("Gaussian process with Adam")
def gaussian_process_with_adam(device):
    x, y = noisy_wave(60, device)
    process = GaussianProcess().to(device)
    optimizer = torch.optim.Adam(process.parameters(), lr=0.01)

    def step():
        loss = process(x, y)
        descend(optimizer, loss)
        return loss.item()

    return step


@case("Gaussian process with LBFGS", warm_up=20)
def gaussian_process_with_lbfgs(device):
    """Each step is a whole fit from the beginning."""
    x, y = noisy_wave(40, device)

    def step():
        process = GaussianProcess().to(device)
        optimizer = torch.optim.LBFGS(process.parameters(), max_iter=8)

        def closure():
            optimizer.zero_grad()
            loss = process(x, y)
            loss.backward()
            return loss

        return optimizer.step(closure).item()

    return step


@case()
def kernel_ridge_by_validation(device):
    """The best of several penalties, by the error on other points."""
    x, y = noisy_wave(80, device)
    points, values = noisy_wave(30, device)
    gram, cross = (torch.exp(-torch.cdist(a, x).square()) for a in (x, points))
    penalty = 1.0

    def step():
        nonlocal penalty
        best = float("inf")
        for candidate in (penalty / 4, penalty / 2, penalty, penalty * 2, penalty * 4):
            weights = torch.linalg.solve(gram + candidate * torch.eye(len(x), device=device), y)
            error = (cross @ weights - values).square().mean().item()
            if error < best:
                best, penalty = error, min(max(candidate, 1e-3), 1e3)
        return best

    return step


@case("logistic regression, strong Wolfe", warm_up=20)
def logistic_regression(device):
    x = torch.randn(200, 10).to(device)
    y = (x.cpu().sum(1) + torch.randn(200) > 0).float().to(device)

    def step():
        weights = torch.zeros(10, device=device, requires_grad=True)
        optimizer = torch.optim.LBFGS([weights], max_iter=6, line_search_fn="strong_wolfe")

        def closure():
            optimizer.zero_grad()
            loss = F.binary_cross_entropy_with_logits(x @ weights, y) + 0.01 * weights.square().sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        with torch.no_grad():
            return ((x @ weights > 0) == (y > 0.5)).float().mean().item()

    return step


@case("Newton with a Hessian")
def newton_with_hessian(device):
    x = torch.randn(100, 6).to(device)
    y = (torch.rand(100) < 0.5).float().to(device)
    weights = torch.zeros(6, device=device)

    def objective(w):
        return F.softplus(x @ w).mean() - (y * (x @ w)).mean() + 0.05 * w.square().sum()

    def step():
        nonlocal weights
        gradient = torch.func.grad(objective)(weights)
        hessian = torch.func.hessian(objective)(weights)
        weights = weights - torch.linalg.solve(hessian, gradient)
        if gradient.norm().item() < 1e-6:
            weights = torch.zeros_like(weights)
        return objective(weights).item()

    return step


@case()
def matrix_factorisation(device):
    users, items = nn.Embedding(200, 16).to(device), nn.Embedding(300, 16).to(device)
    optimizer = torch.optim.SGD([*users.parameters(), *items.parameters()], lr=0.5, weight_decay=1e-5)

    def step():
        user, item = torch.randint(200, (256,)).to(device), torch.randint(300, (256,)).to(device)
        rating = torch.randint(1, 6, (256,)).float().to(device)
        loss = F.mse_loss((users(user) * items(item)).sum(1), rating)
        descend(optimizer, loss)
        return loss.item()

    return step


@case()
def k_means(device):
    """Each step is a whole clustering, until no centre moves or ten times."""
    points = (torch.randn(500, 2) + 4 * torch.randint(3, (500, 1))).to(device)

    def step():
        centres = points[torch.randperm(500)[:8].to(device)]
        for _ in range(10):
            nearest = torch.cdist(points, centres).argmin(1)
            sums = torch.zeros_like(centres).index_add_(0, nearest, points)
            counts = torch.bincount(nearest, minlength=8).clamp(min=1)
            moved = sums / counts[:, None]
            if torch.allclose(moved, centres, atol=1e-4):
                break
            centres = moved
        return torch.cdist(points, centres).amin(1).sum().item()

    return step


@case("EM for a Gaussian mixture")
def gaussian_mixture(device):
    """Two iterations for each look at the likelihood."""
    points = torch.cat([torch.randn(150, 2) + centre for centre in (-3.0, 0.0, 3.0)]).to(device)
    means, small = torch.randn(3, 2).to(device), 1e-4 * torch.eye(2, device=device)
    covariances, weights = torch.eye(2, device=device).repeat(3, 1, 1), torch.full((3,), 1 / 3, device=device)

    def expect():
        mixture = torch.distributions.MultivariateNormal(means, covariances, validate_args=False)
        joint = mixture.log_prob(points[:, None]) + weights.log()
        total = joint.logsumexp(1, keepdim=True)
        return (joint - total).exp(), total.mean()

    def step():
        nonlocal means, covariances, weights
        for _ in range(2):
            share, likelihood = expect()
            size = share.sum(0)
            means = share.T @ points / size[:, None]
            off = points[:, None] - means
            covariances = torch.einsum("nk,nki,nkj->kij", share, off, off) / size[:, None, None] + small
            weights = size / len(points)
        return likelihood.item()

    return step


@case("PCA by power iteration")
def power_iteration(device):
    data = torch.randn(300, 20).to(device)

    def step():
        centred = data - data.mean(0)
        covariance = centred.T @ centred / len(data)
        values = []
        for _ in range(3):
            vector = torch.ones(20, device=device)
            for _ in range(15):
                vector = covariance @ vector
                vector = vector / vector.norm()
            value = vector @ covariance @ vector
            covariance = covariance - value * torch.outer(vector, vector)
            values.append(value.item())
        return values

    return step


@case("low-rank PCA", random=True)
def low_rank_pca(device):
    data = torch.randn(500, 80).to(device)

    def step():
        _, values, vectors = torch.pca_lowrank(data, q=12)
        projected = (data - data.mean(0)) @ vectors
        return values.sum().item(), projected.std().item()

    return step


@case("lasso by ISTA")
def lasso(device):
    x = torch.randn(100, 30).to(device)
    y = (x.cpu()[:, 0] - 2 * x.cpu()[:, 1] + 0.1 * torch.randn(100)).to(device)
    rate = 1.0 / torch.linalg.matrix_norm(x, 2).square().item()

    def step():
        weights = torch.zeros(30, device=device)
        for _ in range(40):
            weights = F.softshrink(weights - rate * (x.T @ (x @ weights - y)), 5.0 * rate)
        return int((weights != 0).sum())

    return step


@case("linear SVM")
def linear_svm(device):
    """Each step is an epoch of four batches."""
    x = torch.randn(256, 8).to(device)
    y = x.cpu()[:, :2].sum(1).sign().to(device)
    weights, bias = torch.zeros(8, device=device, requires_grad=True), torch.zeros(1, device=device, requires_grad=True)

    def step():
        total = 0.0
        for chosen in torch.randperm(256).to(device).split(64):
            loss = (1 - y[chosen] * (x[chosen] @ weights + bias)).clamp(min=0).mean() + 1e-3 * weights.square().sum()
            loss.backward()
            with torch.no_grad():
                for parameter in (weights, bias):
                    parameter -= 0.1 * parameter.grad
                    parameter.grad.zero_()
            total += loss.item()
        return total

    return step


@case()
def graph_network(device):
    """Messages along the edges of a random graph, summed by index_add."""
    edges = torch.randint(200, (2, 1000)).to(device)
    features, labels = torch.randn(200, 16).to(device), torch.randint(4, (200,)).to(device)
    layers = nn.ModuleList([nn.Linear(16, 32), nn.Linear(32, 4)]).to(device)
    optimizer = torch.optim.Adam(layers.parameters(), lr=1e-2)
    degree = torch.zeros(200, device=device).index_add_(0, edges[1], torch.ones(1000, device=device)).clamp(min=1)

    def spread(x):
        return torch.zeros_like(x).index_add_(0, edges[1], x[edges[0]]) / degree[:, None]

    def step():
        hidden = layers[0](features + spread(features)).relu()
        logits = layers[1](hidden + spread(hidden))
        loss = F.cross_entropy(logits, labels)
        descend(optimizer, loss)
        return (logits.argmax(1) == labels).float().mean().item()

    return step


@case()
def graph_attention(device):
    """Attention over each node's edges, by scatter_reduce."""
    source, target = torch.randint(100, (2, 600)).to(device)
    features, labels = torch.randn(100, 16).to(device), torch.randint(3, (100,)).to(device)
    project, score, out = nn.Linear(16, 16).to(device), nn.Linear(32, 1).to(device), nn.Linear(16, 3).to(device)
    optimizer = torch.optim.Adam([*project.parameters(), *score.parameters(), *out.parameters()], lr=5e-3)

    def attend(x):
        raw = F.leaky_relu(score(torch.cat([x[source], x[target]], 1)).squeeze(1), 0.2)
        highest = torch.full((100,), -1e9, device=device).scatter_reduce(0, target, raw.detach(), "amax")
        weight = (raw - highest[target]).exp()
        total = torch.zeros(100, device=device).scatter_add(0, target, weight)
        weight = weight / (total[target] + 1e-9)
        return torch.zeros_like(x).index_add(0, target, weight[:, None] * x[source])

    def step():
        loss = F.cross_entropy(out(attend(project(features)).relu()), labels)
        descend(optimizer, loss)
        return loss.item()

    return step


@case("t-SNE")
def t_sne(device):
    data = torch.randn(60, 10).to(device)
    affinity = torch.softmax(-torch.cdist(data, data).square() - 1e9 * torch.eye(60, device=device), 1)
    affinity = ((affinity + affinity.T) / 120).clamp(min=1e-12)
    places = (0.01 * torch.randn(60, 2)).to(device).requires_grad_()
    optimizer = torch.optim.SGD([places], lr=10.0, momentum=0.8)
    steps = 0

    def step():
        nonlocal steps
        closeness = 1 / (1 + torch.cdist(places, places).square())
        closeness = closeness * (1 - torch.eye(60, device=device))
        model = (closeness / closeness.sum()).clamp(min=1e-12)
        loss = (affinity * (affinity.log() - model.log())).sum()
        descend(optimizer, loss)
        steps += 1
        return loss.item() if steps % 10 == 0 else None

    return step
