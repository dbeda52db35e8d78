"""Views: each function draws one view of a tensor, as a template and its arguments."""

import math

from .program import Index


def draw_dim(rng, tensor):
    """A dimension, seldom one that does not exist."""
    n = max(tensor.dim(), 1)
    return n if rng.random() < 0.02 else rng.randrange(-n, n)


def draw_slice(rng, size):
    start = rng.choice([None, 0, 1, -1, -2])
    stop = rng.choice([None, None, size, size - 1, -1, 2])
    return slice(start, stop, rng.choice([None, None, None, 1, 2, 3]))


def draw_index(rng, tensor):
    """Numbers, slices, None and an ellipsis."""
    items, left = [], rng.randint(0, tensor.dim())
    for size in tensor.shape[:left]:
        kind = rng.random()
        if kind < 0.3 and size:
            items.append(rng.randrange(-size, size))
        elif kind < 0.4:
            items.append(None)
        else:
            items.append(draw_slice(rng, size))
    if rng.random() < 0.3:
        items.insert(rng.randint(0, len(items)) if len(items) < tensor.dim() else 0, ...)
    return Index(items or [...])


def basic_index(rng, t):
    return "{0}[{1}]", (draw_index(rng, t),)


def transpose(rng, t):
    return rng.choice(["{0}.transpose({1}, {2})", "{0}.swapaxes({1}, {2})", "{0}.movedim({1}, {2})"]), (
        draw_dim(rng, t),
        draw_dim(rng, t),
    )


def permute(rng, t):
    return "{0}.permute({1})", (tuple(rng.sample(range(t.dim()), t.dim())),)


def no_argument(rng, t):
    names = ["t()", "mT", "T", "squeeze()", "detach()", "flatten()", "ravel()", "data", "conj()", "real"]
    if t.is_floating_point():
        names.append("_neg_view()")
    return "{0}." + rng.choice(names), ()


def complex_parts(rng, t):
    names = ["real", "imag", "conj()", "conj()", "mH", "_neg_view()"]
    return rng.choice(["torch.view_as_real({0})"] + ["{0}." + name for name in names]), ()


def view_as_complex(rng, t):
    return "torch.view_as_complex({0})", ()


def one_dim(rng, t):
    names = ["unsqueeze", "squeeze", "unbind"]
    name = rng.choice(names)
    return f"{{0}}.{name}({{1}})" + ("[0]" if name == "unbind" else ""), (draw_dim(rng, t),)


def narrow(rng, t):
    dim = draw_dim(rng, t)
    size = t.shape[dim] if -t.dim() <= dim < t.dim() else 1
    start = rng.randint(0, size)
    return "{0}.narrow({1}, {2}, {3})", (dim, start, rng.randint(0, size - start))


def select(rng, t):
    dim = draw_dim(rng, t)
    size = t.shape[dim] if -t.dim() <= dim < t.dim() else 1
    return "{0}.select({1}, {2})", (dim, rng.randint(-size, size - 1) if size else 0)


def parts(rng, t):
    codes = ["{0}.chunk(2, {1})[-1]", "{0}.split(2, {1})[0]", "{0}.tensor_split(2, {1})[1]", "{0}.split(1, {1})[-1]"]
    return rng.choice(codes), (draw_dim(rng, t),)


def diagonal(rng, t):
    return "{0}.diagonal({1}, {2}, {3})", (rng.randint(-1, 1), draw_dim(rng, t), draw_dim(rng, t))


def unfold(rng, t):
    return "{0}.unfold({1}, {2}, {3})", (draw_dim(rng, t), rng.randint(1, 2), rng.randint(1, 2))


def expand(rng, t):
    sizes = [rng.randint(1, 3) if size == 1 and rng.random() < 0.8 else rng.choice([size, -1]) for size in t.shape]
    added = [rng.randint(1, 3)] * rng.randint(0, 1)
    return "{0}.expand({1})", (tuple(added + sizes),)


def _factored(rng, numel):
    if numel == 0:
        return rng.choice([(0,), (2, 0), (0, 3)])
    sizes = []
    while numel > 1 and len(sizes) < 3:
        divisor = rng.choice([d for d in (2, 3, 4, 5, numel) if numel % d == 0])
        sizes.append(divisor)
        numel //= divisor
    return tuple(rng.sample([*sizes, numel], len(sizes) + 1))


def reshape(rng, t):
    name = rng.choice(["view", "reshape", "view", "_unsafe_view", "reshape"])
    code = "torch.ops.aten._unsafe_view({0}, {1})" if name == "_unsafe_view" else f"{{0}}.{name}({{1}})"
    return code, (rng.choice([(-1,), _factored(rng, t.numel()), _factored(rng, t.numel())]),)


def as_strided(rng, t):
    room = t.untyped_storage().nbytes() // t.element_size()
    offset = rng.randint(0, max(room - 1, 0)) if rng.random() < 0.5 else 0
    sizes, strides = [], []
    for _ in range(rng.randint(0, 3)):
        size, stride = rng.randint(1, 3), rng.choice([1, 1, 2, 3, 4, 6, 0])
        if offset + sum((n - 1) * s for n, s in zip(sizes + [size], strides + [stride], strict=True)) < room:
            sizes.append(size)
            strides.append(stride)
    return "{0}.as_strided({1}, {2}, {3})", (tuple(sizes), tuple(strides), offset)


_SAME_SIZE = {1: ["int8", "uint8"], 2: ["int16", "float16"], 4: ["int32"], 8: ["int64", "complex64"], 16: ["int64"]}


def view_dtype(rng, t):
    """Bytes read as numbers of another kind; only as integers, whose every pattern is a number."""
    import torch

    names = _SAME_SIZE[t.element_size()] if rng.random() < 0.6 else ["uint8", "int16", "int32", "int64"]
    return "{0}.view({1})", (getattr(torch, rng.choice(names)),)


def unflatten(rng, t):
    dim = draw_dim(rng, t)
    size = t.shape[dim] if -t.dim() <= dim < t.dim() else 1
    return "{0}.unflatten({1}, {2})", (dim, _factored(rng, size) if size else (0, 1))


VIEWS = {
    basic_index: 10,
    transpose: 4,
    permute: 2,
    no_argument: 5,
    one_dim: 3,
    narrow: 3,
    select: 3,
    parts: 3,
    diagonal: 2,
    unfold: 1,
    expand: 4,
    reshape: 4,
    as_strided: 3,
    view_dtype: 2,
    unflatten: 1,
}


def draw_view(rng, tensor):
    chance = rng.random()
    if tensor.is_complex() and chance < 0.4:
        return complex_parts(rng, tensor)
    if tensor.is_floating_point() and tensor.dim() and tensor.shape[-1] == 2 and chance < 0.15:
        return view_as_complex(rng, tensor)
    maker = rng.choices(list(VIEWS), VIEWS.values())[0]
    if maker is view_dtype and tensor.requires_grad:  # autograd cannot rebuild such a view
        maker = basic_index
    return maker(rng, tensor)


def broadcast_shape(rng, shape):
    """A shape that broadcasts to this one."""
    kept = shape[rng.randint(0, len(shape)) :] if rng.random() < 0.4 else shape
    return tuple(1 if rng.random() < 0.2 else size for size in kept)


def numel(shape):
    return math.prod(shape)
