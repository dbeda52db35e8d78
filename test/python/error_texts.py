"""Whether two errors, the CPU's and the device's, say the same."""

import re

# What an error that is raised late adds.
_ORIGIN = re.compile(r"(?: \(|\n  )(?:while running|recorded at) .*", re.DOTALL)

# Of tensors, as "torch.FloatTensor" and "lazyFloatType".
_TYPES = re.compile(r"(?:torch\.(?:lazy\.)?|lazy|CPU)([A-Z][A-Za-z]+)(?:Tensor|Type)\b")
_PRINTED_DEVICE = re.compile(r",\s+device='lazy(?::0)?'")  # that of the CPU is not printed
_DEVICES = re.compile(r"lazy(?::0)?|cpu|CPU")


def error_text(error):
    """The message without the names of devices, where the error comes from, and PyTorch's own stack."""
    text = _ORIGIN.sub("", str(error).split("\nException raised from")[0])
    text = _PRINTED_DEVICE.sub("", text)
    text = " ".join(text.split())  # lines of printed tensors are broken elsewhere
    return _DEVICES.sub("*", _TYPES.sub(r"\1", text))


def say_the_same(actual, expected):
    return type(actual) is type(expected) and error_text(actual) == error_text(expected)
