"""A few ops each, on the activations of a small transformer, which compilers fuse; and some that one kernel decides."""

import functools
import inspect
import math

import torch
import torch.nn.functional as F
from registry import add
from waiting import waiter

ROWS, WIDTH = 256, 512
IMAGES = (32, 6, 28, 28)
MAPS = (8, 64, 16, 16)
SHAPES = dict.fromkeys(("x", "y", "cos", "sin"), (ROWS, WIDTH)) | {"row": (WIDTH,), "column": (ROWS, 1)}
SHAPES |= {"images": IMAGES, "maps": MAPS}


def repeated(function, device):
    """A step that calls it with random operands, of the shapes that belong to their names."""
    operands = [torch.randn(SHAPES[name]).to(device) for name in inspect.signature(function).parameters]
    wait = waiter(device)

    @torch.no_grad()
    def step():
        result = function(*operands)
        wait()
        return result

    return step


def kernel(name, sizes=(ROWS, WIDTH)):
    """Registers the function below it."""

    def register(function):
        add(f"{name} of {'x'.join(map(str, sizes))}", functools.partial(repeated, function))
        return function

    return register


@kernel("residual + layer norm")
def residual_layer_norm(x, y, row):
    return F.layer_norm(x + y, (WIDTH,), row, row)


@kernel("bias + GELU")
def bias_gelu(x, row):
    return F.gelu(x + row)


@kernel("RMS norm")
def rms_norm(x, row):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * row


@kernel("rope")
def rope(x, cos, sin):
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin


@kernel("tanh-GELU")
def tanh_gelu(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


@kernel("SiLU * b")
def silu_gate(x, y):
    return F.silu(x) * y


@kernel("layer norm backward")
def layer_norm_backward(x, y, row, column):
    return torch.ops.aten.native_layer_norm_backward(y, x, [WIDTH], column, column, row, row, [True] * 3)


@kernel("softmax backward")
def softmax_backward(x, y):
    return torch.ops.aten._softmax_backward_data(y, x, -1, x.dtype)


@kernel("GELU backward")
def gelu_backward(x, y):
    return torch.ops.aten.gelu_backward(y, x)


@kernel("dropout")
def dropout(x):
    return F.dropout(x, 0.1)


@kernel("normal noise")
def noise(x):
    return x + torch.randn_like(x)


@kernel("max-pooling by 2", IMAGES)
def max_pooling(images):
    return F.max_pool2d(images, 2)


@kernel("upsampling by 2", MAPS)
def upsampling(maps):
    return F.interpolate(maps, scale_factor=2)
