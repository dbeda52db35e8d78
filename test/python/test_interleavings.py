"""Threads, streams, events and devices in random order: nothing hangs, nothing is lost, every number is right."""

from pathlib import Path

import pytest
from helpers import run_fresh

HERE = str(Path(__file__).parent)


@pytest.mark.parametrize(("threads", "devices"), [(1, 1), (3, 1), (4, 2)], ids=["alone", "threads", "devices"])
def test_random_interleavings(threads, devices):
    run_fresh(
        f"""
        import sys
        sys.path.insert(0, {HERE!r})
        import interleavings
        for seed in range(40):
            problems = interleavings.Program(seed, {devices}).run(threads={threads}, steps=100)
            assert not problems, (seed, problems[:3])
        """,
        devices=devices,
    )


def test_exit_with_work_in_flight():
    """Prompt, and clean: no result that nobody reads is waited for."""
    run_fresh(
        """
        x = torch.ones(256, 256, device="lazy")
        for _ in range(200):
            x = x @ x / 256
        torch_lazyplug.mark_step()
        failed = torch.zeros(1000, device="lazy")[torch.full((600,), 2000, device="lazy")]
        torch_lazyplug.mark_step()
        torch_lazyplug.add_step_closure(lambda: None, run_async=True)
        torch_lazyplug.mark_step()
        y = torch.ones(8, device="lazy", requires_grad=True)
        (y * 2).sum().backward()
        """
    )
