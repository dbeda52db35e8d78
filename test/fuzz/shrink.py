"""Makes a failing program smaller while it fails in the same way."""

from dataclasses import replace

import torch

from .program import Index, count_statements, map_arguments, with_statements

LEAF = "torch.tensor({0}, dtype={1}).reshape({2}).clone().to(device)"


class Shrinker:
    """`fails(program)` tells whether a candidate still fails in the same way."""

    def __init__(self, fails, budget=600):
        self.fails, self.budget = fails, budget

    def shrink(self, program):
        before = None
        while program != before and self.budget > 0:
            before = program
            program = self._simplify_run(program)
            program = with_statements(program, self._remove(program, program.statements, lambda s: s))
            program = self._simplify_statements(program)
        return program

    def _try(self, candidate):
        self.budget -= 1
        return self.budget > 0 and self.fails(candidate)

    def _simplify_run(self, program):
        while found := next((c for c in _simpler_runs(program) if c != program and self._try(c)), None):
            program = found
        return program

    def _remove(self, program, statements, rebuild):
        """Delta debugging: leaves out ever smaller parts."""
        size = max(len(statements) // 2, 1)
        while size >= 1:
            place = len(statements)
            while place > 0:
                place = max(place - size, 0)
                shorter = statements[:place] + statements[place + size :]
                if self._try(with_statements(program, rebuild(shorter))):
                    statements = shorter
            size //= 2
        return rebuild(statements)

    def _simplify_statements(self, program):
        place = 0
        while place < len(program.statements):
            before, after = program.statements[:place], program.statements[place + 1 :]
            for candidate in _simpler(program.statements[place]):
                changed = with_statements(program, (*before, *candidate, *after))
                if self._try(changed):
                    program = changed
                    break
            else:
                place += 1
        return program


def _simpler_runs(program):
    modes = [replace(program, mode=mode) for mode in program.mode.simpler()]
    return [replace(program, runs=1), replace(program, read_errors_late=False), *modes]


def _simpler(statement):
    """Lists of statements that may do instead of this one, the simplest first."""
    if statement.kind != "call":
        yield list(statement.body)
        for place in range(len(statement.body)):
            yield [replace(statement, body=statement.body[:place] + statement.body[place + 1 :])]
    elif statement.code == LEAF:
        yield from ([leaf] for leaf in _simpler_leaves(statement))
    else:
        yield from ([replace(statement, args=args)] for args in _simpler_arguments(statement.args))


def _simpler_leaves(statement):
    data, dtype, shape = statement.args
    for dim, size in enumerate(shape):
        if size > 1:
            smaller = (*shape[:dim], size - 1, *shape[dim + 1 :])
            yield _leaf(statement, data, dtype, smaller)
        yield _leaf(statement, data, dtype, shape[:dim] + shape[dim + 1 :])
    if dtype is not torch.float32 and not dtype.is_complex:
        yield _leaf(statement, [float(x) for x in data], torch.float32, shape)
    plain = [type(x)(i + 1) for i, x in enumerate(data)]
    if plain != data and dtype is not torch.bool:
        yield _leaf(statement, plain, dtype, shape)


def _leaf(statement, data, dtype, shape):
    numel = torch.Size(shape).numel()
    return replace(statement, args=((data * numel)[:numel] if data else [1] * numel, dtype, shape))


def _simpler_arguments(args):
    for place, argument in enumerate(args):
        if isinstance(argument, Index) and len(argument) > 1:
            for i in range(len(argument)):
                yield (*args[:place], Index(argument[:i] + argument[i + 1 :]), *args[place + 1 :])
        elif isinstance(argument, (int, float, tuple)) and not isinstance(argument, Index):
            for simple in _simpler_values(argument):
                yield (*args[:place], simple, *args[place + 1 :])


def _simpler_values(value):
    if isinstance(value, tuple):
        return [value[1:], value[:-1]] if value and map_arguments(type, value) else []
    if isinstance(value, bool) or value in (0, 1):
        return []
    return [0, 1]


def size(program):
    return count_statements(program.statements)
