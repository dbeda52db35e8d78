"""Programs as they are put together, statement by statement, of variables that are known to hold something."""

import random

import torch

from . import catalog, views
from .execute import Machine
from .program import Ref, Statement

KEEP_ERRORS = 0.12
MAX_NUMEL = 400
DTYPES = {getattr(torch, name): weight for name, weight in catalog.DTYPES.items()}


class Builder:
    """Adds statements that have been tried on the CPU first, so that most of them mean something."""

    def __init__(self, seed):
        self.rng, self.machine = random.Random(seed), Machine("cpu")
        self.blocks = [[]]  # the statements of the open blocks, the innermost last
        self.host = set()  # variables that are on the CPU on both sides
        self.created = 0
        rng = self.rng
        self.shapes = [self._draw_shape() for _ in range(2)]
        self.dtypes = rng.choices(list(DTYPES), DTYPES.values(), k=2)
        self.uses_autograd = rng.random() < 0.2

    # ---- drawing ----

    def _draw_shape(self):
        dims = self.rng.choices(range(5), [1, 3, 5, 3, 0.5])[0]
        shape = self.rng.choices([0, 1, 2, 3, 4, 5], [0.4, 1.5, 3, 3, 1.5, 0.7], k=dims)
        if shape and self.rng.random() < 0.08:
            shape[-1] = self.rng.choice([64, 70])  # long enough to be summed up in a group
        return tuple(shape)

    def shape(self):
        if self.rng.random() < 0.15:
            return self._draw_shape()
        return views.broadcast_shape(self.rng, self.rng.choice(self.shapes))

    def dtype(self):
        if self.rng.random() < 0.6:
            return self.rng.choice(self.dtypes)
        return self.rng.choices(list(DTYPES), DTYPES.values())[0]

    def scalar(self):
        return self.rng.choice(catalog.SCALARS)

    def value(self, name):
        return self.machine.variables[name]

    def names(self, suits=lambda tensor: True):
        """Variables on the device; the younger, the likelier."""
        return [n for n, t in self.machine.variables.items() if n not in self.host and _holds(suits, t)]

    def tensor(self, suits=lambda tensor: True):
        names = self.names(suits)
        if not names:
            return None
        place = min(self.rng.random(), self.rng.random())
        return names[-1 - int(place * len(names))]

    def like(self, name):
        """An operand that fits `name` more often than not."""
        shape = self.value(name).shape
        return self.tensor(lambda t: t.shape == shape) if self.rng.random() < 0.5 else self.tensor()

    def operand(self, name):
        chance = self.rng.random()
        if chance < 0.25:
            return self.scalar()
        if chance < 0.32 and (
            scalars := [n for n in self.host if n in self.machine.variables and self.value(n).dim() == 0]
        ):
            return Ref(self.rng.choice(sorted(scalars)))
        return Ref(self.like(name) or name)

    def fresh(self):
        self.created += 1
        return f"t{self.created}"

    # ---- statements ----

    def add(self, code, *args, results=0, writes=(), fragile=False, host=False):
        """Appends the statement unless it raises, or, seldom, although it does. Tells whether it did."""
        names = tuple(self.fresh() for _ in range(results))
        statement = Statement(code, args, names, tuple(writes), fragile)
        value, error = self.machine.attempt(statement)
        if error is not None:
            return self._after_error(statement)
        if isinstance(value, torch.Tensor) and not _is_manageable(value):
            return False
        self.blocks[-1].append(statement)
        if names:
            self.machine.assign(names, value)
        if host:
            self.host.update(names)
        self._tame(statement)
        return True

    def _after_error(self, statement):
        if self.rng.random() > KEEP_ERRORS:
            return False
        self.blocks[-1].append(statement)
        self.machine.drop(self.machine.aliases(statement.writes))
        return True

    def _tame(self, statement):
        """Numbers that have become large would only show who overflows how."""
        for name in (*statement.results, *statement.writes):
            if name in self.machine.variables and _is_wild(self.value(name)):
                self._make_small(name)

    def _make_small(self, name):
        tensor = self.value(name)
        code = "{0}.remainder_(5)" if not tensor.is_floating_point() else "{0}.nan_to_num_(1.0).clamp_(-4, 4)"
        if tensor.is_complex():
            code = "{0}.zero_()"
        if name in self.host or not self.add(f"{code[:3]}.detach(){code[3:]}", Ref(name), writes=(name,)):
            self.delete(name)

    def delete(self, name):
        self.blocks[-1].append(Statement("del {0}", (Ref(name),)))
        self.machine.drop([name])
        self.host.discard(name)


def _holds(suits, tensor):
    try:
        return suits(tensor)
    except RuntimeError:  # a view that autograd cannot rebuild
        return False


def _is_manageable(tensor):
    """Small, and of a dtype for which the CPU has kernels."""
    return tensor.numel() <= MAX_NUMEL and tensor.dim() <= 5 and tensor.dtype is not torch.complex32


def _is_wild(tensor):
    """Too large for what comes next, or not finite."""
    if tensor.dtype is torch.bool or tensor.numel() == 0:
        return False
    numbers = tensor.detach().resolve_conj().resolve_neg()
    if tensor.is_complex():
        numbers = torch.view_as_real(numbers)
    largest = numbers.double().abs().max().item()
    return not largest <= 1000 and (largest == largest or tensor.numel() % 2 == 0)
