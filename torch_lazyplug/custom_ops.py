"""What schemas of ops of other libraries do not say."""

from torch_lazyplug import _C

__all__ = ["numbers_are_inputs"]


def numbers_are_inputs(op: str) -> None:
    """Declares that no shape of what the op returns depends on its numbers (``float`` and ``Scalar`` arguments).

    Numbers of ops of other libraries are constants of a graph, because they may decide about shapes: each new one is
    compiled anew. After ``numbers_are_inputs("mylib::scale")`` they are inputs, as those of PyTorch's own ops are, so a
    number that changes from step to step costs nothing. ``"mylib::scale.out"`` names one overload only. The op need
    not be defined yet.
    """
    if op.count("::") != 1:
        raise ValueError(f"expected the name of an op, such as 'mylib::scale', got '{op}'")
    _C._ops.declare_numbers_inputs(op)
