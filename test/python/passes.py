"""What the flag `disabled_passes` may name; see lowering/passes/pass.cpp."""

from torch_lazyplug.bisection import PASSES

__all__ = ["PASSES"]
