"""Whether two errors, the CPU's and the device's, say the same."""

import re

# What an error that is raised late adds.
_ORIGIN = re.compile(r"(?: \(|\n  )(?:while running|recorded at) .*", re.DOTALL)

# Names of devices, and of types of tensors.
_NAMES = ("lazy:0", "lazy", "cpu", "CPU", "torch.FloatTensor", "torch.Float")


def error_text(error):
    """The message without the names of devices, where the error comes from, and PyTorch's own stack."""
    text = _ORIGIN.sub("", str(error).split("\nException raised from")[0])
    for name in _NAMES:
        text = text.replace(name, "*")
    return text


def say_the_same(actual, expected):
    return type(actual) is type(expected) and error_text(actual) == error_text(expected)
