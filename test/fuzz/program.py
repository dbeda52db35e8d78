"""What a random program is: data, so that it can be run on any device, made smaller, and printed."""

from dataclasses import dataclass, replace

from .mode import Mode


@dataclass(frozen=True)
class Ref:
    """A variable, as an argument."""

    name: str


class Index(tuple):
    """What stands between square brackets."""

    __slots__ = ()


@dataclass(frozen=True)
class Statement:
    """One line, or a block with a body.

    `code` is Python in which {0}, {1}, ... stand for the arguments, and `device` for the device. A "call" assigns its
    result to the variables named, or is compared if it is no tensor. An "if" runs its body if its code is true, a "for"
    runs it `args[0]` times, and "no_grad" switches gradients off in it.
    """

    code: str
    args: tuple = ()
    results: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()  # variables whose memory it writes
    fragile: bool = False  # if it raises, it may have written a part
    kind: str = "call"
    body: tuple = ()


@dataclass(frozen=True)
class Program:
    seed: int
    statements: tuple[Statement, ...]
    runs: int = 1  # the second time, everything is in the caches
    mode: Mode = Mode()
    read_errors_late: bool = False  # a result that cannot be computed is read at the end, instead of at once


def references(tree):
    """The names in nested arguments."""
    if isinstance(tree, Ref):
        return [tree.name]
    if isinstance(tree, (list, tuple)):
        return [name for item in tree for name in references(item)]
    return []


def map_arguments(function, tree):
    """Nested arguments with `function` applied to each leaf."""
    if isinstance(tree, (list, tuple)):
        return type(tree)(map_arguments(function, item) for item in tree)
    return function(tree)


def count_statements(statements):
    return sum(1 + count_statements(s.body) for s in statements)


def with_statements(program, statements):
    return replace(program, statements=tuple(statements))
