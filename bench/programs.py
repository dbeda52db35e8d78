"""Small programs of many kinds, as people write them: how fast are they, and do they compute the same?

A step takes about half a millisecond to ten on a CPU, and reads what its author would read.
"""

from kinds import (  # noqa: F401  (register cases)
    classical,
    generative,
    numerical,
    reinforcement,
    sequences,
    training,
    vision,
)
