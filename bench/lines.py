"""Single lines and short loops, each of which shows one cost."""

import itertools

import torch
from models import Decoder
from registry import add, case
from waiting import waiter

# Recording -----------------------------------------------------------------------------------------------------------


@case("100 adds of 4x4, dropped")
def dropped_adds(device):
    """On a device that records, nothing is computed: the cost of recording."""
    a, b = (torch.rand(4, 4).to(device) for _ in range(2))

    def step():
        for _ in range(100):
            c = a + b
        return c

    return step


@case("100 adds of 4x4, chained")
def chained_adds(device):
    """Each result is needed by the next, from step to step."""
    c, b = (torch.rand(4, 4).to(device) for _ in range(2))

    def step():
        nonlocal c
        for _ in range(100):
            c = c + b

    return step


@case("100 tiny ops, read")
def tiny_ops(device):
    a = torch.rand(16).to(device)

    def step():
        x = a
        for _ in range(25):
            x = (x * 2).sub(a).relu() + 0.5
        return x.sum().item()

    return step


@case("backward of one mul")
def backward_of_mul(device):
    """The gradient is dropped: again the cost of recording."""
    a, b = torch.tensor(2.0, device=device, requires_grad=True), torch.tensor(3.0, device=device)

    def step():
        (a * b).backward()
        a.grad = None

    return step


@case("item() of a short step")
def short_step(device):
    a = torch.rand(16).to(device)
    return lambda: (a * 2 + 1).sum().item()


# Kernels and memory --------------------------------------------------------------------------------------------------


def chain_of_six(floats, device):
    a, wait = torch.randn(floats).to(device), waiter(device)

    def step():
        y = ((a * 2 + 1).sigmoid() * a).tanh() * a
        wait()
        return y

    return step


for title, power in (("4 K", 12), ("64 K", 16), ("1 M", 20), ("16 M", 24)):
    make = lambda device, power=power: chain_of_six(2**power, device)  # noqa: E731
    add(f"chain of 6 on {title} floats", make, warm_up=6 if power == 24 else 60)


@case("20 cheap ops on 1 M floats", warm_up=20)
def cheap_ops(device):
    a, wait = torch.rand(2**20).to(device), waiter(device)

    def step():
        x = a
        for _ in range(4):
            x = torch.where(x > 0.5, x * 0.5, (x + a).sqrt())
        wait()
        return x

    return step


@case("softmax, GELU, sum of 1024x1024", warm_up=20)
def softmax_gelu_sum(device):
    a = torch.randn(1024, 1024).to(device)
    return lambda: torch.nn.functional.gelu(a.softmax(-1)).sum().item()


def adamw_step(sizes, device):
    """Of parameters whose gradients stay. The CPU would loop unless told to use foreach."""
    parameters = [torch.randn(size).to(device).requires_grad_() for size in sizes]
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape).to(device)
    return torch.optim.AdamW(parameters, foreach=True).step


@case("AdamW over 70 small tensors", rivals=("fused",))
def many_small_parameters(device):
    return adamw_step(range(16, 86), device)


@case("AdamW over 10 M parameters in 150 tensors", rivals=("fused",))
def many_parameters(device):
    return adamw_step([66_667] * 150, device)


# Sizes that change ---------------------------------------------------------------------------------------------------


def decode(model, device, tokens, before):
    """Greedily, after some tokens."""
    cache = model.empty_cache(1, device, before)
    token = torch.zeros(1, 1, dtype=torch.long, device=device)
    for _ in range(tokens):
        logits, cache = model(token, cache)
        token = logits.argmax(-1)
        token.item()


@case("decoding 32 tokens, sizes come again", warm_up=20)
def decoding(device):
    model, prompts = Decoder().to(device).eval(), itertools.cycle(range(1, 60, 7))

    @torch.no_grad()
    def step():
        decode(model, device, 32, next(prompts))

    return step


@case("decoding 200 tokens, new sizes", warm_up=2, block=1)
def decoding_new_sizes(device):
    model, prompts = Decoder().to(device).eval(), itertools.count(1, 200)

    @torch.no_grad()
    def step():
        decode(model, device, 200, next(prompts))

    return step


@case("200 new shapes", warm_up=4, block=1)
def new_shapes(device):
    """Shapes that the process has not seen."""
    columns = itertools.count(1)

    def step():
        for size in itertools.islice(columns, 200):
            x = torch.ones(2, 3, size, device=device)
            ((x * 2 + 1).relu() / 3).sum().item()

    return step
