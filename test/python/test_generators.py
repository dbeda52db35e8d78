"""Random number generators of the device: seeds, states, copies."""

import pickle

import pytest
import torch
from helpers import run_fresh, work

pytestmark = pytest.mark.lazy_only


@pytest.mark.smoke
@pytest.mark.parametrize("manual_seed", [torch.manual_seed, torch.lazy.manual_seed, torch.lazy.manual_seed_all])
def test_seeds_make_random_numbers_repeatable(manual_seed):
    manual_seed(5)
    first = [torch.rand(4, device="lazy").tolist() for _ in range(2)]
    assert torch.lazy.initial_seed() == 5
    manual_seed(5)
    assert [torch.rand(4, device="lazy").tolist() for _ in range(2)] == first
    assert first[0] != first[1]
    manual_seed(6)
    assert torch.rand(4, device="lazy").tolist() != first[0]


@pytest.mark.own_schedule("counts cuts")
def test_state_round_trips_without_running_anything():
    with work() as done:
        y = torch.ones(2, device="lazy") + 1
        state = torch.lazy.get_rng_state()
        first = torch.rand(4, device="lazy")
        torch.lazy.set_rng_state(state)
        second = torch.rand(4, device="lazy")
    assert done.flushes == 0
    assert torch.equal(first.cpu(), second.cpu())
    assert y.tolist() == [2, 2]
    assert state.device.type == "cpu"
    assert state.dtype == torch.uint8


def test_own_generator():
    generator = torch.Generator("lazy").manual_seed(3)
    assert generator.device == torch.device("lazy:0")
    first = torch.rand(4, device="lazy", generator=generator)
    generator.manual_seed(3)
    before = torch.lazy.get_rng_state()
    assert torch.equal(torch.rand(4, device="lazy", generator=generator).cpu(), first.cpu())
    assert torch.equal(torch.lazy.get_rng_state(), before)
    with pytest.raises(RuntimeError, match="device type for generator"):
        torch.rand(4, device="lazy", generator=torch.Generator())


def test_generator_can_be_pickled():
    generator = torch.Generator("lazy").manual_seed(3)
    torch.rand(4, device="lazy", generator=generator)
    restored = pickle.loads(pickle.dumps(generator))
    assert restored.device == generator.device
    assert torch.equal(restored.get_state(), generator.get_state())
    with pytest.raises(RuntimeError, match="16 bytes, but got 3"):
        restored.set_state(torch.zeros(3, dtype=torch.uint8))


def test_generators_that_share_their_state():
    generator = torch.Generator("lazy").manual_seed(3)
    sharing = generator.graphsafe_get_state()
    first, second = (torch.rand(4, device="lazy", generator=generator).tolist() for _ in range(2))
    assert sharing.get_offset() == generator.get_offset() == 2
    sharing.manual_seed(3)
    assert torch.rand(4, device="lazy", generator=generator).tolist() == first
    other = torch.Generator("lazy")
    other.graphsafe_set_state(generator)
    assert torch.rand(4, device="lazy", generator=other).tolist() == second
    with pytest.raises(RuntimeError, match="generator of a lazy device, but got one for cpu"):
        generator.graphsafe_set_state(torch.Generator())


def test_generator_of_every_device():
    run_fresh(
        """
        assert [g.device.index for g in torch.lazy.default_generators] == [0, 1]
        torch.lazy.seed_all()
        assert torch.equal(*torch.lazy.get_rng_state_all())
        states = torch.lazy.get_rng_state_all()
        torch.lazy.set_device(1)
        torch.lazy.seed()
        torch.lazy.set_rng_state_all(states)
        assert torch.equal(*torch.lazy.get_rng_state_all())
        with torch.random.fork_rng(devices=[0, 1]):
            torch.manual_seed(1)
        assert torch.equal(torch.lazy.get_rng_state(1), states[1])
        """,
        devices=2,
    )


def test_seed_before_initialization():
    run_fresh(
        """
        torch.manual_seed(7)
        assert not torch.lazy.is_initialized()
        first = torch.rand(4, device="lazy").tolist()
        torch.manual_seed(7)
        assert torch.rand(4, device="lazy").tolist() == first
        """
    )
