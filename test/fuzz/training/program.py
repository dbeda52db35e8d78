"""What a training program is: a recipe. `source.py` writes it down as Python."""

from dataclasses import dataclass, field

from ..mode import Mode


@dataclass(frozen=True)
class Item:
    """A part. Whatever else is random about it comes from its own seed, so that it stays when others are left out."""

    kind: str
    seed: int
    place: float = 0.0  # of an event: between which layers, from 0 to 1


@dataclass(frozen=True)
class TrainingProgram:
    seed: int
    input: Item
    layers: tuple[Item, ...]
    loss: Item
    optimizer: Item
    events: tuple[Item, ...] = ()
    steps: int = 2
    dtype: str = "float32"
    mode: Mode = Mode()
    text: str = field(default="", compare=False)  # what follows from the rest
