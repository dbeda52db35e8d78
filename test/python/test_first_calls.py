"""First calls of large ops: what they return is told by C++, not by Meta kernels in Python, whose first one loads
modules for a second."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from helpers import DEVICE, both, run_fresh

from torch_lazyplug import metrics


class Inputs:
    """More elements than a call may have for its CPU kernel to be asked on zeros."""

    def __init__(self, device):
        torch.manual_seed(0)
        self.x = torch.rand(200, 100).to(device).requires_grad_()
        self.y = torch.rand(200, 100).to(device).requires_grad_()
        self.square = torch.rand(100, 100).to(device).requires_grad_()
        self.batch = torch.rand(8, 64, 32).to(device).requires_grad_()
        self.image = torch.rand(4, 8, 32, 32).to(device).requires_grad_()
        self.filters = torch.rand(8, 8, 3, 3).to(device).requires_grad_()
        self.heads = torch.rand(4, 4, 32, 32).to(device).requires_grad_()
        self.row = torch.rand(100).to(device).requires_grad_()
        self.channels = torch.rand(8).to(device).requires_grad_()
        self.rows = (torch.arange(9000) % 200).to(device)
        self.places = torch.randint(100, (200, 100)).to(device)
        self.classes = torch.randint(100, (200,)).to(device)
        self.mask = (torch.rand(200, 100) > 0.5).to(device)

    def leaves(self):
        return [tensor for tensor in vars(self).values() if tensor.requires_grad]


FREQUENT = {
    # Shapes.
    "stack": lambda i: torch.stack([i.x, i.y], 1),
    "cat": lambda i: torch.cat([i.x, i.y], 1),
    "repeat": lambda i: i.x.repeat(2, 3),
    "roll": lambda i: i.x.roll((1, 2), (0, 1)),
    "flip": lambda i: i.x.t().flip(0),
    "pad": lambda i: F.pad(i.x, (1, 2)),
    "pad_reflected": lambda i: F.pad(i.image, (1, 2, 3, 4), mode="reflect"),
    "triu": lambda i: i.x.triu(1),
    "diag_embed": lambda i: i.x.diag_embed(),
    "unfold": lambda i: F.unfold(i.image, 3, padding=1),
    "fold": lambda i: F.fold(F.unfold(i.image, 2, stride=2), (32, 32), 2, stride=2),
    "contiguous": lambda i: i.x.t().contiguous(),
    "double": lambda i: i.x.double(),
    # Made from nothing, or like others.
    "zeros_like": lambda i: torch.zeros_like(i.x.t()),
    "full": lambda i: torch.full((200, 100), 2.0, device=i.x.device),
    "arange": lambda i: torch.arange(20000, device=i.x.device),
    "eye": lambda i: torch.eye(200, device=i.x.device),
    "linspace": lambda i: torch.linspace(0, 1, 20000, device=i.x.device),
    # Elementwise.
    "arithmetic": lambda i: (1 - i.x) / (i.y + 1) * 2 - i.x**2,
    "functions": lambda i: i.x.exp().sqrt().log1p().abs().sigmoid().tanh().erf(),
    "clamp": lambda i: i.x.clamp(0.1, 0.9).clamp(min=i.y),
    "where": lambda i: torch.where(i.mask.t(), i.x.t(), 0.0),
    "masked_fill": lambda i: i.x.masked_fill(i.mask, 0.0),
    "logical": lambda i: (i.x > i.y).logical_and(i.mask).logical_not() | i.x.isnan(),
    "activations": lambda i: (
        F.relu(i.x) + F.gelu(i.x) + F.silu(i.y) + F.hardtanh(i.x) + F.logsigmoid(i.x) + F.mish(i.x)
    ),
    "floor_divide": lambda i: i.x.detach() // 0.1,
    "complex": lambda i: torch.complex(i.x, i.y).abs(),
    # Reductions.
    "sum_mean": lambda i: i.x.sum() + i.x.mean() + i.x.sum(1).mean(0) + i.x.detach().prod(),
    "extrema": lambda i: i.x.max() + i.x.min() + i.x.max(1).values.sum() + i.x.amax(0).sum(),
    "argmax": lambda i: i.x.argmax(1) + i.x.argmin(),
    "var": lambda i: i.x.var(1, keepdim=True) + i.x.std() + torch.var_mean(i.x, 0)[1],
    "norm": lambda i: i.x.norm() + i.x.norm(dim=1),
    "logsumexp": lambda i: i.x.logsumexp((0, 1)) + i.x.logsumexp(1),
    "median": lambda i: i.x.median() + i.x.median(1).values + i.x.kthvalue(3).values,
    "count": lambda i: i.x.count_nonzero() + i.x.count_nonzero(1),
    "cumsum": lambda i: i.x.cumsum(0).cumprod(1),
    "any": lambda i: i.mask.any() & i.mask.all(1),
    # Orders and indices.
    "sort": lambda i: i.x.sort(1).values + i.x.argsort(0),
    "topk": lambda i: i.x.topk(3).values,
    "index": lambda i: i.x[i.rows],
    "indices": lambda i: i.x[i.rows, i.rows % 100],
    "index_select": lambda i: i.x.index_select(0, i.rows),
    "gather": lambda i: i.x.gather(1, i.places),
    "scatter": lambda i: i.x.scatter_add(1, i.places, i.y),
    "take": lambda i: i.x.take(i.places),
    "embedding": lambda i: F.embedding(i.rows, i.x),
    "searchsorted": lambda i: torch.searchsorted(torch.arange(100.0, device=i.x.device), i.x.detach()),
    # Writes.
    "fill": lambda i: i.x.clone().fill_(2).zero_().add_(1).mul_(i.y),
    "draw": lambda i: i.x.detach().clone().normal_().uniform_().bernoulli_(0.5).mul_(0),
    "set": lambda i: i.x.clone().index_put_((i.classes,), i.y),
    "set_masked": lambda i: i.x.clone().masked_fill_(i.mask, 1.0),
    "set_row": lambda i: i.x.detach().clone()[3:5].copy_(i.y[:2]),
    # Products.
    "products": lambda i: (i.x @ i.square).t() @ torch.einsum("ij,kj->ik", i.x, i.y),
    "batches": lambda i: torch.baddbmm(i.batch @ i.batch.mT, i.batch, i.batch.mT),
    "linear": lambda i: F.linear(i.x, i.square, i.row),
    "vectors": lambda i: torch.outer(i.row, i.row) @ i.row + i.x.view(-1) @ i.y.view(-1),
    "inverse": lambda i: torch.linalg.inv(i.square + 100 * torch.eye(100, device=i.x.device)),
    # Layers.
    "softmax": lambda i: i.x.softmax(1) + i.x.log_softmax(0),
    "layer_norm": lambda i: F.layer_norm(i.x, (100,), i.row, i.row),
    "group_norm": lambda i: F.group_norm(i.image, 2, i.channels, i.channels),
    "batch_norm": lambda i: F.batch_norm(i.image, None, None, i.channels, i.channels, training=True),
    "convolution": lambda i: F.conv2d(i.image, i.filters, i.channels, padding=1),
    "convolution_last": lambda i: F.conv2d(i.image.to(memory_format=torch.channels_last), i.filters, stride=2),
    "convolution_1d": lambda i: F.conv1d(i.batch, i.batch[:, :, :3]),
    "transposed_convolution": lambda i: F.conv_transpose2d(i.image, i.filters, stride=2),
    "pooling": lambda i: F.max_pool2d(i.image, 2) + F.avg_pool2d(i.image, 2),
    "adaptive_pooling": lambda i: F.adaptive_avg_pool2d(i.image, 4) + F.adaptive_max_pool2d(i.image, 4),
    "interpolate": lambda i: F.interpolate(i.image, scale_factor=2, mode="bilinear"),
    "grid_sample": lambda i: F.grid_sample(i.image, i.image[:, :, :, :2] - 0.5, align_corners=False),
    "attention": lambda i: F.scaled_dot_product_attention(i.heads, i.heads, i.heads, is_causal=True),
    "prelu": lambda i: F.prelu(i.x, i.row),
    # Losses.
    "cross_entropy": lambda i: F.cross_entropy(i.x, i.classes, label_smoothing=0.1),
    "cross_entropy_2d": lambda i: F.cross_entropy(i.image, i.image.detach().argmax(1)),
    "mse_loss": lambda i: F.mse_loss(i.x, i.y.detach()),
    "l1_loss": lambda i: F.l1_loss(i.x, i.y.detach()) + F.smooth_l1_loss(i.x, i.y) + F.huber_loss(i.x, i.y),
    "bce": lambda i: F.binary_cross_entropy_with_logits(i.x, i.y.detach()),
    "kl_div": lambda i: F.kl_div(i.x.log_softmax(1), i.y.detach(), reduction="batchmean"),
    "ctc_loss": lambda i: F.ctc_loss(i.batch.log_softmax(2), i.places[:64, :4] % 31 + 1, [8] * 64, [4] * 64),
}


def run(name, inputs):
    """The result, and the gradients of what it was made of."""
    result = FREQUENT[name](inputs)
    if not result.requires_grad:
        return [result]
    used = torch.autograd.grad(result.sum(), inputs.leaves(), allow_unused=True)
    return [result.detach(), *(gradient for gradient in used if gradient is not None)]


@pytest.mark.own_schedule("counts results that are arranged")
@pytest.mark.parametrize("name", FREQUENT)
def test_large_results_lie_as_on_the_cpu(name):
    arranged = metrics.counter_value("ResultArranged") or 0
    # The gradient of a layer's weight is a view on the CPU: of a product that was computed transposed.
    options = {"rtol": 1e-5, "atol": 1e-6, "nbytes": False, "history": name != "linear"}
    for _ in range(2):
        both(lambda tensor: run(name, Inputs(tensor.device)), torch.zeros(1), **options)
    assert (metrics.counter_value("ResultArranged") or 0) == arranged


IN_A_FRESH_PROCESS = f"""
import sys
sys.path.append({str(Path(__file__).parent)!r})
import test_first_calls as tests

def loaded_on(device):
    inputs, before = tests.Inputs(device), set(sys.modules)
    for name in tests.FREQUENT:
        for tensor in tests.run(name, inputs):
            tensor.cpu()
    return set(sys.modules) - before

loaded_on("cpu")
print(sorted(loaded_on("{DEVICE}")), tests.metrics.counter_value("PythonMetaKernel"))
"""


@pytest.mark.smoke
@pytest.mark.lazy_only
def test_they_load_no_modules():
    assert run_fresh(IN_A_FRESH_PROCESS).strip() == "[] None"
