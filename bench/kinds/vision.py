"""Images, by convolutions of many forms."""

import random

import torch
import torch.nn.functional as F
from registry import case
from torch import nn

from kinds import descend


class UNet(nn.Module):
    """Two levels, with what each has seen handed across."""

    def __init__(self):
        super().__init__()
        self.outer, self.inner, self.bottom = self.block(1, 8), self.block(8, 16), self.block(16, 32)
        self.inner_up, self.inner_again = nn.ConvTranspose2d(32, 16, 2, 2), self.block(32, 16)
        self.outer_up, self.outer_again = nn.ConvTranspose2d(16, 8, 2, 2), self.block(16, 8)
        self.head = nn.Conv2d(8, 1, 1)

    @staticmethod
    def block(before, after):
        return nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(4, after), nn.SiLU())

    def forward(self, x):
        outer = self.outer(x)
        inner = self.inner(F.max_pool2d(outer, 2))
        bottom = self.bottom(F.max_pool2d(inner, 2))
        inner = self.inner_again(torch.cat([self.inner_up(bottom), inner], 1))
        return self.head(self.outer_again(torch.cat([self.outer_up(inner), outer], 1)))


@case("segmentation by a U-Net")
def segmentation(device):
    model = UNet().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step():
        images = torch.randn(4, 1, 32, 32)
        masks = (F.avg_pool2d(images, 5, 1, 2) > 0).float().to(device)
        loss = F.binary_cross_entropy_with_logits(model(images.to(device)), masks)
        descend(optimizer, loss)
        return loss.item()

    return step


def separable(before, after, stride):
    """A convolution of each channel, and one of each pixel."""
    return nn.Sequential(
        nn.Conv2d(before, before, 3, stride, 1, groups=before, bias=False),
        nn.BatchNorm2d(before),
        nn.ReLU6(),
        nn.Conv2d(before, after, 1, bias=False),
        nn.BatchNorm2d(after),
        nn.ReLU6(),
    )


@case()
def separable_convolutions(device):
    stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6())
    body = nn.Sequential(separable(16, 32, 1), separable(32, 64, 2), separable(64, 64, 1))
    model = nn.Sequential(stem, body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)

    def step():
        images, labels = torch.randn(8, 3, 32, 32).to(device), torch.randint(10, (8,)).to(device)
        loss = F.cross_entropy(model(images), labels)
        descend(optimizer, loss)
        return loss.item()

    return step


class Excited(nn.Module):
    """An inverted bottleneck whose channels are weighted by what they all hold."""

    def __init__(self, channels, times=4):
        super().__init__()
        wide = channels * times
        self.expand = nn.Sequential(nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.SiLU())
        self.filter = nn.Sequential(
            nn.Conv2d(wide, wide, 3, padding=1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.SiLU()
        )
        narrow, widen = nn.Conv2d(wide, wide // 4, 1), nn.Conv2d(wide // 4, wide, 1)
        self.weigh = nn.Sequential(nn.AdaptiveAvgPool2d(1), narrow, nn.SiLU(), widen, nn.Sigmoid())
        self.project = nn.Sequential(nn.Conv2d(wide, channels, 1, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x):
        hidden = self.filter(self.expand(x))
        return x + self.project(hidden * self.weigh(hidden))


@case("squeeze and excitation, inference")
def squeeze_and_excitation(device):
    model = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), *(Excited(16) for _ in range(3)), nn.AdaptiveAvgPool2d(1))
    model = model.to(device).eval()

    @torch.inference_mode()
    def step():
        return model(torch.randn(2, 3, 32, 32).to(device)).flatten(1).sum(1).tolist()

    return step


@case()
def spatial_transformer(device):
    """One network looks where another one is to look."""
    where = nn.Sequential(nn.Conv2d(1, 4, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 12 * 12, 6))
    what = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveMaxPool2d(4), nn.Flatten(), nn.Linear(128, 10))
    where, what = where.to(device), what.to(device)
    optimizer = torch.optim.Adam([*where.parameters(), *what.parameters()], lr=1e-3)
    unchanged = torch.tensor([1.0, 0, 0, 0, 1, 0], device=device)

    def step():
        images, labels = torch.randn(8, 1, 28, 28).to(device), torch.randint(10, (8,)).to(device)
        maps = (0.1 * where(images) + unchanged).view(-1, 2, 3)
        grid = F.affine_grid(maps, images.shape, align_corners=False)
        loss = F.cross_entropy(what(F.grid_sample(images, grid, align_corners=False)), labels)
        descend(optimizer, loss)
        return loss.item()

    return step


@case()
def style_transfer(device):
    """LBFGS on the pixels of an image."""
    layers = nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU()
    features = nn.Sequential(*layers).to(device).requires_grad_(False)
    content, style = torch.randn(2, 1, 3, 24, 24).to(device)
    image = content.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([image], lr=0.1, max_iter=4)

    def gram(maps):
        rows = maps.flatten(2)
        return rows @ rows.mT / rows.shape[-1]

    wanted, manner = features(content), gram(features(style))

    def closure():
        optimizer.zero_grad()
        found = features(image)
        loss = F.mse_loss(found, wanted) + 10 * F.mse_loss(gram(found), manner)
        loss.backward()
        return loss

    def step():
        return optimizer.step(closure).item()

    return step


@case()
def augmented_images(device):
    """Crops and flips that differ from batch to batch, and pairs of images that are mixed."""
    chance, images = random.Random(0), torch.rand(16, 3, 32, 32).to(device)
    labels = torch.randint(5, (16,)).to(device)
    mean = torch.tensor([0.5, 0.4, 0.3], device=device).view(1, 3, 1, 1)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 13 * 13, 5)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        top, left, share = chance.randrange(5), chance.randrange(5), chance.random()
        batch = images[:, :, top : top + 28, left : left + 28]
        batch = (batch.flip(-1) if chance.random() < 0.5 else batch).sub(mean) / 0.25
        others = torch.randperm(16).to(device)
        guesses = model(share * batch + (1 - share) * batch[others])
        losses = F.cross_entropy(guesses, labels), F.cross_entropy(guesses, labels[others])
        loss = share * losses[0] + (1 - share) * losses[1]
        descend(optimizer, loss)
        return loss.item()

    return step


@case("CutMix")
def cut_mix(device):
    """A part of each image, of another size and in another place each time, is another image's."""
    chance, images = random.Random(0), torch.rand(16, 3, 24, 24).to(device)
    labels = torch.randint(5, (16,)).to(device)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 5))
    model = model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step():
        order = torch.randperm(16).to(device)
        height, width = chance.randrange(4, 16), chance.randrange(4, 16)
        top, left = chance.randrange(24 - height), chance.randrange(24 - width)
        batch, share = images.clone(), 1 - height * width / 24**2
        batch[:, :, top : top + height, left : left + width] = images[order, :, top : top + height, left : left + width]
        guesses = model(batch)
        loss = share * F.cross_entropy(guesses, labels) + (1 - share) * F.cross_entropy(guesses, labels[order])
        descend(optimizer, loss)
        return loss.item()

    return step


@case("convolutional autoencoder")
def convolutional_autoencoder(device):
    images = torch.rand(8, 1, 28, 28).to(device)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, 2, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(16, 8, 3, 2, 1, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(8, 1, 3, 2, 1, 1),
        nn.Sigmoid(),
    ).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step():
        loss = F.binary_cross_entropy(model(images), images)
        descend(optimizer, loss)
        return loss.item()

    return step
