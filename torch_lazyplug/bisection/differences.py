"""What two tensors, or two numbers, differ in."""

import dataclasses
from typing import Any

import torch
from torch.testing._comparison import default_tolerances

__all__ = ["Difference", "Tolerances", "describe_tensor", "find_difference"]

_NUMBERS = (bool, int, float, complex)


@dataclasses.dataclass(frozen=True)
class Tolerances:
    """``|actual - expected| <= atol + rtol * |expected|`` is equal; None: what ``torch.testing.assert_close`` takes."""

    rtol: float | None = None
    atol: float | None = None

    def of(self, dtype: torch.dtype) -> tuple[float, float]:
        """``rtol`` and ``atol`` for results of this dtype."""
        rtol, atol = default_tolerances(dtype)
        return (rtol if self.rtol is None else self.rtol), (atol if self.atol is None else self.atol)


@dataclasses.dataclass(frozen=True)
class Difference:
    """Between the CPU's value and the device's.

    ``where`` names the value, ``text`` says what differs. If elements do, ``mismatched`` is how many, and ``greatest``
    the greatest absolute difference among them (NaN if one side is NaN or infinite and the other is not).
    """

    where: str
    text: str
    mismatched: int = 0
    greatest: float | None = None

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


def describe_tensor(tensor: torch.Tensor) -> str:
    """Dtype, sizes, and strides of a tensor that has them, such as ``float32[2, 3] strides (3, 1)``."""
    text = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
    return f"{text} strides {tensor.stride()}" if tensor.layout is torch.strided else f"{text} {tensor.layout}"


def find_difference(
    where: str, actual: Any, expected: Any, tolerances: Tolerances, with_values: bool = True
) -> Difference | None:
    """What the device's value ``actual`` differs in from the CPU's; None if it is equal. Tensors are on the CPU.

    NaN equals NaN. Floating-point numbers are compared as float32, since nobody knows what they were read from. Values
    of other types are equal if their types are. Without ``with_values``, only types, shapes and dtypes are compared.
    """
    if type(actual) is not type(expected):
        return Difference(where, f"{_describe(actual)} instead of {_describe(expected)}")
    if isinstance(actual, torch.Tensor):
        return _between_kinds(where, actual, expected) or (
            _between_tensors(where, actual, expected, tolerances) if with_values else None
        )
    if not with_values:
        return None
    if isinstance(actual, _NUMBERS):
        dtype = {float: torch.float32, complex: torch.complex64}.get(type(actual), torch.int64)
        return _between_numbers(where, actual, expected, tolerances.of(dtype))
    if isinstance(actual, str) and actual != expected:
        return Difference(where, f"{actual!r} instead of {expected!r}")
    return None


def _describe(value: Any) -> str:
    return describe_tensor(value) if isinstance(value, torch.Tensor) else f"{type(value).__name__} {value!r}"


def _between_numbers(where: str, actual: Any, expected: Any, bounds: tuple[float, float]) -> Difference | None:
    if actual == expected or (actual != actual and expected != expected):
        return None
    distance = abs(actual - expected)
    if distance <= bounds[1] + bounds[0] * abs(expected):
        return None
    return Difference(where, f"{actual!r} instead of {expected!r}", 1, float(distance))


def _between_kinds(where: str, actual: torch.Tensor, expected: torch.Tensor) -> Difference | None:
    if actual.is_nested or expected.is_nested:
        return None  # has no shape to speak of
    kinds = [(tensor.dtype, tensor.shape, tensor.layout) for tensor in (actual, expected)]
    if kinds[0] == kinds[1]:
        return None
    return Difference(where, f"{describe_tensor(actual)} instead of {describe_tensor(expected)}")


def _between_tensors(
    where: str, actual: torch.Tensor, expected: torch.Tensor, tolerances: Tolerances
) -> Difference | None:
    if actual.is_nested:
        return None
    a, e = _elements(actual), _elements(expected)
    if a.is_floating_point() or a.is_complex():
        rtol, atol = tolerances.of(expected.dtype)
        wrong = ~torch.isclose(a, e, rtol=rtol, atol=atol, equal_nan=True)
    else:
        wrong = a != e
    return _between_elements(where, a[wrong], e[wrong], a.numel()) if wrong.any() else None


def _elements(tensor: torch.Tensor) -> torch.Tensor:
    """Of a tensor of any layout; floating-point numbers in float64 or complex128, which hold each of them exactly."""
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    elif tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.to(torch.float64) if tensor.is_floating_point() else tensor


def _between_elements(where: str, actual: torch.Tensor, expected: torch.Tensor, total: int) -> Difference:
    distances = (_in_float(actual) - _in_float(expected)).abs()
    worst = int(distances.argmax())  # a NaN counts as the greatest
    values = f"{actual[worst].item()!r} instead of {expected[worst].item()!r}"
    greatest = float(distances[worst])
    text = f"{len(actual)} of {total} elements differ, the greatest difference is {greatest:.6g}: {values}"
    return Difference(where, text, len(actual), greatest)


def _in_float(elements: torch.Tensor) -> torch.Tensor:
    return elements if elements.is_complex() else elements.to(torch.float64)
