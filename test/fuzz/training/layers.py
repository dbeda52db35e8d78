"""The layers: each function writes the lines that make a new `h` of the old one, or returns None if it does not fit."""

LAYERS = {}  # name: function
RANKS = {}  # name: how many dimensions `h` may have
WEIGHTS = {}


def layer(*ranks, weight=1.0):
    def register(function):
        name = function.__name__
        LAYERS[name], RANKS[name], WEIGHTS[name] = function, ranks or (1, 2, 3, 4, 5), weight
        return function

    return register


def suiting(h):
    return [name for name in LAYERS if h.dim() in RANKS[name]]


def _divisor(draw, number):
    return draw.pick([d for d in (1, 1, 2, 3, 4, number) if number % d == 0])


def _channels_last(draw, rank):
    if rank < 4 or draw.chance(0.5):
        return ""
    return f".to(memory_format=torch.channels_last{'_3d' if rank == 5 else ''})"


# ---- with parameters ----


@layer(2, 3, 4, 5, weight=3)
def linear(draw, h):
    m = draw.module(f"nn.Linear({h.shape[-1]}, {draw.size()}, bias={draw.chance(0.8)})")
    return f"h = {m}(h)"


@layer(2, 3, 4)
def bilinear(draw, h):
    m = draw.module(f"nn.Bilinear({h.shape[-1]}, {h.shape[-1]}, {draw.size()})")
    return f"h = {m}(h, h.roll(1, 0))"


@layer(3, 4, 5, weight=8)
def convolution(draw, h):
    n, channels = h.dim() - 2, h.shape[1]
    groups, kernel = _divisor(draw, channels) if draw.chance(0.4) else 1, draw.choice(1, 2, 3, 3)
    # Without AVX-512, oneDNN writes out of bounds where it makes the gradient of the weights of a strided 1x1
    # convolution of few channels in channels-last: PyTorch crashes by itself.
    stride = draw.choice(1, 1, 1, 2) if kernel > 1 else 1
    options = f"{kernel}, stride={stride}, padding={draw.number(0, kernel // 2)}, groups={groups}"
    options += f", bias={draw.chance(0.7)}, dilation={draw.choice(1, 1, 1, 2)}"
    kind = draw.choice("Conv", "Conv", "Conv", "ConvTranspose")
    m = draw.module(
        f"nn.{kind}{n}d({channels}, {groups * draw.number(1, 4)}, {options}){_channels_last(draw, h.dim())}"
    )
    return f"h = {m}(h)"


@layer(3, 4)
def turned_convolution(draw, h):
    """With a weight that is a view."""
    n, channels = h.dim() - 2, h.shape[1]
    m = draw.module(f"nn.ConvTranspose{n}d({draw.size()}, {channels}, {draw.choice(1, 2, 3)})")
    return f"h = F.conv{n}d(h, {m}.weight.transpose(2, -1), padding=1)"


@layer(2, 3, 4, 5, weight=4)
def group_norm(draw, h):
    channels = h.shape[1]
    m = draw.module(f"nn.GroupNorm({_divisor(draw, channels)}, {channels}, affine={draw.chance(0.8)})")
    return f"h = {m}(followed(h))"


@layer(2, 3, 4, 5, weight=2)
def batch_norm(draw, h):
    n = max(h.dim() - 2, 1)
    kind = draw.choice("BatchNorm", "BatchNorm", "BatchNorm", "InstanceNorm" if h.dim() > 2 else "BatchNorm")
    m = draw.module(f"nn.{kind}{n}d({h.shape[1]}, affine={draw.chance(0.8)}, track_running_stats={draw.chance(0.8)})")
    evaluated = f"{m}.train(step % 2 == 0)\n" if draw.chance(0.2) else ""
    return f"{evaluated}h = {m}(h)"


@layer(2, 3, 4, 5, weight=2)
def layer_norm(draw, h):
    sizes = tuple(h.shape[-draw.number(1, max(h.dim() - 1, 1)) :])
    m = draw.module(f"nn.{draw.choice('LayerNorm', 'LayerNorm', 'RMSNorm')}({sizes})")
    return f"h = {m}(h)"


@layer(2, 3, 4, 5)
def scale(draw, h):
    m = draw.module(f"Scale{(h.shape[1],) + (1,) * (h.dim() - 2)}" if draw.chance(0.5) else f"Scale({h.shape[-1]})")
    return f"h = {m}(h)"


@layer()
def running(draw, h):
    return f"h = {draw.module(f'Running({draw.choice(0.1, 0.5)})')}(h)"


@layer(3, weight=2)
def recurrent(draw, h):
    kind, hidden = draw.choice("LSTM", "GRU", "RNN"), draw.number(1, 4)
    options = f"batch_first={draw.chance(0.7)}, bidirectional={draw.chance(0.3)}, num_layers={draw.choice(1, 1, 2)}"
    m = draw.module(f"nn.{kind}({h.shape[-1]}, {hidden}, {options})")
    return f"h = {m}(h)[0]"


@layer(3, weight=2)
def cell(draw, h):
    hidden, kind = draw.number(1, 4), draw.choice("LSTM", "GRU", "RNN")
    m = draw.module(f"nn.{kind}Cell({h.shape[-1]}, {hidden})")
    item = "state[0]" if kind == "LSTM" else "state"
    lines = ["state, outputs = None, []", "for part in h.unbind(1):", f"    state = {m}(part, state)"]
    return "\n".join([*lines, f"    outputs.append({item})", f"h = torch.stack(outputs, {draw.number(0, 2)})"])


@layer(3, weight=2)
def multihead_attention(draw, h):
    width = h.shape[-1]
    m = draw.module(f"nn.MultiheadAttention({width}, {_divisor(draw, width)}, batch_first={draw.chance(0.7)})")
    return f"h = {m}(h, h, h, need_weights={draw.chance(0.5)})[0]"


@layer(3)
def transformer(draw, h):
    width = h.shape[-1]
    options = f"{draw.number(2, 6)}, dropout=0.0, batch_first=True, norm_first={draw.chance(0.5)}"
    m = draw.module(f"nn.TransformerEncoderLayer({width}, {_divisor(draw, width)}, {options})")
    return f"h = {m}(h)"


@layer(3, 4, weight=2)
def attention(draw, h):
    width = h.shape[-1]
    m = draw.module(f"nn.Linear({width}, {3 * width})")
    heads = _divisor(draw, width)
    split = f".unflatten(-1, ({heads}, {width // heads})).transpose(-2, -3)" if draw.chance(0.7) else ""
    parts = f"(part{split} for part in {m}(h).chunk(3, -1))"
    joined = ".transpose(-2, -3).flatten(-2)" if split else ""
    return f"h = F.scaled_dot_product_attention(*{parts}, is_causal={draw.chance(0.4)}){joined}"


@layer(2, 3)
def checkpointed(draw, h):
    m = draw.module(f"nn.Linear({h.shape[-1]}, {draw.size()})")
    return f"h = checkpoint(lambda v: F.gelu({m}(v)), h, use_reentrant={draw.chance(0.5)})"


@layer(4)
def checkpointed_block(draw, h):
    m = draw.module(f"nn.Conv2d({h.shape[1]}, 4, 3, padding=1){_channels_last(draw, 4)}")
    norm = draw.module("nn.GroupNorm(2, 4)")
    return f"h = checkpoint(lambda v: F.silu({norm}(followed({m}(v)))), h, use_reentrant={draw.chance(0.5)})"


@layer(2, 3, 4)
def parametrized(draw, h):
    name = draw.choice("weight_norm", "spectral_norm", "orthogonal")
    m = draw.module(f"nn.utils.parametrizations.{name}(nn.Linear({h.shape[-1]}, {draw.number(2, 4)}))")
    return f"h = {m}(h)"


@layer(weight=2)
def again(draw, h):
    """An earlier module once more."""
    m = draw.pick(draw.builder.modules())
    argument = "followed(h)" if m in draw.builder.modules("GroupNorm") else "h"
    return m and f"h = {m}({argument})"


@layer(2, 3, 4)
def tied(draw, h):
    """The weight of an earlier layer, from the other side."""
    m = draw.pick([n for n in draw.builder.modules("Linear") if draw.builder.scope[n].out_features == h.shape[-1]])
    return m and f"h = F.linear(h, {m}.weight.t())"


# ---- without ----


@layer(weight=4)
def activation(draw, h):
    name = draw.choice(
        *[
            "relu",
            "gelu",
            "silu",
            "tanh",
            "sigmoid",
            "elu",
            "softplus",
            "leaky_relu",
            "mish",
            "hardswish",
            "selu",
            "logsigmoid",
        ]
    )
    return f"h = {'torch' if name in ('tanh', 'sigmoid') else 'F'}.{name}(h)"


@layer(weight=2)
def activation_in_place(draw, h):
    return f"h = F.{draw.choice('relu', 'silu', 'elu', 'leaky_relu', 'hardtanh')}(h, inplace=True)"


@layer()
def dropout(draw, h):
    return f"h = F.dropout{draw.choice('', '1d', '2d') if h.dim() == 4 else ''}(h, 0.0)".replace("1d", "")


@layer(2, 3, 4, 5)
def soft(draw, h):
    return f"h = F.{draw.choice('softmax', 'log_softmax')}(h, {draw.number(-h.dim(), h.dim() - 1)})"


@layer(3, 4, 5, weight=2)
def pooling(draw, h):
    n, kind = h.dim() - 2, draw.choice("max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool")
    if kind.startswith("adaptive"):
        return f"h = F.{kind}{n}d(h, {draw.number(1, 3)})"
    return f"h = F.{kind}{n}d(h, {draw.number(2, 3)}, stride={draw.number(1, 2)}, padding={draw.number(0, 1)})"


@layer(3, 4, 5, weight=2)
def interpolate(draw, h):
    smooth = {3: ["linear"], 4: ["bilinear", "bicubic"], 5: ["trilinear"]}[h.dim()]
    mode = draw.choice("nearest", "nearest-exact", *smooth)
    aligned = f", align_corners={draw.chance(0.5)}" if mode in smooth else ""
    where = draw.choice("scale_factor=2", f"size={(3,) * (h.dim() - 2)}", "scale_factor=0.5")
    return f'h = F.interpolate(h, {where}, mode="{mode}"{aligned})'


@layer(4)
def pixel_shuffle(draw, h):
    return f"h = F.pixel_{draw.choice('shuffle', 'unshuffle')}(h, 2)"


@layer(4)
def channel_shuffle(draw, h):
    return f"h = F.channel_shuffle(h, {_divisor(draw, h.shape[1])})"


@layer(2, 3, 4, 5)
def pad(draw, h):
    mode = draw.choice("constant", "constant", "reflect", "replicate", "circular")
    sides = tuple(draw.number(0, 1) for _ in range(2 * max(h.dim() - 2, 1)))
    return f'h = F.pad(h, {sides}, mode="{mode}")'


@layer(4)
def unfold(draw, h):
    return f"h = F.unfold(h, 2, stride={draw.number(1, 2)})"


@layer(4)
def sample(draw, h):
    grid = draw.data((h.shape[0], 3, 3, 2))
    return f"h = F.grid_sample(h, {grid}, align_corners={draw.chance(0.5)})"


@layer(weight=2)
def save(draw, h):
    return f"{draw.builder.fresh('s')} = h"


@layer(weight=3)
def residual(draw, h):
    other = draw.pick(draw.builder.saved(lambda t: t.shape == h.shape))
    return other and draw.choice(f"h = h + {other}", f"h += {other}", f"h = torch.add(h, {other}, alpha=0.5)")


@layer(2, 3, 4, 5)
def beside(draw, h):
    other = draw.pick(draw.builder.saved(lambda t: t.shape[2:] == h.shape[2:] and t.shape[0] == h.shape[0]))
    return other and f"h = torch.cat([h, {other}], 1)"


@layer(2, 3, 4, 5, weight=2)
def split(draw, h):
    dim = draw.number(0, h.dim() - 1)
    parts = draw.choice(f"h.split(1, {dim})", f"h.unbind({dim})", f"h.chunk(2, {dim})", f"h.tensor_split(2, {dim})")
    joined = draw.choice("torch.cat({}, %d)", "torch.stack({}, %d)", "torch.cat([part.sin() for part in {}], %d)")
    return f"h = {joined.format(parts + draw.choice('', '[::-1]')) % dim}"


@layer(2, 3, 4, 5)
def gate(draw, h):
    dim = draw.number(0, h.dim() - 1)
    forms = ["a, b = h.chunk(2, {0})\nh = a * b.sigmoid()", "h = F.glu(h, {0})"]
    return draw.pick(forms).format(dim) if h.shape[dim] % 2 == 0 else None


@layer(2, 3, 4, 5, weight=3)
def transpose(draw, h):
    first, second = draw.rng.sample(range(h.dim()), 2)
    return f"h = h.transpose({first}, {second}){draw.choice('', '', '.contiguous()')}"


@layer(3, 4, 5, weight=2)
def permute(draw, h):
    return f"h = h.permute({tuple(draw.rng.sample(range(h.dim()), h.dim()))}){draw.choice('', '', '.contiguous()')}"


@layer(4, 5, weight=2)
def memory_format(draw, h):
    name = "torch.channels_last" if h.dim() == 4 else "torch.channels_last_3d"
    return f"h = h.{draw.choice('to', 'contiguous')}(memory_format={name})"


@layer()
def copy(draw, h):
    forms = ["h.contiguous()", "h.clone()", "torch.empty_like(h).copy_(h)", "torch.zeros_like(h).add_(h)"]
    return f"h = {draw.pick(forms)}"


@layer(2, 3, 4, 5, weight=2)
def reshape(draw, h):
    forms = [
        "h.flatten(1)",
        "h.flatten(0, 1)",
        "h.unsqueeze({0})",
        "h.squeeze()",
        "h.reshape({1}, -1)",
        "h.flatten(-2)",
    ]
    return f"h = {draw.pick(forms).format(draw.number(0, 2), h.shape[0])}"


@layer(2, 3, 4, weight=2)
def unflatten(draw, h):
    dim = draw.number(0, h.dim() - 1)
    size = _divisor(draw, h.shape[dim])
    return f"h = h.unflatten({dim}, ({size}, -1))"


@layer(weight=2)
def piece(draw, h):
    dim = draw.number(0, h.dim() - 1)
    forms = ["h.narrow({0}, 0, {1})", "h[..., ::2]", "h[:, 1:]", "h.narrow({0}, 1, {1})", "h[..., :-1]"]
    return f"h = {draw.pick(forms).format(dim, max(h.shape[dim] - 1, 1))}"


@layer(2, 3, 4, 5)
def mean(draw, h):
    name = draw.choice("mean", "sum", "amax", "std", "logsumexp", "norm", "var")
    keep = draw.chance(0.5)
    return f"h = h.{name}(dim={draw.number(0, h.dim() - 1)}, keepdim={keep})"


@layer(2, 3, 4, 5)
def centre(draw, h):
    dim = draw.number(0, h.dim() - 1)
    forms = ["h - h.mean({0}, keepdim=True)", "h / (1 + h.norm(dim={0}, keepdim=True))", "F.normalize(h, dim={0})"]
    return f"h = {draw.pick(forms).format(dim)}"


@layer(1, 2, 3, 4)
def expand(draw, h):
    forms = ["h.unsqueeze({0}).expand({1})", "h.repeat_interleave(2, {0})", "h.repeat({2})", "h.expand({3})"]
    dim, times = draw.number(0, h.dim() - 1), (2,) + (1,) * (h.dim() - 1)
    larger = (*h.shape[:dim], 2, *h.shape[dim:])
    return f"h = {draw.pick(forms).format(dim, larger, times, (2, *h.shape))}"


@layer(2, 3, 4, 5)
def product(draw, h):
    forms = ["h @ h.mT", "h.mT @ h", "torch.einsum('...ij,...kj->...ik', h, h)", "torch.matmul(h, {0})"]
    return f"h = {draw.pick(forms).format(draw.data((h.shape[-1], draw.size())))} * 0.2"


@layer()
def rearrange(draw, h):
    dim = draw.number(0, h.dim() - 1)
    forms = [
        "h.roll(1, {0})",
        "h.flip({0})",
        "h.cumsum({0})",
        "h.sort({0}).values",
        "h.tril()",
        "h.index_select({0}, {1})",
    ]
    index = draw.tensor(f"integers({h.shape[dim]}, (3,), {draw.number(0, 99)}).to(device)")
    return f"h = {draw.pick(forms).format(dim, index)}"


@layer()
def choose(draw, h):
    forms = [
        "torch.where(h > 0, h, h * 0.1)",
        "h.masked_fill(h > 1, 0.5)",
        "h.clamp(-1, 1)",
        "torch.maximum(h, h * 0.5)",
    ]
    return f"h = {draw.pick(forms)}"


@layer(weight=2)
def write(draw, h):
    """In place, into a part of a copy."""
    forms = ["h[..., 0] *= 2", "h[0] = 0.5", "h[..., 1:].add_(0.1)", "h[h > 1] = 1", "h.transpose(0, -1)[0].neg_()"]
    return f"h = h.clone()\n{draw.pick(forms)}"


@layer()
def arithmetic(draw, h):
    forms = [
        "h * 0.5 + 1",
        "h * h.detach().sigmoid()",
        "(h + 1) / 2",
        "h.addcmul(h, h, value=0.1)",
        "h.lerp(h.sin(), 0.3)",
    ]
    return f"h = {draw.pick(forms)}"


@layer()
def arithmetic_in_place(draw, h):
    forms = ["h = h * 1.0\nh.add_(0.1).mul_(0.9)", "h = h + 0\nh.sub_(h.detach().mean())", "h = h.clone()\nh *= 0.5"]
    return draw.pick(forms)


@layer()
def custom(draw, h):
    return "h = Halved.apply(h)"


@layer()
def hook(draw, h):
    forms = [
        "lambda g: g * 0.5",
        "lambda g: g.transpose(0, -1).contiguous().transpose(0, -1)",
        "lambda g: g + g.mean()",
    ]
    return f"h = h * 1\nh.requires_grad and h.register_hook({draw.pick(forms)})"
