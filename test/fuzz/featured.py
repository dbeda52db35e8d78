"""Ops that every program is given, in turn, so that the rare ones are met as often as the common ones."""

from . import catalog, views
from .program import Ref

PER_PROGRAM = 4
ATTEMPTS = 6


def _shaped(generator, name):
    dim = views.draw_dim(generator.rng, generator.value(name))
    return Ref(name), dim, generator.rng.random() < 0.4, generator.rng.randint(-1, 2)


def _pointwise(generator, name):
    others = [Ref(companion(generator, name)) for _ in range(2)]
    return Ref(name), *others, generator.rng.choice([0.5, 2, -1])


def _joined(generator, name):
    return Ref(name), Ref(companion(generator, name)), views.draw_dim(generator.rng, generator.value(name))


def companion(generator, name):
    """Another tensor of the same dtype and shape."""
    tensor = generator.value(name)
    others = [n for n in generator.names(lambda t: t.dtype == tensor.dtype and t.shape == tensor.shape) if n != name]
    if others:
        return generator.rng.choice(others)
    code = generator.rng.choice(["({0} + 1).to({0}.dtype)", "{0}.roll(1)"])
    return f"t{generator.created}" if generator.add(code, Ref(name), results=1) else name


def _reduction(name):
    keep = ", keepdim={2}" if name in catalog.WITH_KEEPDIM else ""
    return catalog.along_dim(name, "dim={1}" + keep)


# template, function that draws its arguments, number of results (none: it writes its first argument)
TABLE = [
    *((f"torch.{op}({{0}})", _shaped, 1) for op in catalog.UNARY + catalog.UNARY_WITHOUT_IN_PLACE),
    *((f"{{0}}.{op}_()", _shaped, 0) for op in catalog.UNARY),
    *((f"torch.{op}({{0}}, {{1}})", _pointwise, 1) for op in catalog.BINARY + catalog.BINARY_WITHOUT_IN_PLACE),
    *((f"{{0}}.{op}_({{1}})", _pointwise, 0) for op in catalog.BINARY),
    *((code, _pointwise, 1) for code in catalog.TERNARY),
    *((code, _pointwise, 0) for code in catalog.TERNARY_IN_PLACE),
    *((_reduction(op), _shaped, 1) for op in catalog.REDUCTIONS),
    *((f"torch.{op}({{0}})", _shaped, 1) for op in catalog.FULL_REDUCTIONS),
    *((_reduction(op), _shaped, 2) for op in catalog.PAIR_REDUCTIONS),
    *((f"torch.{op}({{0}}, {{1}})", _shaped, 1) for op in catalog.SCANS),
    *((code, _shaped, 1) for code in catalog.RESHUFFLES),
    *((code, _pointwise, 1) for code in catalog.PRODUCTS),
    *((code, _joined, 1) for code in catalog.JOINS),
]


def features_of(seed):
    """The rows that the program of this seed has to contain."""
    return [TABLE[(seed * PER_PROGRAM + i) % len(TABLE)] for i in range(PER_PROGRAM)]


def _has_many(tensor):
    return tensor.numel() > 1


def _has_many_floats(tensor):
    return tensor.numel() > 1 and tensor.dtype.is_floating_point


def add_feature(generator, row):
    """Tries the op on several tensors, until the CPU accepts one."""
    code, draw, results = row
    for attempt in range(ATTEMPTS):
        name = generator.tensor(_has_many_floats if attempt > 1 else _has_many)
        if name is None:
            generator.leaf()
        elif generator.add(code, *draw(generator, name), results=results, writes=() if results else (name,)):
            return
