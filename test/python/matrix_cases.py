"""Cases that need nothing but a matrix: functions that may do anything with it and return anything."""

import torch


class Cases(dict):
    """Functions of a 4x6 matrix by their names; a decorator adds them.

    Each is to run on inputs with memory, on inputs that are themselves pending, and with everything pending executed
    after each line: `helpers.STATES`.
    """

    def __call__(self, fn):
        self[fn.__name__] = fn
        return fn


def matrix():
    """The numbers from 0 to 23."""
    return torch.arange(24, dtype=torch.float32).reshape(4, 6)
