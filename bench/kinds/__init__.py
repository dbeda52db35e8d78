"""Programs by kind; each module registers its own in `registry`."""

from torch import nn


def descend(optimizer, loss, max_norm=None):
    """What nearly all of them end a step with. With `max_norm`, returns the norm of the gradients before they are
    clipped."""
    optimizer.zero_grad()
    loss.backward()
    norm = None
    if max_norm is not None:
        norm = nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], max_norm)
    optimizer.step()
    return norm
