"""Solvers, simulations and sampling."""

import math

import torch
import torch.nn.functional as F
from registry import case
from torch import nn

from kinds import descend


@case()
def conjugate_gradients(device):
    """Solves until the residual is small, which is read in every iteration."""
    matrix = torch.randn(128, 128)
    matrix = (matrix @ matrix.T / 64 + torch.eye(128)).to(device)

    def step():
        solution, residual = torch.zeros(128, device=device), torch.randn(128).to(device)
        direction, size = residual, residual @ residual
        while size > 1e-6:
            along = matrix @ direction
            rate = size / (direction @ along)
            solution = solution + rate * direction
            residual = residual - rate * along
            size, before = residual @ residual, size
            direction = residual + size / before * direction
        return solution.norm().item()

    return step


@case("Runge-Kutta")
def runge_kutta(device):
    """Ten steps of many Lorenz systems."""
    state = torch.randn(256, 3).to(device)

    def slope(s):
        x, y, z = s.unbind(1)
        return torch.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z], 1)

    def step():
        nonlocal state
        for _ in range(10):
            k1 = slope(state)
            k2 = slope(state + 0.005 * k1)
            k3 = slope(state + 0.005 * k2)
            k4 = slope(state + 0.01 * k3)
            state = state + 0.01 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return state.mean(0).tolist()

    return step


@case("neural ODE")
def neural_ode(device):
    field = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2)).to(device)
    optimizer = torch.optim.Adam(field.parameters(), lr=1e-2)
    times = torch.linspace(0, 3, 12)
    truth = torch.stack([times.cos(), times.sin()], 1).to(device)

    def step():
        state, path = truth[0], [truth[0]]
        for _ in range(11):
            middle = state + 0.5 * 3 / 11 * field(state)
            state = state + 3 / 11 * field(middle)
            path.append(state)
        loss = F.mse_loss(torch.stack(path), truth)
        descend(optimizer, loss)
        return loss.item()

    return step


@case("physics-informed network", rtol=1e-5)  # nodes made by backward() are summed in another order, as on CUDA
def physics_informed_network(device):
    """u'' = -u by gradients of gradients."""
    network = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)).to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    start = torch.zeros(1, 1, device=device)

    def step():
        x = (6 * torch.rand(64, 1)).to(device).requires_grad_()
        u = network(x)
        (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        (bend,) = torch.autograd.grad(slope.sum(), x, create_graph=True)
        loss = (bend + u).square().mean() + (network(start) - 1).square().mean()
        descend(optimizer, loss)
        return loss.item()

    return step


@case("Ising model", random=True)
def ising(device):
    """Three sweeps of Metropolis on a chessboard."""
    spins = (2 * torch.randint(2, (64, 64)) - 1).float().to(device)
    board = ((torch.arange(64)[:, None] + torch.arange(64)) % 2 == 0).to(device)

    def step():
        nonlocal spins
        for colour in (board, ~board) * 3:
            around = sum(spins.roll(shift, axis) for shift in (1, -1) for axis in (0, 1))
            chance = torch.exp(-2 * 0.44 * spins * around)
            spins = torch.where((torch.rand(64, 64, device=device) < chance) & colour, -spins, spins)
        return spins.mean().item()

    return step


@case("Hamiltonian Monte Carlo", random=True)
def hamiltonian_monte_carlo(device):
    place, accepted = torch.zeros(10, device=device), 0

    def potential(x):
        return 0.5 * (x[0] ** 2 / 9 + ((x[1:] - 0.1 * x[0] ** 2) ** 2).sum())

    def gradient(x):
        x = x.detach().requires_grad_()
        return torch.autograd.grad(potential(x), x)[0]

    def step():
        nonlocal place, accepted
        momentum = torch.randn(10, device=device)
        energy = potential(place) + 0.5 * momentum.square().sum()
        x, p = place, momentum - 0.05 * gradient(place)
        for number in range(8):
            x = x + 0.1 * p
            p = p - (0.05 if number == 7 else 0.1) * gradient(x)
        change = energy - potential(x) - 0.5 * p.square().sum()
        if torch.rand(()) < change.exp().item():
            place, accepted = x.detach(), accepted + 1
        return accepted

    return step


@case("Langevin dynamics", random=True)
def langevin(device):
    places = torch.randn(512, 2, device=device)

    def step():
        nonlocal places
        for _ in range(10):
            x = places.requires_grad_()
            energy = ((x.square().sum(1) - 1) ** 2).sum()
            (force,) = torch.autograd.grad(energy, x)
            places = (x - 0.01 * force + 0.1 * torch.randn_like(x)).detach()
        return places.norm(dim=1).mean().item()

    return step


@case("game of life")
def game_of_life(device):
    cells = (torch.rand(1, 1, 64, 64) < 0.4).float().to(device)
    kernel = torch.tensor([[1.0, 1, 1], [1, 0, 1], [1, 1, 1]], device=device)[None, None]

    def step():
        nonlocal cells
        for _ in range(5):
            around = F.conv2d(F.pad(cells, (1, 1, 1, 1), mode="circular"), kernel)
            cells = ((around == 3) | ((around == 2) & (cells == 1))).float()
        return int(cells.sum())

    return step


@case()
def image_filters(device):
    """Blur, edges, and a threshold that depends on the picture."""
    x = torch.arange(-2.0, 3)
    blur = torch.exp(-x.square() / 2)
    blur = (blur[:, None] * blur / blur.sum() ** 2).to(device)[None, None]
    edge = torch.tensor([[1.0, 0, -1], [2, 0, -2], [1, 0, -1]]).to(device)
    edge = torch.stack([edge, edge.T])[:, None]

    def step():
        picture = torch.rand(3, 96, 96).to(device)
        gray = (picture * torch.tensor([0.299, 0.587, 0.114], device=device)[:, None, None]).sum(0)
        smooth = F.conv2d(F.pad(gray[None, None], (2, 2, 2, 2), mode="reflect"), blur)
        strength = F.conv2d(smooth, edge, padding=1).square().sum(1).sqrt()
        mask = strength > strength.mean() + 2 * strength.std()
        small = F.interpolate(picture[None], scale_factor=0.5, mode="bilinear", align_corners=False)
        bright = (small.clamp(0, 1) ** (1 / 2.2) * 255).round().to(torch.uint8)
        return int(mask.sum()), bright.cpu().numpy().sum()

    return step


@case("Jacobi relaxation")
def jacobi_relaxation(device):
    """A potential between two plates; the change is read every ten sweeps."""
    fixed = torch.zeros(48, 48)
    fixed[12, 8:40], fixed[36, 8:40] = 1.0, -1.0
    plates, fixed = (fixed != 0).to(device), fixed.to(device)

    def step():
        potential = torch.zeros(48, 48, device=device)
        for sweep in range(30):
            before = potential
            mean = potential.roll(1, 0) + potential.roll(-1, 0) + potential.roll(1, 1) + potential.roll(-1, 1)
            potential = torch.where(plates, fixed, mean / 4)
            if sweep % 10 == 9 and (potential - before).abs().max() < 1e-4:
                break
        return potential.abs().sum().item()

    return step


@case("n bodies")
def n_bodies(device):
    places, speeds = torch.randn(100, 3).to(device), torch.zeros(100, 3).to(device)
    masses = torch.rand(100).to(device)

    def pull():
        apart = places[None] - places[:, None]
        return (masses[None, :, None] * apart / (apart.square().sum(-1, keepdim=True) + 0.05) ** 1.5).sum(1)

    def step():
        nonlocal places, speeds
        for _ in range(4):
            speeds += 0.001 * pull()
            places += 0.001 * speeds
        return 0.5 * (masses * speeds.square().sum(1)).sum().item()

    return step


@case()
def spectral_heat_equation(device):
    waves = 2 * math.pi * torch.fft.fftfreq(128)
    decay = torch.exp(-0.1 * (waves[:, None].square() + waves.square())).to(device)
    heat = torch.rand(128, 128).to(device)

    def step():
        nonlocal heat
        for _ in range(3):
            heat = torch.fft.ifft2(torch.fft.fft2(heat) * decay).real
            heat[60:68, 60:68] += 0.01
        return heat.max().item()

    return step


@case()
def rigid_registration(device):
    """Iterated closest points with a singular value decomposition."""
    cloud = torch.randn(150, 3)
    turn = torch.linalg.qr(torch.eye(3) + 0.1 * torch.randn(3, 3)).Q
    target, source = (cloud @ turn.T + 0.2).to(device), cloud.to(device)

    def step():
        moved = source
        for _ in range(4):
            match = target[torch.cdist(moved, target).argmin(1)]
            a, b = moved - moved.mean(0), match - match.mean(0)
            u, _, vh = torch.linalg.svd(a.T @ b)
            rotation = u @ vh
            moved = a @ rotation + match.mean(0)
        return (moved - match).norm(dim=1).mean().item()

    return step


@case("bisection of many functions")
def bisection(device):
    wanted = torch.rand(1000).to(device) * 10

    def step():
        low, high = torch.zeros_like(wanted), torch.full_like(wanted, 10.0)
        while (high - low).max().item() > 1e-4:
            middle = (low + high) / 2
            above = middle + middle.sin() > wanted
            low, high = torch.where(above, low, middle), torch.where(above, middle, high)
        return low.sum().item()

    return step


@case()
def fitting_a_curve(device):
    """Levenberg-Marquardt with a Jacobian."""
    x = torch.linspace(0, 4, 50).to(device)
    y = (2.5 * torch.exp(-1.3 * x.cpu()) + 0.5 + 0.02 * torch.randn(50)).to(device)

    def residuals(p):
        return p[0] * torch.exp(-p[1] * x) + p[2] - y

    def step():
        parameters, damping = torch.ones(3, device=device), 1e-2
        error = residuals(parameters).square().sum().item()
        for _ in range(5):
            jacobian, rest = torch.func.jacfwd(residuals)(parameters), residuals(parameters)
            normal = jacobian.T @ jacobian + damping * torch.eye(3, device=device)
            candidate = parameters - torch.linalg.solve(normal, jacobian.T @ rest)
            new = residuals(candidate).square().sum().item()
            if new < error:
                parameters, error, damping = candidate, new, damping / 3
            else:
                damping *= 3
        return parameters.tolist()

    return step


class SpectralLayer(nn.Module):
    """The lowest frequencies, mixed among channels, beside a convolution."""

    def __init__(self, channels, frequencies):
        super().__init__()
        self.frequencies = frequencies
        self.weight = nn.Parameter(0.1 * torch.randn(channels, channels, frequencies, dtype=torch.cfloat))
        self.beside = nn.Conv1d(channels, channels, 1)

    def forward(self, x):
        spectrum = torch.fft.rfft(x)
        mixed = torch.zeros_like(spectrum)
        low = spectrum[:, :, : self.frequencies]
        mixed[:, :, : self.frequencies] = torch.einsum("bik,iok->bok", low, self.weight)
        return F.gelu(torch.fft.irfft(mixed, n=x.shape[-1]) + self.beside(x))


@case("Fourier neural operator")
def fourier_neural_operator(device):
    layers = nn.Conv1d(1, 16, 1), SpectralLayer(16, 8), SpectralLayer(16, 8), nn.Conv1d(16, 1, 1)
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step():
        x = torch.randn(8, 1, 64).to(device)
        y = x.cumsum(-1) / 8
        loss = ((model(x) - y).norm(dim=-1) / y.norm(dim=-1)).mean()
        descend(optimizer, loss)
        return loss.item()

    return step


@case("orbits")
def orbits(device):
    """Twelve bodies by leapfrog; a table keeps where they were."""
    places, speeds = torch.randn(12, 3).to(device), 0.1 * torch.randn(12, 3).to(device)
    masses, table = torch.rand(12, 1).to(device), torch.zeros(400, 12, 3, device=device)
    at = {"step": 0}

    def pull():
        apart = places.unsqueeze(0) - places.unsqueeze(1)
        distance = (apart.square().sum(-1, keepdim=True) + 0.01).sqrt()
        return (masses * apart / distance**3).sum(1)

    def step():
        for _ in range(4):
            speeds.add_(pull(), alpha=0.005)
            places.add_(speeds, alpha=0.01)
            speeds.add_(pull(), alpha=0.005)
        table[at["step"]] = places
        earlier = table[max(at["step"] - 5, 0)]
        at["step"] = (at["step"] + 1) % 400
        return (places - earlier).norm().item()

    return step


@case("Kalman filter")
def kalman_filter(device):
    """A place and its speed, from forty noisy places; the inverse is checked each time."""
    motion = torch.tensor([[1.0, 0.1], [0.0, 1.0]]).to(device)
    seen, identity = torch.tensor([[1.0, 0.0]]).to(device), torch.eye(2, device=device)
    places = torch.linspace(0, 4, 40).add(0.3 * torch.randn(40)).view(40, 1, 1).to(device)

    def step():
        state, spread = torch.zeros(2, 1, device=device), torch.eye(2, device=device)
        for place in places:
            state, spread = motion @ state, motion @ spread @ motion.T + 0.01 * identity
            gain = spread @ seen.T @ torch.linalg.inv(seen @ spread @ seen.T + 0.1)
            state = state + gain @ (place - seen @ state)
            spread = (identity - gain @ seen) @ spread
        return state.sum().item()

    return step
