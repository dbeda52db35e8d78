"""The functions of ``torch`` that make tensors from nothing: those that take a ``device`` and no tensor."""

import torch

__all__ = ["tensor_factory_functions"]

_NAMES = (
    "_cudnn_init_dropout_state",
    "_efficientzerotensor",
    "_empty_affine_quantized",
    "arange",
    "bartlett_window",
    "blackman_window",
    "empty",
    "empty_permuted",
    "empty_strided",
    "eye",
    "from_file",
    "full",
    "hamming_window",
    "hann_window",
    "kaiser_window",
    "linspace",
    "logspace",
    "ones",
    "rand",
    "randint",
    "randn",
    "randperm",
    "range",
    "scalar_tensor",
    "tensor",
    "tril_indices",
    "triu_indices",
    "zeros",
)

tensor_factory_functions = tuple(getattr(torch, name) for name in _NAMES if hasattr(torch, name))
