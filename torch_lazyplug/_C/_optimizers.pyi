from collections.abc import Sequence

import torch

def read_group(
    group: list[torch.Tensor],
    state: dict[torch.Tensor, dict[str, object]],
    names: Sequence[str],
    params: list[torch.Tensor],
    grads: list[torch.Tensor],
    kept: Sequence[list[torch.Tensor]],
    /,
) -> bool: ...
def adam(
    params: list[torch.Tensor],
    grads: list[torch.Tensor],
    exp_avgs: list[torch.Tensor],
    exp_avg_sqs: list[torch.Tensor],
    steps: list[torch.Tensor],
    lr: float,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
    decoupled_weight_decay: bool,
    /,
) -> bool: ...
def sgd(
    params: list[torch.Tensor],
    grads: list[torch.Tensor],
    buffers: list[torch.Tensor],
    lr: float,
    momentum: float,
    dampening: float,
    weight_decay: float,
    maximize: bool,
    /,
) -> bool: ...
