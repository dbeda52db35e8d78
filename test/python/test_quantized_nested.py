"""Quantized, nested and zero tensors, and conjugate results."""

import copy
import pickle

import pytest
import torch
import torch.autograd.forward_ad as fwAD
from composed import same_on_both
from helpers import DEVICE, both, work


def numbers(device):
    return torch.linspace(-1, 1, 12).reshape(3, 4).to(device)


def per_channel(device):
    scales, zero_points = torch.tensor([0.1, 0.2, 0.3], device=device), torch.tensor([0, 1, 2], device=device)
    return torch.quantize_per_channel(numbers(device), scales, zero_points, 0, torch.qint8)


def write_row(q):
    copied = q.clone()
    copied[0].fill_(0.7)
    return copied


QUANTIZED = {
    "itself": lambda q: q,
    "dequantize": lambda q: q.dequantize(),
    "int_repr": lambda q: q.int_repr(),
    "scale": lambda q: (q.q_scale(), q.q_zero_point()),
    "scales": lambda q: (q.q_per_channel_scales(), q.q_per_channel_zero_points()),
    "view": lambda q: q.view(4, 3),
    "transpose": lambda q: q.t(),
    "select": lambda q: q[1],
    "slice": lambda q: q[:, 1:3],
    "contiguous": lambda q: q.t().contiguous(),
    "relu": lambda q: q.relu(),
    "clone": lambda q: q.clone(),
    "cat": lambda q: torch.cat([q, q]),
    "max": lambda q: q.max(),
    "mean": lambda q: q.mean(1),
    "eq": lambda q: q == q,
    "topk": lambda q: q.topk(2),
    "index_select": lambda q: q.index_select(0, torch.tensor([0, 2], device=q.device)),
    "pool": lambda q: torch.nn.functional.max_pool2d(q[None, None], 2),
    "interpolate": lambda q: torch.nn.functional.interpolate(q[None, None], scale_factor=2),
    "add": lambda q: torch.ops.quantized.add(q, q, 0.2, 1),
    "fill_": lambda q: q.clone().fill_(0.5),
    "copy_": lambda q: q.clone().copy_(q),
    "copy_floats_": lambda q: q.clone().copy_(torch.ones(3, 4, device=q.device)),
    "write_row": write_row,
    "cpu_and_back": lambda q: q.cpu().to(q.device),
    "deepcopy": lambda q: copy.deepcopy(q),
    "pickle": lambda q: pickle.loads(pickle.dumps(q)),
}
QUANTIZERS = {
    "signed": lambda device: torch.quantize_per_tensor(numbers(device), 0.1, 3, torch.qint8),
    "unsigned": lambda device: torch.quantize_per_tensor(numbers(device), 0.1, 3, torch.quint8),
    "per_channel": per_channel,
}


@pytest.mark.parametrize("make", QUANTIZERS)
@pytest.mark.parametrize("name", QUANTIZED)
def test_quantized(name, make):
    same_on_both(lambda device: QUANTIZED[name](QUANTIZERS[make](device)))


@pytest.mark.parametrize(
    "make",
    (
        lambda device: torch.quantize_per_tensor_dynamic(numbers(device), torch.quint8, False),
        lambda device: torch.quantize_per_tensor(
            numbers(device), torch.tensor(0.1, device=device), torch.tensor(0, device=device), torch.qint8
        ),
        lambda device: torch._make_per_tensor_quantized_tensor(torch.ones(3, dtype=torch.int8, device=device), 0.1, 0),
        lambda device: torch.fake_quantize_per_tensor_affine(numbers(device), 0.1, 0, -128, 127),
    ),
)
def test_quantizing(make):
    same_on_both(make)


# Nested --------------------------------------------------------------------------------------------------------------


def nested(device, **options):
    rows = [torch.arange(6.0).reshape(2, 3), torch.arange(3.0).reshape(1, 3)]
    return torch.nested.nested_tensor(rows, device=device, **options)


NESTED = {
    "itself": lambda n: n,
    "mul": lambda n: n * 2,
    "add": lambda n: n + n,
    "neg": lambda n: -n,
    "to_padded": lambda n: n.to_padded_tensor(0),
    "unbind": lambda n: n.unbind(),
    "select": lambda n: n[0],
    "size": lambda n: n.size(0),
    "size_of_ragged": lambda n: n.size(1),
    "linear": lambda n: torch.nn.functional.linear(n, torch.ones(2, 3, device=n.device)),
    "softmax": lambda n: n.softmax(-1),
    "layer_norm": lambda n: torch.nn.functional.layer_norm(n, (3,)),
    "matmul": lambda n: n.matmul(n.transpose(1, 2)),
    "transpose": lambda n: n.transpose(1, 2),
    "relu_": lambda n: n.clone().relu_(),
    "fill_": lambda n: n.clone().fill_(2),
    "ones_like": lambda n: torch.ones_like(n),
    "sum": lambda n: n.sum(-1, keepdim=True),
    "double": lambda n: n.double(),
    "attention": lambda n: torch.nn.functional.scaled_dot_product_attention(*[n.unsqueeze(1)] * 3),
    "cat": lambda n: torch.cat([n, n]),
    "cpu_and_back": lambda n: n.cpu().to(n.device),
}
JAGGED = {
    "values": lambda n: n.values(),
    "mul": lambda n: (n * 2).values(),
    "unbind": lambda n: n.unbind(),
    "to_padded": lambda n: n.to_padded_tensor(0.0),
    "sum": lambda n: n.sum(1),
    "linear": lambda n: torch.nn.functional.linear(n, torch.ones(2, 3, device=n.device)).values(),
    "layer_norm": lambda n: torch.nn.functional.layer_norm(n, (3,)).values(),
}


@pytest.mark.parametrize("name", NESTED)
def test_nested(name):
    same_on_both(lambda device: NESTED[name](nested(device)))


@pytest.mark.parametrize("name", JAGGED)
def test_jagged(name):
    same_on_both(lambda device: JAGGED[name](nested(device, layout=torch.jagged)))


def test_gradients_through_nested_tensors():
    def call(device):
        rows = [torch.ones(n, 3, device=device, requires_grad=True) for n in (2, 1)]
        (torch.nested.as_nested_tensor(rows) * 2).to_padded_tensor(0).sum().backward()
        return [row.grad for row in rows]

    same_on_both(call)


def test_transformer_encoder_with_padding():
    def call(device):
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        model = torch.nn.TransformerEncoder(layer, 1).to(device).eval()
        mask = torch.tensor([[False, False, True], [False, False, False]], device=device)
        with torch.no_grad():
            return model(torch.linspace(0, 1, 48).reshape(2, 3, 8).to(device), src_key_padding_mask=mask)

    same_on_both(call)


# Zero tensors --------------------------------------------------------------------------------------------------------

ZERO = {
    "flag": lambda z: z._is_zerotensor(),
    "add": lambda z: z + 1,
    "mul": lambda z: (z * 3)._is_zerotensor(),
    "view": lambda z: z[0]._is_zerotensor(),
    "clone": lambda z: z.clone(),
    "item": lambda z: z[0, 0].item(),
    "read": lambda z: torch.ones(2, 2, device=z.device).copy_(z),
    "mm": lambda z: z @ z,
    "add_": lambda z: z.add_(1),
    "copy_": lambda z: z.copy_(torch.ones(2, 2, device=z.device)),
    "cpu_and_back": lambda z: z.cpu().to(z.device) + 0,
}


@pytest.mark.parametrize("name", ZERO)
def test_zero_tensors(name):
    same_on_both(lambda device: ZERO[name](torch._efficientzerotensor((2, 2), device=device)))


def test_forward_mode_meets_zero_tangents():
    def call(device):
        with fwAD.dual_level():
            x = fwAD.make_dual(torch.ones(2, device=device), torch.ones(2, device=device))
            y = torch.where(torch.tensor([True, False], device=device), x, torch.zeros(2, device=device))
            return fwAD.unpack_dual(y * x + x.detach()).tangent

    same_on_both(call)


# Conjugate views -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", (torch.dot, torch.vdot, torch.matmul, torch.inner))
@pytest.mark.parametrize("first", (False, True))
@pytest.mark.parametrize("second", (False, True))
def test_products_of_conjugate_views(op, first, second):
    def call(a, b):
        return op(a.conj() if first else a, b.conj() if second else b)

    both(call, torch.tensor([1 + 2j, 3 - 1j]), torch.tensor([2 - 1j, 1 + 1j]))


@pytest.mark.lazy_only
def test_quantized_ops_say_that_they_fall_back():
    q = QUANTIZERS["signed"](DEVICE)
    with work() as done:
        q.relu()
    assert done.fallback_ops == {"aten::relu": 1}
