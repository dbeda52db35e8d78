"""Programs by kind; each module registers its own in `registry`."""


def descend(optimizer, loss):
    """What nearly all of them end a step with."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
