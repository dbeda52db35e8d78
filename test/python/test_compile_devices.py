"""Compiled code that changes the current device: one graph, and tensors on the devices that eager puts them on."""

import pytest
from helpers import run_fresh

pytestmark = pytest.mark.lazy_only


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "lazy"])
def test_device_contexts_in_compiled_code(backend):
    run_fresh(
        f"""
        def function(x):
            with torch.lazy.device(1):
                made = [torch.ones(2, device="lazy"), torch.rand(2, device=torch.device("lazy")),
                        torch.tensor([1.0], device="lazy"), torch.ones(2).to("lazy"), torch.ones(2).lazy(),
                        torch.ones(2).to(device="lazy", dtype=torch.float64), x.new_ones(2)]
                with torch.lazy.device("lazy:0"):
                    made.append(torch.ones(2, device="lazy"))
                with torch.lazy.device(None):
                    made.append(torch.ones(2, device="lazy"))
                with torch.lazy.device(-1):
                    made.append(torch.ones(2, device="lazy"))
                made.append(torch.ones(2, device="lazy"))
            with torch.accelerator.device_index(1):
                made.append(torch.ones(2, device="lazy"))
            with torch.lazy.device(None):
                made.append(torch.ones(2, device="lazy"))
            return [x + 1, torch.zeros(2, device="lazy"), *made]

        def what(tensors):
            return [(tensor.device, tensor.dtype, tensor.shape) for tensor in tensors]

        compiled = torch.compile(function, backend="{backend}", fullgraph=True)
        x = torch.ones(2, device="lazy:0")
        for current in (0, 1, 0):
            torch.lazy.set_device(current)
            assert what(compiled(x)) == what(function(x)), (current, what(compiled(x)), what(function(x)))
            assert torch.lazy.current_device() == current
        assert torch.equal(compiled(x)[0], function(x)[0])
        """,
        devices=2,
    )


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_training_in_a_device_context(backend):
    run_fresh(
        f"""
        def loss(weight):
            with torch.lazy.device(1):
                x = torch.arange(4.0, device="lazy")
                return (weight * x).sin().sum()

        weight = torch.ones(4, device="lazy:1", requires_grad=True)
        torch.compile(loss, backend="{backend}", fullgraph=True)(weight).backward()
        expected = torch.arange(4.0) * torch.arange(4.0).cos()
        torch.testing.assert_close(weight.grad.cpu(), expected)
        """,
        devices=2,
    )
