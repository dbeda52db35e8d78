"""An op of your own: without anything special it runs on the device at once, with a fake implementation it is recorded.

python examples/custom_op.py
"""

import numpy as np
import torch

from torch_lazyplug import metrics


@torch.library.custom_op("examples::smooth", mutates_args=(), device_types="cpu")
def smooth(signal: torch.Tensor, width: int) -> torch.Tensor:
    # Any code that PyTorch cannot look into.
    kernel = np.ones(width, dtype=np.float32) / width
    return torch.from_numpy(np.convolve(signal.numpy(), kernel, mode="same"))


@smooth.register_fake
def _(signal, width):
    return torch.empty_like(signal)


def backward(ctx, grad):
    return smooth(grad, ctx.width), None


def setup_context(ctx, inputs, output):
    ctx.width = inputs[1]


smooth.register_autograd(backward, setup_context=setup_context)


def main():
    signal = torch.arange(8.0)
    on_device = signal.to("lazy").requires_grad_()
    result = smooth(on_device * 2, 3)
    result.sum().backward()
    print(f"smoothed: {result.tolist()}")
    print(f"gradient: {on_device.grad.tolist()}")
    print(f"ran on the CPU at once: {[op for op in metrics.executed_fallback_ops() if 'smooth' in op] or 'nothing'}")
    assert torch.equal(result.detach().cpu(), smooth(signal * 2, 3))


if __name__ == "__main__":
    main()
