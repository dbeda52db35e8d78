"""Train a small convolutional network on scikit-learn's handwritten digits.

    python examples/train_digits.py --device lazy
    python examples/train_digits.py --compare          # lazy and CPU, side by side

This is a plain PyTorch program: it runs on any device, and only the device's name says which. The data is
part of scikit-learn, so nothing is downloaded.
"""

import argparse
import copy
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

TEST_IMAGES = 360
PEAK_LEARNING_RATE = 3e-3
LABEL_SMOOTHING = 0.1

MAX_LOSS_DIFFERENCE = 1e-4
MIN_ACCURACY = 0.97
WARM_UP_EPOCHS = 3  # the first makes the optimizer's state; the second, one step for the device, is planned


@dataclass
class Digits:
    train: TensorDataset
    test_images: torch.Tensor
    test_labels: torch.Tensor


@dataclass
class Statistics:
    """What the lazy device did; stays at zero on other devices."""

    compiles: int = 0
    cache_hits: int = 0
    fallbacks: int = 0

    def __sub__(self, other):
        return Statistics(
            self.compiles - other.compiles, self.cache_hits - other.cache_hits, self.fallbacks - other.fallbacks
        )


@dataclass
class Epoch:
    loss: float
    accuracy: float
    seconds: float
    work: Statistics


def read_statistics():
    """Only for the report: training does not depend on it, nor on the plugin being installed."""
    try:
        from torch_lazyplug import metrics
    except ImportError:
        return Statistics()
    return Statistics(*(metrics.counter_value(name) or 0 for name in ("Compile", "CacheHit", "FallbackTotal")))


def load_data(seed):
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(seed))
    images = torch.tensor(digits.images, dtype=torch.float32).div(16).unsqueeze(1)[order]
    labels = torch.tensor(digits.target)[order]
    return Digits(TensorDataset(images[TEST_IMAGES:], labels[TEST_IMAGES:]), images[:TEST_IMAGES], labels[:TEST_IMAGES])


def make_model(seed):
    """Smooth layers (GELU, average pooling) do not magnify rounding: two devices that differ in the last bit of
    an operation then still agree after hundreds of steps, so a real difference cannot hide in noise."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.GELU(),
        nn.Conv2d(16, 32, 3, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.GELU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 64),
        nn.GELU(),
        nn.Linear(64, 10),
    )


class Training:
    """One model on one device. The same seed gives the same batches on every device."""

    def __init__(self, model, digits, device, args):
        self.device = torch.device(device)
        self.digits = digits
        self.epochs = args.epochs
        self.model = copy.deepcopy(model).to(self.device)
        self.loader = DataLoader(
            digits.train, args.batch_size, shuffle=True, generator=torch.Generator().manual_seed(args.seed)
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=PEAK_LEARNING_RATE)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, PEAK_LEARNING_RATE, total_steps=args.epochs * len(self.loader)
        )

    def run_epoch(self, number):
        before = read_statistics()
        start = time.perf_counter()
        loss = self._train(number)
        seconds = time.perf_counter() - start
        accuracy = (self.predict() == self.digits.test_labels).float().mean().item()
        return Epoch(loss, accuracy, seconds, read_statistics() - before)

    def _train(self, number):
        self.model.train()
        total = torch.zeros((), device=self.device)
        title = f"epoch {number}/{self.epochs} on {self.device.type}"
        for images, labels in tqdm(self.loader, desc=title, unit="batch", leave=False):
            scores = self.model(images.to(self.device))
            loss = F.cross_entropy(scores, labels.to(self.device), label_smoothing=LABEL_SMOOTHING)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            total += loss.detach()
        return total.item() / len(self.loader)

    @torch.no_grad()
    def predict(self):
        self.model.eval()
        return self.model(self.digits.test_images.to(self.device)).argmax(1).cpu()


def loss_difference(reference, other):
    return abs(other.loss - reference.loss) / abs(reference.loss)


def train(args):
    digits = load_data(args.seed)
    training = Training(make_model(args.seed), digits, args.device, args)
    history = []
    for number in range(1, args.epochs + 1):
        epoch = training.run_epoch(number)
        history.append(epoch)
        tqdm.write(
            f"epoch {number:2}  loss {epoch.loss:.4f}  test accuracy {epoch.accuracy:.4f}  {epoch.seconds:.2f} s",
            file=sys.stdout,
        )
    plot(args.output, {args.device: history}, digits, training.predict())
    return 0


def compare(args):
    digits = load_data(args.seed)
    model = make_model(args.seed)
    on_cpu, on_lazy = (Training(model, digits, device, args) for device in ("cpu", args.device))
    print(
        "        |         training loss          |  test accuracy  | seconds / epoch |  graphs  cache  CPU fall-\n"
        f" epoch  |      cpu  {args.device:>8}  rel. diff. |    cpu {args.device:>8} |    cpu {args.device:>8} "
        "| compiled  hits      backs\n"
        f"{'-' * 8}+{'-' * 32}+{'-' * 17}+{'-' * 17}+{'-' * 27}"
    )
    cpu, lazy = [], []
    for number in range(1, args.epochs + 1):
        cpu.append(on_cpu.run_epoch(number))
        lazy.append(on_lazy.run_epoch(number))
        tqdm.write(table_row(number, cpu[-1], lazy[-1]), file=sys.stdout)
    plot(args.output, {"cpu": cpu, args.device: lazy}, digits, on_lazy.predict())
    faults = find_faults(cpu, lazy)
    if args.device != "cpu" and not any(epoch.work.compiles for epoch in lazy):
        faults.append("no graph was compiled: the statistics above say nothing")
    return report(faults)


def table_row(number, cpu, lazy):
    work = lazy.work
    return (
        f" {number:5}  | {cpu.loss:8.6f}  {lazy.loss:8.6f}  {loss_difference(cpu, lazy):10.1e} "
        f"| {cpu.accuracy:6.4f} {lazy.accuracy:8.4f} | {cpu.seconds:6.2f} {lazy.seconds:8.2f} "
        f"| {work.compiles:8} {work.cache_hits:5} {work.fallbacks:10}"
    )


def find_faults(cpu, lazy):
    faults = []
    for number, (expected, actual) in enumerate(zip(cpu, lazy, strict=True), 1):
        difference = loss_difference(expected, actual)
        if not difference <= MAX_LOSS_DIFFERENCE:
            faults.append(f"epoch {number}: losses differ by {difference:.1e} (allowed: {MAX_LOSS_DIFFERENCE:.0e})")
        if number > WARM_UP_EPOCHS and actual.work.compiles:
            faults.append(f"epoch {number}: {actual.work.compiles} graphs compiled after the warm-up")
        if actual.work.fallbacks:
            faults.append(f"epoch {number}: {actual.work.fallbacks} operations fell back to the CPU")
    if lazy[-1].accuracy < MIN_ACCURACY:
        faults.append(f"test accuracy {lazy[-1].accuracy:.4f} (wanted: {MIN_ACCURACY})")
    return faults


def report(faults):
    for fault in faults:
        print(f"FAILED  {fault}", file=sys.stderr)
    if not faults:
        print("OK: same losses, no fallbacks, no compiles after the warm-up.")
    return 1 if faults else 0


def plot(path, histories, digits, predicted, columns=12):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    styles = [
        {"color": "#f2a65a", "linewidth": 7, "alpha": 0.7, "solid_capstyle": "round"},
        {"color": "#1f4e79", "linewidth": 1.8, "marker": "o", "markersize": 4.5},
    ]
    figure = plt.figure(figsize=(10, 6.2), layout="constrained")
    curves, gallery = figure.subfigures(2, 1, height_ratios=[2.1, 1])

    loss_axes, accuracy_axes = curves.subplots(1, 2)
    for (device, history), style in zip(histories.items(), styles[-len(histories) :], strict=True):
        numbers = range(1, len(history) + 1)
        loss_axes.plot(numbers, [epoch.loss for epoch in history], label=device, **style)
        accuracy_axes.plot(numbers, [100 * epoch.accuracy for epoch in history], label=device, **style)
    loss_axes.set_title("training loss")
    accuracy_axes.set_title("test accuracy, %")
    for axes in (loss_axes, accuracy_axes):
        axes.set_xlabel("epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)

    right = predicted == digits.test_labels
    # Mistakes come first: they are the interesting ones, and there are few.
    shown = torch.cat([(~right).nonzero().flatten(), right.nonzero().flatten()])[: 2 * columns]
    gallery.suptitle(f"test digits as read by the network: {int(right.sum())} of {len(right)} right", fontsize=11)
    for axes, index in zip(gallery.subplots(2, columns).flat, shown.tolist(), strict=True):
        color = "#2e7d32" if right[index] else "#c62828"
        axes.imshow(digits.test_images[index, 0], cmap="gray_r", interpolation="nearest")
        mistake = "" if right[index] else f" (is {digits.test_labels[index]})"
        axes.set_title(f"{predicted[index]}{mistake}", color=color, fontsize=10, fontweight="bold", pad=3)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_color(color)

    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    print(f"wrote {path}")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="lazy", help="device to train on (default: lazy)")
    parser.add_argument("--compare", action="store_true", help="train on the CPU as well and compare, epoch by epoch")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, help="intra-op threads (default: PyTorch's choice)")
    parser.add_argument("--output", type=Path, default=Path("digits.png"), help="picture to write")
    return parser.parse_args()


def main():
    args = parse_arguments()
    if args.threads:
        torch.set_num_threads(args.threads)
    return compare(args) if args.compare else train(args)


if __name__ == "__main__":
    sys.exit(main())
