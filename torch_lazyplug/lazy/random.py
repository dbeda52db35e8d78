"""Random number generation: each device has a default generator, a (seed, offset) pair on the host.

Seeding touches no device, so it works at once, before initialisation too.
"""

from collections.abc import Iterable

import torch

from torch_lazyplug import _C
from torch_lazyplug.lazy._state import _lazy_init
from torch_lazyplug.lazy._utils import DeviceLike, _get_device_index

__all__ = [
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]


def default_generators() -> tuple[torch.Generator, ...]:
    """The default generator of every device."""
    return tuple(_C._device.default_generator(index) for index in range(_C._device.device_count()))


def _get_generator(device: DeviceLike = None) -> torch.Generator:
    """The default generator of a device."""
    return _C._device.default_generator(_get_device_index(device, optional=True))


def get_rng_state(device: DeviceLike = "lazy") -> torch.Tensor:
    """The state of the device's generator, as a ``ByteTensor`` on the CPU."""
    _lazy_init()
    return _get_generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of all devices' generators."""
    _lazy_init()
    return [generator.get_state() for generator in default_generators()]


def set_rng_state(new_state: torch.Tensor, device: DeviceLike = "lazy") -> None:
    """Sets the state of the device's generator to one that ``get_rng_state`` returned."""
    _lazy_init()
    _get_generator(device).set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Sets the states of all devices' generators."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seeds the generator of the current device."""
    _get_generator().manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds the generators of all devices."""
    for generator in default_generators():
        generator.manual_seed(int(seed))


def seed() -> None:
    """Seeds the generator of the current device with a random number."""
    _get_generator().seed()


def seed_all() -> None:
    """Seeds the generators of all devices with one random number."""
    manual_seed_all(_get_generator(0).seed())


def initial_seed() -> int:
    """The seed of the current device's generator."""
    _lazy_init()
    return _get_generator().initial_seed()
