"""torch.compile on the lazy device: one graph, captured by Dynamo, differentiated by AOTAutograd, run by the device.

    python examples/use_compile.py

The device records and compiles what it is given anyway, so torch.compile is not needed for speed. It saves the Python
time of recording, and programs that use it work.
"""

import torch
from torch import nn


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1)).to("lazy")
    x = torch.randn(4, 8, device="lazy")

    explanation = torch._dynamo.explain(model)(x)
    print(f"{explanation.graph_count} graph, {explanation.graph_break_count} graph breaks")
    assert explanation.graph_break_count == 0

    for backend in ("lazy", "aot_eager", "eager"):
        torch._dynamo.reset()
        compiled = torch.compile(model, backend=backend, fullgraph=True)
        model.zero_grad()
        compiled(x).sum().backward()
        same = torch.equal(compiled(x).cpu(), model(x).cpu())
        print(f"{backend}: equal to the uncompiled model: {same}, gradient {model[0].weight.grad.norm().item():.4f}")
        assert same


if __name__ == "__main__":
    main()
