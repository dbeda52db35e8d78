"""The strides of results are the CPU's from the first call on, also for calls that are too large to ask the CPU kernel,
and whatever the layouts of the inputs."""

import pytest
import torch
import torch.nn.functional as F
from helpers import IS_SCHEDULED, both, finish_pending, train_both

from torch_lazyplug import metrics

pytestmark = pytest.mark.lazy_only


def lessons():
    """What had to be learned or mended, since the kernels' results lay in another way than was promised."""
    return [metrics.counter_value(name) or 0 for name in ("LayoutLearned", "ResultArranged")]


def both_as_promised(fn, *inputs, **tolerances):
    finish_pending()
    before = lessons()
    both(fn, *inputs, nbytes=False, **tolerances)
    finish_pending()
    assert lessons() == before or IS_SCHEDULED


# Layouts -------------------------------------------------------------------------------------------------------------


def plain(tensor):
    return tensor.contiguous()


def channels_last(tensor):
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return tensor.contiguous(memory_format=formats.get(tensor.dim(), torch.contiguous_format))


def transposed(tensor):
    return tensor.mT.contiguous().mT if tensor.dim() > 1 else tensor


def rotated(tensor):
    return tensor.movedim(0, -1).contiguous().movedim(-1, 0)


def sliced(tensor):
    return torch.stack([tensor, tensor], -1)[..., 0]


LAYOUTS = (plain, channels_last, transposed, rotated, sliced)
layouts = pytest.mark.parametrize("layout", LAYOUTS)


def laid(layout, *tensors):
    return [layout(tensor).detach().requires_grad_(tensor.requires_grad) for tensor in tensors]


def with_gradients(function):
    """The function's result, and the gradients of its inputs from gradients that are plain, and that lie like it."""

    def call(*inputs):
        result = function(*inputs)
        wanted = [tensor for tensor in inputs if tensor.requires_grad]
        grads = [torch.ones_like(result, memory_format=torch.contiguous_format), torch.ones_like(result)]
        return result, [torch.autograd.grad(result, wanted, grad, retain_graph=True) for grad in grads]

    return call


# Images --------------------------------------------------------------------------------------------------------------


IMAGES = {
    "max_pool2d": (lambda x: F.max_pool2d(x, 3, 2), 2),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2), 3),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2), 2),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2), 3),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, 5), 2),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, 5), 2),
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, 3), 3),
    "nearest2d": (lambda x: F.interpolate(x, scale_factor=2), 2),
    "bilinear": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), 2),
    "bicubic": (lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), 2),
    "antialias": (lambda x: F.interpolate(x, size=(9, 7), mode="bilinear", antialias=True), 2),
    "nearest3d": (lambda x: F.interpolate(x, scale_factor=2), 3),
    "trilinear": (lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), 3),
    "reflection_pad2d": (lambda x: F.pad(x, (1, 2, 3, 0), mode="reflect"), 2),
    "replication_pad2d": (lambda x: F.pad(x, (1, 2, 3, 0), mode="replicate"), 2),
    "reflection_pad3d": (lambda x: F.pad(x, (1, 2, 3, 0, 1, 1), mode="reflect"), 3),
    "replication_pad3d": (lambda x: F.pad(x, (1, 2, 3, 0, 1, 1), mode="replicate"), 3),
    "constant_pad": (lambda x: F.pad(x, (1, 2, 3, 0)), 2),
    "circular_pad": (lambda x: F.pad(x, (1, 2, 3, 0), mode="circular"), 2),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), 2),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), 2),
    "channel_shuffle": (lambda x: F.channel_shuffle(x, 4), 2),
    "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), 2),
    "batch_norm3d": (lambda x: F.batch_norm(x, None, None, training=True), 3),
    "glu": (lambda x: F.glu(x, 1), 2),
    "unfold": (lambda x: F.unfold(x, 3), 2),
    "grid_sample": (lambda x: F.grid_sample(x, torch.zeros(3, 4, 5, 2, device=x.device), align_corners=False), 2),
}


@layouts
@pytest.mark.parametrize("name", IMAGES)
def test_images(name, layout):
    function, dims = IMAGES[name]
    x = torch.randn(3, 8, *((20, 26) if dims == 2 else (6, 8, 10)), requires_grad=True)
    both_as_promised(with_gradients(function), *laid(layout, x))


@layouts
def test_group_norm(layout):
    x = torch.randn(3, 8, 20, 26, requires_grad=True)
    both_as_promised(with_gradients(lambda x: F.group_norm(x, 2)), *laid(layout, x))


@pytest.mark.parametrize("layout", (plain, transposed, rotated, sliced))
@pytest.mark.parametrize("name", ("max_pool3d", "avg_pool3d", "replication_pad3d", "reflection_pad3d"))
def test_volumes_without_a_batch(name, layout):
    x = torch.randn(8, 10, 12, 14, requires_grad=True)
    both_as_promised(with_gradients(IMAGES[name][0]), *laid(layout, x))


# Convolutions --------------------------------------------------------------------------------------------------------


CONVOLUTIONS = {
    "1d": (F.conv1d, (3, 8, 900), (6, 8, 3), {}),
    "2d": (F.conv2d, (3, 8, 20, 30), (6, 8, 3, 3), {}),
    "2d of one by one": (F.conv2d, (3, 8, 20, 30), (6, 8, 1, 1), {}),
    "2d of a large batch": (F.conv2d, (20, 4, 12, 14), (6, 4, 3, 3), {}),
    "2d strided and dilated": (F.conv2d, (3, 8, 20, 30), (6, 8, 3, 3), {"stride": 2, "padding": 2, "dilation": 2}),
    "2d in groups": (F.conv2d, (3, 8, 20, 30), (8, 2, 3, 3), {"groups": 4}),
    "2d depthwise": (F.conv2d, (3, 8, 20, 30), (8, 1, 3, 3), {"groups": 8}),
    "3d": (F.conv3d, (2, 4, 9, 10, 14), (6, 4, 3, 3, 3), {}),
    "transposed 1d": (F.conv_transpose1d, (3, 8, 900), (8, 6, 3), {}),
    "transposed 2d": (F.conv_transpose2d, (3, 8, 20, 30), (8, 6, 3, 3), {"stride": 2}),
    "transposed 2d in groups": (F.conv_transpose2d, (3, 8, 20, 30), (8, 6, 3, 3), {"groups": 2}),
    "transposed 3d": (F.conv_transpose3d, (2, 4, 9, 10, 14), (4, 6, 3, 3, 3), {}),
}


@pytest.mark.parametrize("weight_layout", (plain, channels_last, transposed))
@layouts
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name, layout, weight_layout):
    function, image, weight, options = CONVOLUTIONS[name]
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        x = torch.randint(-1, 2, image).to(dtype).requires_grad_()
        w = torch.randint(-1, 2, weight).to(dtype).requires_grad_()
        convolve = with_gradients(lambda x, w: function(x, w, **options))
        both_as_promised(convolve, *laid(layout, x), *laid(weight_layout, w))


# Losses, norms, and loops over several operands ----------------------------------------------------------------------


LOSSES = {
    "mse": lambda x, y: F.mse_loss(x, y, reduction="none"),
    "l1": lambda x, y: F.l1_loss(x, y, reduction="none"),
    "smooth_l1": lambda x, y: F.smooth_l1_loss(x, y, reduction="none"),
    "huber": lambda x, y: F.huber_loss(x, y, reduction="none"),
    "bce": lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), reduction="none"),
    "bce with logits": lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid(), reduction="none"),
    "kl_div": lambda x, y: F.kl_div(x, y.sigmoid(), reduction="none"),
    "mse of the mean": F.mse_loss,
    "smooth_l1 of the mean": F.smooth_l1_loss,
}


@layouts
@pytest.mark.parametrize("other", (plain, transposed))
@pytest.mark.parametrize("name", LOSSES)
def test_losses(name, layout, other):
    x, y = torch.randn(4, 5, 20, 22, requires_grad=True), torch.randn(4, 5, 20, 22)
    both_as_promised(with_gradients(LOSSES[name]), *laid(layout, x), *laid(other, y))


ACTIVATIONS = {
    "relu": F.relu,
    "hardtanh": F.hardtanh,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "logsigmoid": F.logsigmoid,
    "softplus": F.softplus,
    "gelu": F.gelu,
    "silu": F.silu,
    "elu": F.elu,
    "leaky_relu": F.leaky_relu,
    "mish": F.mish,
    "logit": lambda x: torch.logit(x, 0.2),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "softmax": lambda x: F.softmax(x, 1),
    "log_softmax": lambda x: F.log_softmax(x, 1),
    "cumsum": lambda x: torch.cumsum(x, 2),
    "sort": lambda x: torch.sort(x, 2)[0],
    "masked_fill": lambda x: x.masked_fill(x > 0, 2),
    "clone": torch.clone,
}


@layouts
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_functions_of_one_tensor(name, layout):
    x = torch.randn(4, 5, 20, 22, requires_grad=True)
    both_as_promised(with_gradients(ACTIVATIONS[name]), *laid(layout, x))


@layouts
@pytest.mark.parametrize("name", ("gelu", "prelu", "silu", "tanh", "logsigmoid"))
def test_gradients_from_gradients_that_lie_otherwise(name, layout):
    x, grad = torch.randn(4, 5, 20, 22), torch.randn(4, 5, 20, 22)

    def gradients(x, grad):
        x = x.detach().requires_grad_()
        weights = [torch.full((1,), 0.5, device=x.device, requires_grad=True)] if name == "prelu" else []
        return torch.autograd.grad(getattr(F, name)(x, *weights), [x, *weights], grad)

    for other in LAYOUTS:
        both_as_promised(gradients, *laid(layout, x), *laid(other, grad))


# Dimensions of one element, whose strides say nothing, keep them where a kernel begins with empty_like().
OF_ONE_ELEMENT = {
    "hardtanh": F.hardtanh,
    "relu6": F.relu6,
    "nan_to_num": torch.nan_to_num,
    "huber_loss": lambda x: F.huber_loss(x, x, reduction="none"),
    "soft_margin_loss": lambda x: F.soft_margin_loss(x, x, reduction="none"),
    "prelu": lambda x: F.prelu(x, torch.full((1,), 0.5, device=x.device)),
    "floor_divide": lambda x: x // 2,
    "remainder": lambda x: x % 2,
    "relu": F.relu,
}


@pytest.mark.parametrize("name", OF_ONE_ELEMENT)
def test_dimensions_of_one_element(name):
    memory = torch.randn(60_000)
    layouts = [((1, 9000), (9001, 1)), ((2, 1, 9000), (9000, 2, 1)), ((9000, 1), (1, 5))]
    layouts.append(((9000, 1, 2, 2), (4, 1, 2, 1)))
    for sizes, strides in layouts:
        both_as_promised(lambda x, g=(sizes, strides): OF_ONE_ELEMENT[name](x.as_strided(*g)), memory)


BINARY = (
    "copysign",
    "floor_divide",
    "logaddexp",
    "logical_and",
    "heaviside",
    "xlogy",
    "ldexp",
    "maximum",
    "atan2",
    "add",
)


@layouts
@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_tensors(name, layout):
    x, y = torch.rand(20, 1, 20, 22) + 1, torch.rand(20, 5, 1, 22) + 1
    for other in LAYOUTS:
        both_as_promised(getattr(torch, name), *laid(layout, x), *laid(other, y))


@layouts
def test_wheres(layout):
    x, y, wanted = torch.randn(20, 1, 20, 22), torch.randn(20, 5, 1, 22), torch.rand(5, 20, 22) > 0.5
    both_as_promised(torch.where, wanted, *laid(layout, x, y))
    both_as_promised(lambda wanted, x: torch.where(wanted, torch.tensor(2.0), x), wanted, *laid(layout, x))


@layouts
def test_losses_of_classes(layout):
    x = torch.randn(4, 5, 20, 22, requires_grad=True)
    y = torch.randint(5, (4, 20, 22))
    for reduction in ("none", "mean"):
        loss = with_gradients(lambda x, y, reduction=reduction: F.cross_entropy(x, y, reduction=reduction))
        both_as_promised(loss, *laid(layout, x), *laid(layout, y))


# A network -----------------------------------------------------------------------------------------------------------


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 16, 3, padding=1, padding_mode="reflect")
        self.norm = torch.nn.BatchNorm2d(16)
        self.second = torch.nn.Conv2d(16, 16, 3)
        self.last = torch.nn.Linear(4, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
        x = F.interpolate(F.pad(x, (1, 1, 1, 1), mode="replicate"), scale_factor=2, mode="bilinear")
        x = F.pixel_shuffle(self.second(x), 2)
        return self.last(x.mean((2, 3)))


@pytest.mark.own_schedule("counts copies")
def test_a_network_in_channels_last_learns_and_copies_nothing():
    torch.manual_seed(0)
    model = Network().to(memory_format=torch.channels_last)
    batches = [(channels_last(torch.randn(8, 3, 20, 24)), torch.randint(5, (8,))) for _ in range(4)]
    before = lessons()
    train_both(
        model,
        batches,
        lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9),
        lambda model, x, y: F.cross_entropy(model(x), y),
        rtol=1e-3,
        atol=1e-5,
    )
    finish_pending()
    assert lessons() == before or IS_SCHEDULED


@pytest.mark.parametrize("name", ["add", "mul", "gt", "fmax", "eq", "atan2"])
def test_what_the_cpu_casts_first_is_dense(name):
    """An expanded mask, say, is copied, and then lies as one that is not."""
    op = getattr(torch, name)

    def program(mask, column, x):
        rows, columns = mask.expand(130, 130), column.expand(130, 130)
        return [op(rows, x.t()), op(x.t(), columns), op(rows, columns), op(columns.t(), x.t()), op(x.t(), x.t().int())]

    both_as_promised(program, torch.ones(1, 130) > 0, torch.ones(130, 1, dtype=torch.float64), torch.ones(130, 130))
