"""torch.compile, FakeTensor, torch.export, custom ops."""

import torch
from torch import nn

from parity import probe

COMPILE, EXTEND = "torch.compile and FakeTensor", "Extending"


def compiled(d, backend):
    torch._dynamo.reset()
    model, x = nn.Sequential(nn.Linear(4, 4), nn.GELU()).to(d), torch.rand(2, 4, device=d)
    y = torch.compile(model, backend=backend, fullgraph=True)(x)
    y.sum().backward()
    assert y.device.type == d and model[0].weight.grad.device.type == d
    torch.testing.assert_close(y.detach().cpu(), model(x).detach().cpu())


@probe(COMPILE, "torch.compile(model, backend='eager', fullgraph=True)")
def compile_eager(d, m):
    compiled(d, "eager")


@probe(COMPILE, "torch.compile(model, backend='aot_eager', fullgraph=True)")
def compile_aot(d, m):
    compiled(d, "aot_eager")


@probe(COMPILE, "torch.compile(model)", openreg=False)
def compile_default(d, m):
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled(d, "inductor")


@probe(COMPILE, "torch.cuda.stream and events inside torch.compile", openreg=False)
def compile_streams(d, m):
    def function(x):
        with m.stream(stream):
            y = x * 2
        m.current_stream().wait_stream(stream)
        return y

    torch._dynamo.reset()
    stream = m.Stream()
    assert torch.compile(function, backend="aot_eager", fullgraph=True)(torch.ones(1, device=d)).item() == 2


@probe(COMPILE, "with torch.cuda.device(0): inside torch.compile", openreg=False)
def compile_devices(d, m):
    def function(x):
        with m.device(0):
            return x + torch.ones(1, device=d)

    torch._dynamo.reset()
    assert torch.compile(function, backend="aot_eager", fullgraph=True)(torch.ones(1, device=d)).item() == 2


@probe(COMPILE, "FakeTensorMode().from_tensor(x)")
def fake(d, m):
    from torch._subclasses.fake_tensor import FakeTensorMode

    x = torch.ones(2, 3, device=d).t()
    with FakeTensorMode() as mode:
        y = mode.from_tensor(x) @ torch.empty(2, 5, device=d)
    assert (y.device, y.shape) == (x.device, (3, 5))


@probe(COMPILE, "torch.export.export(model, (x,))")
def export(d, m):
    x = torch.ones(1, 2, device=d)
    assert torch.export.export(nn.Linear(2, 2).to(d), (x,)).module()(x).device.type == d


@probe(COMPILE, "torch.jit.script(f), torch.jit.trace(f, x)")
def jit(d, m):
    x = torch.ones(2, device=d)
    assert torch.jit.trace(lambda t: t * 2, x)(x).tolist() == [2, 2]


@probe(COMPILE, "torch.fx.symbolic_trace(model)")
def fx(d, m):
    assert torch.fx.symbolic_trace(nn.Linear(2, 2).to(d))(torch.ones(1, 2, device=d)).device.type == d


@probe(COMPILE, "torch.fx.experimental.proxy_tensor.make_fx(f)(x)")
def make_fx(d, m):
    from torch.fx.experimental.proxy_tensor import make_fx

    x = torch.ones(2, device=d)
    assert make_fx(lambda t: t.sin() + 1)(x)(x).device.type == d


# Extending -----------------------------------------------------------------------------------------------------------


@probe(EXTEND, "@torch.library.custom_op")
def custom_op(d, m):
    @torch.library.custom_op("parity::double", mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    assert double(torch.ones(2, device=d)).tolist() == [2, 2]


@probe(EXTEND, "@torch.library.custom_op(..., device_types='cuda')")
def device_op(d, m):
    @torch.library.custom_op("parity::triple", mutates_args=(), device_types=d)
    def triple(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    assert triple(torch.ones(2, device=d)).tolist() == [3, 3]


@probe(EXTEND, "class MyTensor(torch.Tensor)")
def subclass(d, m):
    class MyTensor(torch.Tensor):
        pass

    x = torch.ones(2, device=d).as_subclass(MyTensor)
    assert type(x + 1) is MyTensor and (x + 1).sum().item() == 4


@probe(EXTEND, "TorchDispatchMode, TorchFunctionMode")
def modes(d, m):
    from torch.utils._python_dispatch import TorchDispatchMode

    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    seen = []
    with Log():
        torch.ones(2, device=d) + 1
    assert "aten.add.Tensor" in seen
