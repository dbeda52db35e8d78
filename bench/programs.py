"""Small programs of many kinds, as people write them: how fast are they, and do they compute the same?

    python bench/programs.py --filter 'GAN|DQN' --rounds 5
    python bench/programs.py --threads 1 eager lazy lazy:LAZYPLUG_CHUNK_NODES=64

A step takes about half a millisecond to ten on a CPU, and reads what its author would read.
"""

import sys

import contest
from kinds import classical, generative, numerical, reinforcement, sequences, training  # noqa: F401  (register cases)

if __name__ == "__main__":
    sys.exit(contest.main(["programs"], __doc__))
