"""Fused attention for accelerators, called by name: as scaled_dot_product_attention on the CPU."""

import pytest
import torch
from helpers import DEVICE, assert_same, work

pytestmark = pytest.mark.lazy_only

fused_attention = torch.ops.aten._scaled_dot_product_fused_attention_overrideable


def inputs(*sizes, dtype=torch.float32):
    return [torch.randn(2, 3, *size, dtype=dtype) for size in sizes]


def with_gradients(function, tensors, device):
    leaves = [tensor.detach().to(device).requires_grad_() for tensor in tensors]
    output = function(*leaves)
    output.sin().sum().backward()
    return output.detach(), [leaf.grad for leaf in leaves]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("case", ["plain", "causal", "bias", "scale"])
def test_values_and_gradients_are_those_of_the_cpu(case, dtype):
    tensors = inputs((5, 4), (6, 4), (6, 4), dtype=dtype)
    options = {"causal": {"is_causal": True}, "scale": {"scale": 0.3}}.get(case, {})
    if case == "bias":
        tensors.append(torch.randn(3, 5, 6, dtype=dtype))

    def on_cpu(query, key, value, bias=None):
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, bias, **options)

    def on_device(query, key, value, bias=None):
        return fused_attention(query, key, value, bias, **options)[0]

    expected = with_gradients(on_cpu, tensors, "cpu")
    with work() as done:
        actual = with_gradients(on_device, tensors, DEVICE)
    assert done.fallbacks == 0
    tolerance = 2e-2 if dtype is torch.bfloat16 else 1e-5
    assert_same(actual, expected, rtol=tolerance, atol=tolerance)


def test_all_results():
    query, key, value = (tensor.to(DEVICE) for tensor in inputs((5, 4), (6, 4), (6, 7)))
    results = fused_attention(query, key, value, return_debug_mask=True)
    scores = query @ key.transpose(-2, -1) / 2
    assert results[0].shape == (2, 3, 5, 7)
    torch.testing.assert_close(results[1], scores.logsumexp(-1))
    assert results[4:6] == (5, 6)
    torch.testing.assert_close(results[-1], scores.softmax(-1))


def test_the_backward_pass_drops_what_the_forward_pass_dropped():
    tensors = [tensor.to(DEVICE).requires_grad_() for tensor in inputs((5, 4), (6, 4), (6, 4), dtype=torch.float64)]

    def function(query, key, value):
        torch.lazy.manual_seed(3)
        return fused_attention(query, key, value, dropout_p=0.3)[0]

    assert torch.autograd.gradcheck(function, tensors)
    assert not torch.equal(function(*tensors), fused_attention(*tensors)[0])


@pytest.mark.parametrize("needs_weights", [False, True])
@pytest.mark.parametrize("size", [1, 16])
def test_weights_that_nobody_asks_for_are_none(needs_weights, size):
    torch.manual_seed(0)
    layer = torch.nn.MultiheadAttention(64, 4, batch_first=True).eval()
    x = torch.randn(size, 8, 64)
    results = {}
    for device in ("cpu", DEVICE):
        on_device = layer.to(device)
        with torch.no_grad():
            results[device] = on_device(*[x.to(device)] * 3, need_weights=needs_weights)
    (output, weights), (expected, expected_weights) = results[DEVICE], results["cpu"]
    assert (weights is None) == (expected_weights is None) == (not needs_weights)
    assert_same([output] + [weights] * needs_weights, [expected] + [expected_weights] * needs_weights, "", 1e-5, 1e-6)
