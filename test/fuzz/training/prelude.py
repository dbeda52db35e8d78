from concurrent.futures import ThreadPoolExecutor

from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint  # noqa: F401  (programs use it)

from ..prelude import F, mark_step, run_at_once, torch  # noqa: F401

NOISE = 0.0  # relative; what rounding does to a program shows when its data are changed a little
NOISE_SEED = 0


def with_noise(values, seed):
    if NOISE:
        generator = torch.Generator().manual_seed(1000 * NOISE_SEED + seed)
        values *= 1 + NOISE * torch.randn(values.shape, generator=generator)
    return values


FUNCTIONS = {
    *("exp", "expm1", "log", "log1p", "sin", "cos", "tanh", "erf", "sigmoid", "silu", "gelu", "softplus"),
    *("silu_backward", "gelu_backward", "softplus_backward"),
    *("_softmax", "_log_softmax", "_log_softmax_backward_data", "logsumexp", "var", "std"),
}


class NoisyFunctions(TorchDispatchMode):
    """Adds noise to what the device computes by kernels of its own when `fusion` is 3, on this thread."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ not in FUNCTIONS:
            return result
        self.calls += 1
        return with_noise(result, self.calls)


def data(shape, seed):
    return with_noise(torch.randn(shape, generator=torch.Generator().manual_seed(seed)), seed + 1)


def parameters_of(modules):
    parameters = list(modules.parameters())
    with torch.no_grad():
        return [with_noise(parameter, seed) for seed, parameter in enumerate(parameters)]


def integers(high, shape, seed):
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


def followed(h):
    """With a gradient: without one, the CPU's backward kernel of group norms crashes on channels-last tensors."""
    return h if h.requires_grad else h.detach().requires_grad_()


class Scale(nn.Module):
    def __init__(self, *shape):
        super().__init__()
        self.weight = nn.Parameter(data(shape, 5) * 0.5 + 1)

    def forward(self, h):
        return h * self.weight


class Running(nn.Module):
    """Follows the mean of what passes, in a buffer that is written in place."""

    def __init__(self, momentum):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, h):
        with torch.no_grad():
            self.mean.mul_(1 - self.momentum).add_(h.mean(), alpha=self.momentum)
        return h - self.mean


class Halved(torch.autograd.Function):
    """Its backward pass reads what it saved through a transposed view."""

    @staticmethod
    def forward(ctx, h):
        ctx.save_for_backward(h)
        return h * h * 0.5

    @staticmethod
    def backward(ctx, gradient):
        (h,) = ctx.saved_tensors
        return (gradient.transpose(0, -1) * h.transpose(0, -1)).transpose(0, -1)


def side_loop(device, seed, steps):
    """A training loop of its own, for another thread."""
    weight = data((3, 4), seed).to(device).requires_grad_()
    h = data((2, 3), seed + 2).to(device)
    losses = []
    for _ in range(steps):
        loss = F.layer_norm(h @ weight, (4,)).tanh().pow(2).sum() + weight.std()
        (gradient,) = torch.autograd.grad(loss, weight)
        with torch.no_grad():
            weight -= 0.02 * gradient
        losses.append(loss.item())
    return [*losses, weight.detach()]


def started(function):
    """Runs in a thread; calling the result waits, and returns what the function did, or raises its error."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(function)
    pool.shutdown(wait=False)
    return future.result


def in_thread(function):
    return started(function)()


def report(note, modules, optimizer):
    for name, parameter in modules.named_parameters():
        note(name, parameter)
        note(f"{name}.grad", parameter.grad)
    for name, buffer in modules.named_buffers():
        note(name, buffer)
    for number, state in enumerate(optimizer.state.values() if optimizer else ()):
        for name, value in state.items():
            note(f"state {number} {name}", value)
