"""Sparse, quantized and nested tensors."""

import torch

from parity import probe

LAYOUT = "Sparse, quantized and nested tensors"


def matrix(d):
    return torch.tensor([[0.0, 2.0], [3.0, 0.0]], device=d)


@probe(LAYOUT, "x.to_sparse(), s.to_dense()", openreg=False)
def sparse_coo(d, m):
    s = matrix(d).to_sparse()
    assert s.is_sparse and s.device.type == d and s.indices().device.type == d
    assert torch.equal(s.to_dense(), matrix(d))


@probe(LAYOUT, "torch.sparse_coo_tensor(indices, values, device='cuda').coalesce()", openreg=False)
def sparse_construction(d, m):
    s = torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (2, 2), device=d).coalesce()
    assert s._nnz() == 1 and s.to_dense().tolist() == [[0, 3], [0, 0]]


@probe(LAYOUT, "torch.sparse.mm(s, x), s @ x", openreg=False)
def sparse_product(d, m):
    s, x = matrix(d).to_sparse(), torch.ones(2, 2, device=d)
    assert torch.sparse.mm(s, x).tolist() == (s @ x).tolist() == [[2, 2], [3, 3]]


@probe(LAYOUT, "x.to_sparse_csr(), torch.sparse_csr_tensor(...)", openreg=False)
def sparse_csr(d, m):
    s = matrix(d).to_sparse_csr()
    again = torch.sparse_csr_tensor(s.crow_indices(), s.col_indices(), s.values(), (2, 2), device=d)
    assert torch.equal(again.to_dense(), matrix(d))


@probe(LAYOUT, "nn.Embedding(sparse=True), torch.optim.SparseAdam()", openreg=False)
def sparse_gradients(d, m):
    embedding = torch.nn.Embedding(5, 3, sparse=True).to(d)
    embedding(torch.tensor([1, 3], device=d)).sum().backward()
    assert embedding.weight.grad.is_sparse
    torch.optim.SparseAdam(embedding.parameters()).step()


@probe(LAYOUT, "torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize()")
def quantized(d, m):
    q = torch.quantize_per_tensor(matrix(d), 0.1, 0, torch.qint8)
    assert q.is_quantized and q.device.type == d and q.q_scale() == 0.1
    torch.testing.assert_close(q.dequantize(), matrix(d))


@probe(LAYOUT, "torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127)", openreg=False)
def fake_quantized(d, m):
    x = matrix(d).requires_grad_()
    torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127).sum().backward()
    assert x.grad.tolist() == [[1, 1], [1, 1]]


@probe(LAYOUT, "torch.nested.nested_tensor([x, y])", openreg=False)
def nested(d, m):
    n = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)], device=d)
    assert n.is_nested and n.device.type == d
    assert torch.nested.to_padded_tensor(n, 0).shape == (2, 2, 3)


@probe(LAYOUT, "torch.nested.nested_tensor([x, y], layout=torch.jagged)", openreg=False)
def jagged(d, m):
    n = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)], layout=torch.jagged, device=d)
    assert (n * 2).unbind()[1].tolist() == [[2, 2, 2]]
