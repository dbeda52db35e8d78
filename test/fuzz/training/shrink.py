"""Makes a failing training program smaller while it fails in the same way."""

from dataclasses import replace

from .program import Item
from .source import rewritten


class Shrinker:
    """`fails(program)` tells whether a candidate still fails in the same way."""

    def __init__(self, fails, budget=600):
        self.fails, self.budget = fails, budget

    def shrink(self, program):
        before = None
        while program != before and self.budget > 0:
            before = program
            for simplify in (_simpler_modes, _fewer_events, _fewer_layers, _fewer_steps, _simpler_parts):
                program = self._simplify(program, simplify)
        return program

    def _simplify(self, program, candidates):
        """Begins again with each candidate that fails too."""
        while found := next((c for c in map(rewritten, candidates(program)) if c and self._try(c)), None):
            program = found
        return program

    def _try(self, candidate):
        self.budget -= 1
        return self.budget > 0 and self.fails(candidate)


def _simpler_modes(program):
    return [replace(program, mode=mode) for mode in program.mode.simpler()]


def _without(items):
    """Shorter tuples: first those that lack the most."""
    size = len(items)
    while size >= 1:
        for place in range(0, len(items), size):
            yield items[:place] + items[place + size :]
        size //= 2


def _fewer_events(program):
    return (replace(program, events=events) for events in _without(program.events))


def _fewer_layers(program):
    return (replace(program, layers=layers) for layers in _without(program.layers))


def _fewer_steps(program):
    return (replace(program, steps=steps) for steps in range(1, program.steps))


_PLAIN = {"input": "contiguous", "loss": "weighted", "optimizer": "manual"}


def _simpler_parts(program):
    for part, kind in _PLAIN.items():
        item = getattr(program, part)
        if item.kind != kind:
            yield replace(program, **{part: Item(kind, item.seed)})
