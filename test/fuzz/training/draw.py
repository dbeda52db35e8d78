"""What a part of a program draws from."""

import random


class Draw:
    """The random numbers of one item, and what it wants to have set up. `builder` knows what is there already."""

    def __init__(self, seed, builder):
        self.rng, self.builder, self.setup = random.Random(seed), builder, []

    def choice(self, *options):
        return self.rng.choice(options)

    def chance(self, probability):
        return self.rng.random() < probability

    def number(self, low, high):
        return self.rng.randint(low, high)

    def size(self):
        return self.rng.choice([1, 2, 3, 4, 4, 5, 6, 8])

    def module(self, text):
        """The name of a new module, which has the same parameters wherever it is made."""
        name = self.builder.fresh("m")
        self.setup.append(f"torch.manual_seed({self.rng.randrange(1000)}); {name} = {text}.to(device)")
        return name

    def tensor(self, text):
        """The name of a new tensor that is on the device from the beginning."""
        name = self.builder.fresh("c")
        self.setup.append(f"{name} = {text}")
        return name

    def data(self, shape):
        return self.tensor(f"data({tuple(shape)}, {self.rng.randrange(1000)}).to(device)")

    def pick(self, items):
        """One of them, or None."""
        return self.rng.choice(items) if items else None
