"""Runs a training program on the CPU and on the device, as it is and uncut, and compares what it noted."""

import contextlib
import itertools

import torch

from ..compare import IGNORED, Mismatch
from ..mode import Mode, applied
from . import prelude
from .source import DTYPES, default_dtype

NOISE = {"float32": 1e-6, "float64": 1e-15}
# Few runs may happen to round as the CPU does: what is zero but for rounding was zero in ten of them.
RUNS_WITH_NOISE = 30
TOLERANCE = {"float32": 1e-4, "float64": 1e-10}


class Note:
    """What a program has seen at some place."""

    def __init__(self, name, value):
        self.name, self.text = name, value if isinstance(value, str) else ""
        self.stride = _stride(value) if isinstance(value, torch.Tensor) else None
        self.numbers = None if value is None or self.text else torch.as_tensor(value).detach().cpu().clone()

    def properties(self):
        numbers = self.numbers
        return self.stride, self.name, None if numbers is None else (numbers.dtype, tuple(numbers.shape))

    def bits(self):
        return self.text or (None if self.numbers is None else _bits(self.numbers))


def _bits(numbers):
    """One NaN is as good as another: whose sign and payload an op hands on depends on compilers, on the CPU as well."""
    parts = torch.view_as_real(numbers) if numbers.is_complex() else numbers
    if parts.is_floating_point():
        parts = parts.masked_fill(parts.isnan(), torch.nan)
    return parts.contiguous().numpy().tobytes()


def _stride(tensor):
    """Of what has elements next to each other."""
    return tuple(stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1)


def _without_order_of_hooks(notes):
    """Autograd's graph decides in which order hooks of different tensors run."""
    parts = itertools.groupby(notes, lambda note: note.name.startswith("hook of"))
    return [note for hooks, part in parts for note in (sorted(part, key=lambda note: note.name) if hooks else part)]


class Recording:
    """One run: the notes, and the error that ended it. Notes of hooks that run in a row are sorted by their names."""

    def __init__(self, program, device, mode=None, noise=0.0, noise_seed=0):
        self.notes, self.error = [], None
        prelude.NOISE, prelude.NOISE_SEED = noise, noise_seed
        functions = prelude.NoisyFunctions() if noise and program.mode.has_functions() else contextlib.nullcontext()
        with default_dtype(DTYPES[program.dtype]), applied(mode or Mode(), device), functions:
            try:
                _function(program.text)(device, lambda name, value: self.notes.append(Note(name, value)))
            except Exception as error:  # noqa: BLE001  (any kind: its kind is what is compared)
                self.error = error.with_traceback(None)
        self.notes = _without_order_of_hooks(self.notes)


def _function(text):
    scope = dict(vars(prelude))
    exec(text, scope)
    return scope["program"]


def _check_course(expected, actual, than):
    """Both ended in the same way, and looked at the same places."""
    kinds = [type(recording.error).__name__ for recording in (expected, actual)]
    if kinds[0] != kinds[1]:
        raise Mismatch("raises", f"{kinds[1]}: {actual.error}, {than} {kinds[0]}: {expected.error}")
    for wanted, got in zip(expected.notes, actual.notes, strict=False):
        kind = "stride" if wanted.properties()[1:] == got.properties()[1:] else "properties"
        if wanted.properties() != got.properties() and kind not in IGNORED:
            raise Mismatch(kind, f"{got.properties()}, {than} {wanted.properties()}")
    if len(expected.notes) != len(actual.notes):
        raise Mismatch("notes", f"{len(actual.notes)}, {than} {len(expected.notes)}")


def _difference(wanted, got):
    """The largest one, or None if only one side is a number somewhere."""
    difference = (wanted.double() - got.double()).abs()
    differs = difference.isnan() & ~(wanted.isnan() & got.isnan()) & ~(wanted == got)
    return None if differs.any() else difference.nan_to_num(0.0).max().item()


def _size(numbers):
    return numbers.double().abs().nan_to_num(0.0, posinf=0.0).max().item()


class Tolerance:
    """How far numbers may be from the CPU's: as far as they go when the last bits are changed of the data, and of
    what functions return if the device has its own."""

    def __init__(self, program, expected):
        self.program, self.expected, self.noisy = program, expected, []

    def allows(self, place, got):
        wanted = self.expected.notes[place].numbers
        if wanted is None or wanted.numel() == 0:
            return True
        difference = _difference(wanted, got)
        if difference is not None and difference <= TOLERANCE[self.program.dtype] * _size(wanted):
            return True
        effects = (self._effect(run, place, wanted) for run in range(RUNS_WITH_NOISE))
        return any(effect is None or (difference is not None and difference <= 100 * effect) for effect in effects)

    def _effect(self, run, place, wanted):
        """Of a little noise; None if it can do anything."""
        if run == len(self.noisy):
            self.noisy.append(Recording(self.program, "cpu", noise=NOISE[self.program.dtype], noise_seed=run).notes)
        notes = self.noisy[run]
        return _difference(wanted, notes[place].numbers) if len(notes) > place else None


def _check_numbers(program, expected, actual):
    tolerance = Tolerance(program, expected)
    for place, (wanted, got) in enumerate(zip(expected.notes, actual.notes, strict=True)):
        if wanted.bits() != got.bits() and not tolerance.allows(place, got.numbers):
            raise Mismatch("values", f"note {place}: {wanted.name} is {_told(got)}, on the CPU {_told(wanted)}")


def _is_near(wanted, got):
    if wanted.numbers is None or got.numbers is None:
        return False
    difference = _difference(wanted.numbers, got.numbers)
    return difference is not None and difference <= 1e-4 * _size(wanted.numbers)


def _differing_bits(expected, actual):
    """The first difference, or None."""
    for place, (wanted, got) in enumerate(zip(expected.notes, actual.notes, strict=True)):
        if wanted.bits() != got.bits():
            kind = "schedule rounding" if _is_near(wanted, got) else "schedule"
            return Mismatch(kind, f"note {place}: {wanted.name} is {_told(got)}, uncut {_told(wanted)}")
    return None


def _told(note):
    return note.text or (None if note.numbers is None else note.numbers.tolist())


def check(program, device):
    """Raises a Mismatch, unless all goes as on the CPU."""
    expected = Recording(program, "cpu")
    uncut = Recording(program, device, program.mode.uncut())
    _check_course(expected, uncut, "on the CPU")
    _check_numbers(program, expected, uncut)
    if program.mode != program.mode.uncut():
        actual = Recording(program, device, program.mode)
        _check_course(uncut, actual, "uncut")
        if _differing_bits(uncut, actual):
            _check_again(program, device, actual)


def _check_again(program, device, actual):
    """Uncut once more: the first run may have taught strides, with which kernels round otherwise."""
    mismatch = _differing_bits(Recording(program, device, program.mode.uncut()), actual)
    if mismatch:
        raise mismatch


def run(program, device="lazy"):
    """The mismatch of a program, or None."""
    try:
        check(program, device)
    except Mismatch as mismatch:
        return mismatch
    return None
