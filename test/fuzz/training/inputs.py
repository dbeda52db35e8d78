"""Where a step begins and ends: the data that it is given, and its loss."""

INPUTS, LOSSES = {}, {}  # name: function
LARGE = 9000  # more elements than the device asks the CPU's kernels about


def _input(function):
    INPUTS[function.__name__] = function
    return function


def _loss(function):
    LOSSES[function.__name__] = function
    return function


def _shape(draw):
    if draw.chance(0.02):
        return (3, 12, 16, 16)
    rank = draw.choice(2, 3, 3, 4, 4, 4, 5)
    batch, channels = draw.choice(1, 2, 2, 3, 17 if rank < 4 else 2), draw.choice(1, 2, 3, 4, 4, 6, 8)
    return (batch, channels, *(draw.number(2, {3: 6, 4: 5, 5: 3}[rank]) for _ in range(rank - 2)))


def _backwards(items):
    return tuple(reversed(items))


@_input
def contiguous(draw):
    return f"h = {draw.data(_shape(draw))}"


@_input
def channels_last(draw):
    shape = _shape(draw)
    rank = len(shape)
    if rank < 4:
        return f"h = {draw.data(shape)}"
    name = draw.data(shape)
    return f"h = {name}.to(memory_format=torch.channels_last{'_3d' if rank == 5 else ''})"


@_input
def transposed(draw):
    shape = _shape(draw)
    order = draw.rng.sample(range(len(shape)), len(shape))
    stored = [shape[order.index(i)] for i in range(len(shape))]
    return f"h = {draw.data(stored)}.permute({tuple(_inverse(order))})"


def _inverse(order):
    return [order.index(i) for i in range(len(order))]


@_input
def sliced(draw):
    shape = _shape(draw)
    name = draw.data((*shape[:-1], 2 * shape[-1] + 1))
    return f"h = {name}[..., {draw.choice('::2', '1::2', f':{shape[-1]}', f'1:{shape[-1] + 1}')}]"


@_input
def expanded(draw):
    shape = _shape(draw)
    dim = draw.number(0, len(shape) - 1)
    return f"h = {draw.data((*shape[:dim], 1, *shape[dim + 1 :]))}.expand({shape})"


@_input
def batches(draw):
    """Other rows of one tensor in each step."""
    shape = _shape(draw)
    name = draw.data((shape[0] + 8, *shape[1:]))
    return f"h = {name}[step : step + {shape[0]}]"


@_input
def fed(draw):
    """New data from the CPU in each step."""
    return f"h = data({_shape(draw)}, step).to(device)"


@_input
def differentiable(draw):
    return f"h = {draw.data(_shape(draw))}.requires_grad_()\nh = h * 1"


@_input
def embedded(draw):
    rows, width = draw.number(2, 6), draw.choice(2, 3, 4, 6)
    m = draw.module(f"nn.Embedding({rows}, {width}, padding_idx={draw.choice(None, 0)})")
    tokens = draw.tensor(f"integers({rows}, (2, {draw.number(2, 6)}), {draw.number(0, 99)}).to(device)")
    return f"h = {m}({tokens})"


# ---- losses ----


@_loss
def squares(draw, h):
    return f"loss = F.{draw.choice('mse_loss', 'smooth_l1_loss', 'huber_loss')}(h, {draw.data(h.shape)})"


@_loss
def weighted(draw, h):
    return f"loss = (h * {draw.data(h.shape)}).{draw.choice('mean', 'sum')}()"


@_loss
def classes(draw, h):
    shape, seed = tuple(h.shape), draw.number(0, 99)
    if h.dim() > 1 and draw.chance(0.5):
        labels = draw.tensor(f"integers({shape[1]}, {(shape[0], *shape[2:])}, {seed}).to(device)")
        return f"loss = F.cross_entropy(h, {labels})"
    labels = draw.tensor(f"integers({shape[-1]}, ({h.numel() // shape[-1]},), {seed}).to(device)")
    return f"loss = F.cross_entropy(h.reshape(-1, {shape[-1]}), {labels}, label_smoothing={draw.choice(0.0, 0.1)})"


@_loss
def binary(draw, h):
    return f"loss = F.binary_cross_entropy_with_logits(h, {draw.data(h.shape)}.sigmoid())"


@_loss
def divergence(draw, h):
    return f'loss = F.kl_div(h.log_softmax(-1), {draw.data(h.shape)}.softmax(-1), reduction="batchmean")'


@_loss
def along_one(draw, h):
    dim = draw.number(0, h.dim() - 1)
    form = draw.choice(
        "h.logsumexp({0})", "(h * {1}).norm(dim={0})", "(h * {1}).sum({0}).pow(2)", "(h - {1}).abs().amax({0})"
    )
    return f"loss = {form.format(dim, draw.data(h.shape))}.mean()"
