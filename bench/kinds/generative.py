"""Models that make samples."""

import torch
import torch.nn.functional as F
from registry import case
from torch import nn

from kinds import descend


def mlp(*widths, activation=nn.ReLU):
    layers = []
    for before, after in zip(widths, widths[1:], strict=False):
        layers += [nn.Linear(before, after), activation()]
    return nn.Sequential(*layers[:-1])


def ring(count):
    """Points on a ring of eight Gaussians."""
    angle = torch.randint(8, (count,)) * (3.14159 / 4)
    return torch.stack([angle.cos(), angle.sin()], 1) * 2 + 0.05 * torch.randn(count, 2)


@case("GAN", random=True)
def gan(device):
    generator, critic = mlp(8, 64, 64, 2).to(device), mlp(2, 64, 64, 1, activation=lambda: nn.LeakyReLU(0.2)).to(device)
    optimizers = [torch.optim.Adam(m.parameters(), lr=2e-4, betas=(0.5, 0.999)) for m in (generator, critic)]
    real_label, fake_label = torch.ones(64, 1, device=device), torch.zeros(64, 1, device=device)
    criterion = nn.BCEWithLogitsLoss()

    def step():
        real = ring(64).to(device)
        fake = generator(torch.randn(64, 8, device=device))
        critic_loss = criterion(critic(real), real_label) + criterion(critic(fake.detach()), fake_label)
        optimizers[1].zero_grad()
        critic_loss.backward()
        optimizers[1].step()
        generator_loss = criterion(critic(fake), real_label)
        optimizers[0].zero_grad()
        generator_loss.backward()
        optimizers[0].step()
        return critic_loss.item(), generator_loss.item()

    return step


@case("WGAN with gradient penalty")
def wgan(device):
    """The noise is made on the CPU, with the data."""
    generator, critic = mlp(8, 64, 2).to(device), mlp(2, 64, 64, 1, activation=nn.SiLU).to(device)
    optimizers = [torch.optim.Adam(m.parameters(), lr=1e-4, betas=(0.0, 0.9)) for m in (generator, critic)]

    def penalty(real, fake):
        mix = torch.rand(64, 1).to(device)
        between = (mix * real + (1 - mix) * fake).requires_grad_()
        (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        return (slope.norm(2, dim=1) - 1).square().mean()

    def step():
        for _ in range(2):
            real, fake = ring(64).to(device), generator(torch.randn(64, 8).to(device)).detach()
            loss = critic(fake).mean() - critic(real).mean() + 10 * penalty(real, fake)
            optimizers[1].zero_grad()
            loss.backward()
            optimizers[1].step()
        optimizers[0].zero_grad()
        (-critic(generator(torch.randn(64, 8).to(device))).mean()).backward()
        optimizers[0].step()
        return loss.item()

    return step


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = mlp(64, 128, 16), mlp(8, 128, 64)

    def forward(self, x):
        mean, log_variance = self.encoder(x).chunk(2, -1)
        code = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        return self.decoder(code), mean, log_variance


@case("variational autoencoder", random=True)
def variational_autoencoder(device):
    model = Autoencoder().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step():
        images = torch.rand(64, 64).to(device)
        logits, mean, log_variance = model(images)
        error = F.binary_cross_entropy_with_logits(logits, images, reduction="sum")
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()
        loss = error + divergence
        descend(optimizer, loss)
        return loss.item() / len(images)

    return step


class Coupling(nn.Module):
    """Scales and shifts half of the numbers by what the other half says."""

    def __init__(self, flip):
        super().__init__()
        self.flip, self.network = flip, mlp(1, 32, 2, activation=nn.Tanh)

    def forward(self, x):
        a, b = x.flip(1).chunk(2, 1) if self.flip else x.chunk(2, 1)
        scale, shift = self.network(a).chunk(2, 1)
        scale = scale.tanh()
        y = torch.cat([a, b * scale.exp() + shift], 1)
        return y.flip(1) if self.flip else y, scale.sum(1)


@case()
def normalizing_flow(device):
    layers = nn.ModuleList(Coupling(number % 2 == 1) for number in range(4)).to(device)
    optimizer = torch.optim.Adam(layers.parameters(), lr=1e-3)
    base = torch.distributions.Normal(torch.zeros(2, device=device), torch.ones(2, device=device))

    def step():
        z, volume = ring(128).to(device), 0.0
        for layer in layers:
            z, change = layer(z)
            volume = volume + change
        loss = -(base.log_prob(z).sum(1) + volume).mean()
        descend(optimizer, loss)
        return loss.item()

    return step


class Denoiser(nn.Module):
    def __init__(self, steps=50):
        super().__init__()
        self.time, self.body = nn.Embedding(steps, 16), mlp(18, 64, 64, 2, activation=nn.SiLU)

    def forward(self, x, t):
        return self.body(torch.cat([x, self.time(t)], 1))


@case(random=True)
def diffusion_training(device):
    kept = (1 - torch.linspace(1e-4, 0.1, 50)).cumprod(0).to(device)
    model = Denoiser().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step():
        x = ring(128).to(device)
        t = torch.randint(0, 50, (128,), device=device)
        noise = torch.randn_like(x)
        share = kept[t][:, None]
        loss = F.mse_loss(model(share.sqrt() * x + (1 - share).sqrt() * noise, t), noise)
        descend(optimizer, loss)
        return loss.item()

    return step


@case(random=True)
def diffusion_sampling(device):
    """All fifty steps of denoising."""
    loss = torch.linspace(1e-4, 0.1, 50)
    kept = (1 - loss).cumprod(0)
    model = Denoiser().to(device).eval()

    @torch.no_grad()
    def step():
        x = torch.randn(64, 2, device=device)
        for t in reversed(range(50)):
            guess = model(x, torch.full((64,), t, dtype=torch.long, device=device))
            x = (x - loss[t].item() / (1 - kept[t].item()) ** 0.5 * guess) / (1 - loss[t].item()) ** 0.5
            if t:
                x = x + loss[t].item() ** 0.5 * torch.randn_like(x)
        return x.cpu().std().item()

    return step


@case()
def score_matching(device):
    """Sliced score matching: a derivative in a random direction, which is trained through."""
    model = mlp(2, 64, 2, activation=nn.Softplus).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step():
        x = ring(128).to(device).requires_grad_()
        direction = torch.randn(128, 2).to(device)
        score = model(x)
        (slope,) = torch.autograd.grad((score * direction).sum(), x, create_graph=True)
        loss = ((slope * direction).sum(1) + 0.5 * score.square().sum(1)).mean()
        descend(optimizer, loss)
        return loss.item()

    return step


@case("VQ-VAE")
def vq_vae(device):
    """The nearest of 32 codes, passed straight through; codes follow what chooses them."""
    encoder, decoder = mlp(64, 64, 8).to(device), mlp(8, 64, 64).to(device)
    codes = torch.randn(32, 8).to(device)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3)

    def step():
        x = torch.randn(64, 64).to(device)
        z = encoder(x)
        chosen = torch.cdist(z.detach(), codes).argmin(1)
        code = codes[chosen]
        loss = F.mse_loss(decoder(z + (code - z).detach()), x) + 0.25 * F.mse_loss(z, code)
        descend(optimizer, loss)
        with torch.no_grad():
            hot = F.one_hot(chosen, 32).float()
            means = hot.T @ z / hot.sum(0).clamp(min=1)[:, None]
            codes.lerp_(torch.where(hot.sum(0)[:, None] > 0, means, codes), 0.01)
        return loss.item(), len(chosen.unique())

    return step


@case("restricted Boltzmann machine", random=True)
def boltzmann_machine(device):
    """Five steps of Gibbs sampling for each batch."""
    weights = (0.01 * torch.randn(64, 32)).to(device)
    visible_bias, hidden_bias = torch.zeros(64, device=device), torch.zeros(32, device=device)

    @torch.no_grad()
    def step():
        seen = (torch.rand(32, 64) < 0.3).float().to(device)
        chance = torch.sigmoid(seen @ weights + hidden_bias)
        again = chance
        for _ in range(5):
            dreamt = torch.sigmoid(torch.bernoulli(again) @ weights.T + visible_bias)
            again = torch.sigmoid(dreamt @ weights + hidden_bias)
        weights.add_(0.01 * (seen.T @ chance - dreamt.T @ again) / len(seen))
        visible_bias.add_(0.01 * (seen - dreamt).mean(0))
        hidden_bias.add_(0.01 * (chance - again).mean(0))
        return (seen - dreamt).square().mean().item()

    return step


@case(random=True)  # rays
def radiance_field(device):
    """Colours along rays, each behind what lies before it."""
    layers = nn.Linear(39, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    waves, colours = 2.0 ** torch.arange(6, device=device), torch.rand(64, 3).to(device)

    def step():
        begin, direction = torch.randn(2, 64, 1, 3, device=device)
        points = 0.1 * begin + F.normalize(direction, dim=-1) * torch.linspace(0.5, 2, 16, device=device)[:, None]
        phases = (points[..., None] * waves).flatten(-2)
        found = model(torch.cat([points, phases.sin(), phases.cos()], -1))
        opacity = 1 - torch.exp(-0.1 * found[..., 3].relu())
        passes = torch.cumprod(torch.cat([torch.ones_like(opacity[:, :1]), 1 - opacity + 1e-10], -1), -1)[:, :-1]
        loss = F.mse_loss(((opacity * passes)[..., None] * found[..., :3].sigmoid()).sum(1), colours)
        descend(optimizer, loss)
        return loss.item()

    return step
