"""How parameters follow their gradients: each function writes what to set up, and the lines after the backward pass."""

OPTIMIZERS = {}  # name: function


def _optimizer(function):
    OPTIMIZERS[function.__name__] = function
    return function


def _options(draw):
    """Not the default of `foreach`, which depends on the device: Nesterov's momentum changes gradients only with it."""
    options = f", foreach={draw.chance(0.6)}"
    return options + (", maximize=True" if draw.chance(0.1) else "")


def _decay(draw):
    return f", weight_decay={draw.choice(0, 0, 0.01)}"


@_optimizer
def sgd(draw):
    momentum = draw.choice("", "", ", momentum=0.9", ", momentum=0.9, nesterov=True", ", momentum=0.5, dampening=0.1")
    return f"torch.optim.SGD(parameters, lr={draw.choice(0.01, 0.05)}{momentum}{_decay(draw)}{_options(draw)})"


@_optimizer
def adam(draw):
    kind = draw.choice("Adam", "AdamW", "AdamW", "NAdam", "RAdam", "Adamax")
    special = ", amsgrad=True" if kind in ("Adam", "AdamW") and draw.chance(0.3) else ""
    # Epsilon is large, so that gradients that are nothing but rounding move nothing.
    return f"torch.optim.{kind}(parameters, lr=0.01, eps=0.01{special}{_decay(draw)}{_options(draw)})"


@_optimizer
def others(draw):
    kind = draw.choice("RMSprop", "Adagrad", "Adadelta")
    return f"torch.optim.{kind}(parameters, lr=0.01, eps=0.01{_decay(draw)}{_options(draw)})"


MANUAL = [
    "p.data -= 0.02 * p.grad",
    "p.data.add_(p.grad, alpha=-0.02)",
    "p.data = p.data - 0.02 * p.grad",
    "with torch.no_grad():\n    p -= 0.02 * p.grad",
    "with torch.no_grad():\n    p.copy_(p - 0.02 * p.grad)",
    "with torch.no_grad():\n    p.sub_(p.grad.mul_(0.02))",
    "with torch.no_grad():\n    p.view(-1).sub_(p.grad.reshape(-1) * 0.02)",
]
