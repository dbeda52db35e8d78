"""Draws the recipe of a training program from a seed."""

import random
from dataclasses import replace

from . import events, inputs, layers, optimizers
from .program import Item, TrainingProgram
from .source import Builder, written

ATTEMPTS = 60


class Generator:
    def __init__(self, seed, mode):
        self.rng, self.seed, self.mode = random.Random(f"training {seed}"), seed, mode
        self.dtype = self.rng.choices(["float32", "float64"], [4, 1])[0]
        self.builder = Builder(self.dtype)

    def _item(self, kinds, weights=None):
        kind = self.rng.choices(list(kinds), weights)[0]
        return Item(kind, self.rng.randrange(10**6), round(self.rng.random(), 3))

    def _input(self):
        while not self.builder.begin(item := self._item(inputs.INPUTS)):
            pass
        return item

    def _layers(self):
        chosen, wanted = [], self.rng.randint(2, 9)
        for _ in range(ATTEMPTS):
            suiting = layers.suiting(self.builder.h)
            item = self._item(suiting, [layers.WEIGHTS[name] for name in suiting])
            if self.builder.add_layer(item):
                chosen.append(item)
            if len(chosen) >= wanted and self.builder.parameters():
                break
        return tuple(chosen)

    def program(self):
        rng = self.rng
        first, middle = self._input(), self._layers()
        loss, optimizer = self._item(inputs.LOSSES), self._item([*optimizers.OPTIMIZERS, "manual"])
        extra = tuple(
            self._item(events.EVENTS, events.WEIGHTS.values()) for _ in range(rng.choice([0, 1, 2, 2, 3, 4, 6]))
        )
        steps = rng.choices([1, 2, 3, 4, 5, 6, 8], [1, 4, 4, 3, 1, 1, 1])[0]
        program = TrainingProgram(self.seed, first, middle, loss, optimizer, extra, steps, self.dtype, self.mode)
        return replace(program, text=written(program, self.builder))


def generate(seed, mode):
    return Generator(seed, mode).program()
