"""FlexAttention without a compiler: as on the CPU, which computes no gradients."""

import pytest
import torch
import torch.nn.functional as F
from helpers import DEVICE, both, copies, finish_pending, work
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

LENGTH = 32


def inputs(heads=(4, 4, 4)):
    torch.manual_seed(0)
    return [torch.randn(2, count, LENGTH, 16) for count in heads]


def distance(score, batch, head, query, key):
    return score + (query - key) * (head + 1) * 0.1


def is_before(batch, head, query, key):
    return query >= key


def causal(device):
    return create_block_mask(is_before, None, None, LENGTH, LENGTH, device=device, BLOCK_SIZE=16)


OPTIONS = {
    "plain": lambda device: {},
    "scores": lambda device: {"score_mod": distance},
    "mask": lambda device: {"block_mask": causal(device)},
    "mask and scores": lambda device: {"block_mask": causal(device), "score_mod": distance, "scale": 0.5},
    "auxiliary": lambda device: {"score_mod": distance, "return_aux": AuxRequest(lse=True)},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_forward_is_that_of_the_cpu(options):
    both(lambda *qkv: flex_attention(*qkv, **options(qkv[0].device)), *inputs())


def test_heads_in_groups():
    both(lambda *qkv: flex_attention(*qkv, enable_gqa=True), *inputs((4, 2, 2)))


@pytest.mark.lazy_only
def test_gradients_are_those_of_other_attention():
    """The CPU refuses to compute them."""
    expected = [part.requires_grad_() for part in inputs()]
    F.scaled_dot_product_attention(*expected, is_causal=True).square().sum().backward()
    actual = copies(expected, DEVICE)
    mask = causal(DEVICE)
    with work() as done:
        flex_attention(*actual, block_mask=mask).square().sum().backward()
        finish_pending()
    for got, wanted in zip(actual, expected, strict=True):
        torch.testing.assert_close(got.grad.cpu(), wanted.grad)
    assert done.fallbacks == 0, done.fallback_ops


@pytest.mark.lazy_only
def test_other_devices_are_refused_as_ever():
    with pytest.raises(NotImplementedError, match="does not support backward on CPU"):
        flex_attention(*(part.requires_grad_() for part in inputs()))
    with pytest.raises(ValueError, match="meta device"):
        flex_attention(*(part.to("meta") for part in inputs()))


@pytest.mark.lazy_only
@pytest.mark.filterwarnings("ignore:torch.compile. Inductor generates no code")
def test_compiled():
    expected = flex_attention(*inputs(), score_mod=distance)
    compiled = torch.compile(flex_attention, fullgraph=True)
    torch.testing.assert_close(compiled(*copies(inputs(), DEVICE), score_mod=distance).cpu(), expected)
