"""Short programs and training programs, behind the same functions."""

from . import emit, execute, generate, shrink
from .training import emit as training_emit
from .training import execute as training_execute
from .training import generate as training_generate
from .training import shrink as training_shrink
from .training.program import TrainingProgram


def _of(program, short, training):
    return training if isinstance(program, TrainingProgram) else short


def make(seed, campaign):
    trains, mode = campaign.draw(seed)
    return (training_generate if trains else generate).generate(seed, mode)


def run(program, device):
    """The mismatch of a program, or None."""
    return _of(program, execute, training_execute).run(program, device)


def shrink_with(fails, program, budget):
    """A smaller program for which `fails` is true too."""
    return _of(program, shrink, training_shrink).Shrinker(fails, budget).shrink(program)


def text(program):
    return _of(program, emit, training_emit).text(program)


def script(program, mismatch=None):
    """The program as a file that needs no other."""
    return _of(program, emit, training_emit).script(program, mismatch)
