from collections.abc import Sequence

import torch

def read_group(
    group: object,
    state: object,
    names: Sequence[str],
    params: list[torch.Tensor],
    grads: list[torch.Tensor],
    kept: Sequence[list[torch.Tensor]],
    /,
) -> bool: ...
def step(name: str, lists: tuple[object, ...], options: dict[str, object], /) -> bool: ...
