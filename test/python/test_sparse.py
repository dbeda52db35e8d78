"""Sparse tensors live on the device: their parts are lazy, and ops on them run on the CPU over the same memory."""

import copy
import io
import pickle

import pytest
import torch
from composed import same_on_both
from helpers import DEVICE, assert_same_error, error_of, finish_pending, run_fresh, work


def dense(device):
    return torch.tensor([[0.0, 1, 0], [2, 0, 3], [0, 0, 4]]).to(device)


def coalesced(device):
    return dense(device).to_sparse()


def uncoalesced(device):
    indices, values = torch.tensor([[0, 1, 1], [2, 0, 0]]), torch.tensor([3.0, 4, 5])
    return torch.sparse_coo_tensor(indices, values, (2, 3), device=device)


def ones(*shape, like):
    return torch.ones(*shape, device=like.device)


def write_values(s):
    s._values().mul_(2)
    return s.to_dense()


COO = {
    "itself": lambda s: s,
    "coalesce": lambda s: s.coalesce(),
    "parts": lambda s: (s._indices(), s._values()),
    "checked_parts": lambda s: (s.indices(), s.values()),
    "numbers": lambda s: (s._nnz(), s.sparse_dim(), s.dense_dim(), s.is_coalesced()),
    "to_dense": lambda s: s.to_dense(),
    "add": lambda s: s + s,
    "mul": lambda s: s * s,
    "mul_number": lambda s: s * 2,
    "neg": lambda s: -s,
    "sin": lambda s: s.sin(),
    "pow": lambda s: s**2,
    "transpose": lambda s: s.t(),
    "sum": lambda s: s.sum(),
    "sum_item": lambda s: s.sum().item(),
    "sum_dim": lambda s: torch.sparse.sum(s, 0),
    "norm": lambda s: s.norm(),
    "dense_plus_sparse": lambda s: s.to_dense() + s,
    "mm": lambda s: torch.sparse.mm(s, ones(s.shape[1], 2, like=s)),
    "mm_sparse": lambda s: torch.sparse.mm(s, s.t()),
    "mv": lambda s: s @ ones(s.shape[1], like=s),
    "addmm": lambda s: torch.sparse.addmm(ones(s.shape[0], 2, like=s), s, ones(s.shape[1], 2, like=s)),
    "bmm": lambda s: torch.stack([s, s]).bmm(ones(2, s.shape[1], 2, like=s)),
    "softmax": lambda s: torch.sparse.softmax(s, 1),
    "cat": lambda s: torch.cat([s, s]),
    "index_select": lambda s: s.index_select(0, torch.tensor([0, 1], device=s.device)),
    "select": lambda s: s[1],
    "unsqueeze": lambda s: s.unsqueeze(0),
    "narrow_copy": lambda s: s.narrow_copy(0, 0, 1),
    "mask": lambda s: ones(*s.shape, like=s).sparse_mask(s.coalesce()),
    "clone": lambda s: s.clone(),
    "double": lambda s: s.double(),
    "zeros_like": lambda s: torch.zeros_like(s),
    "to_csr": lambda s: s.to_sparse_csr(),
    "abs_": lambda s: s.clone().abs_(),
    "add_": lambda s: s.clone().add_(s),
    "mul_": lambda s: s.clone().mul_(3),
    "zero_": lambda s: s.clone().zero_(),
    "copy_": lambda s: torch.empty_like(s).copy_(s),
    "out": lambda s: torch.mul(s, s, out=torch.empty_like(s)),
    "resize": lambda s: s.clone().sparse_resize_((4, 4), 2, 0),
    "add_to_dense_": lambda s: ones(*s.shape, like=s).add_(s, alpha=2),
    "write_values": write_values,
    "cpu_and_back": lambda s: s.cpu().to(s.device),
    "deepcopy": lambda s: copy.deepcopy(s),
    "pickle": lambda s: pickle.loads(pickle.dumps(s)),
}


@pytest.mark.parametrize("make", (coalesced, uncoalesced))
@pytest.mark.parametrize("name", COO)
def test_coo(name, make):
    same_on_both(lambda device: COO[name](make(device)))


@pytest.mark.lazy_only
def test_parts_are_lazy():
    s = coalesced(DEVICE)
    assert s.is_sparse and s.device.type == s._indices().device.type == s._values().device.type == "lazy"
    values = s._values() * 2
    with work() as done:
        doubled = torch.sparse_coo_tensor(s._indices(), values, s.shape, check_invariants=False)
        moved = doubled.unsqueeze(0).clone()
    assert done.fallbacks == 0
    assert moved.cpu().to_dense().equal(dense("cpu")[None] * 2)


@pytest.mark.lazy_only
def test_ops_are_counted_as_fallbacks():
    s = coalesced(DEVICE)
    finish_pending()
    with work() as done:
        s.mul_(2)
    assert done.fallback_ops == {"aten::mul_": 1} and done.executed == 0


def test_printing():
    assert str(coalesced(DEVICE)).replace(f"device='{DEVICE}:0', ", "") == str(coalesced("cpu"))


COMPRESSED = {
    "itself": lambda c: c,
    "to_dense": lambda c: c.to_dense(),
    "values": lambda c: c.values(),
    "rows_and_columns": lambda c: (c.crow_indices(), c.col_indices()),
    "columns_and_rows": lambda c: (c.ccol_indices(), c.row_indices()),
    "mul": lambda c: c * 2,
    "add": lambda c: c + c,
    "mm": lambda c: c @ c.to_dense(),
    "mm_compressed": lambda c: c @ c,
    "mv": lambda c: c @ ones(6, like=c),
    "addmm": lambda c: torch.addmm(ones(6, 6, like=c), c, torch.eye(6, device=c.device)),
    "sampled_addmm": lambda c: torch.sparse.sampled_addmm(c, torch.eye(6, device=c.device), ones(6, 6, like=c)),
    "sin": lambda c: c.sin(),
    "sum": lambda c: c.sum(),
    "transpose": lambda c: c.t(),
    "select": lambda c: c[0],
    "to_sparse": lambda c: c.to_sparse(),
    "clone": lambda c: c.clone(),
    "neg_": lambda c: c.clone().neg_(),
    "copy_": lambda c: c.clone().copy_(c),
    "zeros_like": lambda c: torch.zeros_like(c),
    "double": lambda c: c.double(),
    "cpu_and_back": lambda c: c.cpu().to(c.device),
    "pickle": lambda c: pickle.loads(pickle.dumps(c)),
}


@pytest.mark.parametrize("layout", ("csr", "csc", "bsr", "bsc"))
@pytest.mark.parametrize("name", COMPRESSED)
def test_compressed(name, layout):
    def call(device):
        blocks = torch.kron(dense(device), torch.ones(2, 2, device=device))
        size = ((2, 2),) if layout.startswith("b") else ()
        return COMPRESSED[name](getattr(blocks, f"to_sparse_{layout}")(*size))

    same_on_both(call)


FILLS = {
    "randn_like": torch.randn_like,
    "rand_like": torch.rand_like,
    "normal_": lambda s: s.normal_(3, 0.5),
    "uniform_": lambda s: s.uniform_(),
    "bernoulli_": lambda s: s.bernoulli_(0.5),
    "random_": lambda s: s.random_(0, 9),
}


@pytest.mark.parametrize("layout", ("coo", "csr", "csc", "bsr", "bsc"))
@pytest.mark.parametrize("name", FILLS)
def test_random_fills(name, layout):
    """What the CPU's kernels fill is filled, with numbers of the device's own generator; the rest is refused alike."""

    def fill(device):
        torch.manual_seed(1)
        size = ((2, 2),) if layout.startswith("b") else ()
        blocks = torch.kron(dense(device), torch.ones(2, 2, device=device))
        return FILLS[name](getattr(blocks, "to_sparse" if layout == "coo" else f"to_sparse_{layout}")(*size))

    expected = error_of(fill, "cpu")
    if expected:
        assert_same_error(error_of(fill, DEVICE), expected)
        return
    first, second, on_cpu = fill(DEVICE), fill(DEVICE), fill("cpu")
    assert (first.layout, first.device.type) == (on_cpu.layout, DEVICE)
    assert first.values().equal(second.values()) and first.values().unique().numel() > 1
    assert first.values().shape == on_cpu.values().shape
    if name == "normal_":
        assert first.values().sub(3).abs().max() < 3


@pytest.mark.parametrize(
    "make",
    (
        lambda device: torch.sparse_coo_tensor([[0, 9]], [1.0, 2.0], (2,), device=device, check_invariants=True),
        lambda device: torch.sparse_csr_tensor(
            [0, 1, 5], [0, 1], [1.0, 2.0], (2, 2), device=device, check_invariants=True
        ),
        lambda device: torch.empty(2, 2, layout=torch.sparse_coo, device=device),
        lambda device: torch.sparse_coo_tensor(size=(2, 3), device=device),
    ),
)
def test_constructors_check_what_eager_checks(make):
    same_on_both(make)


# Autograd ------------------------------------------------------------------------------------------------------------

DIFFERENTIABLE = {
    "to_sparse": lambda x: x.to_sparse(),
    "mm": lambda x: torch.sparse.mm(x.to_sparse(), x),
    "to_dense": lambda x: x.to_sparse().to_dense() * x,
    "mul": lambda x: x.to_sparse() * x.to_sparse(),
    "values": lambda x: x.to_sparse().coalesce().values() ** 2,
    "softmax": lambda x: torch.sparse.softmax(x.to_sparse(), 1),
    "csr": lambda x: x.to_sparse_csr() @ x,
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients(name):
    def call(device):
        x = dense(device).requires_grad_()
        y = DIFFERENTIABLE[name](x)
        (y.sum() if y.layout == torch.strided else torch.sparse.sum(y)).backward()
        return x.grad

    same_on_both(call)


@pytest.mark.parametrize("reduce", ("sum", "mean", "amax", "amin"))
def test_gradients_of_reducing_products(reduce):
    """The CPU kernel looks whether its arguments require gradients."""

    def call(device):
        a = dense("cpu").to_sparse_csr().to(device).requires_grad_()
        b = torch.arange(6.0).reshape(3, 2).to(device).requires_grad_()
        return torch.autograd.grad(torch.sparse.mm(a, b, reduce).sum(), (a, b))

    same_on_both(call)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "sparse_adam": lambda p: torch.optim.SparseAdam(p, lr=0.1),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_sparse_embeddings_train(name):
    def call(device):
        layer = torch.nn.Embedding(5, 3, sparse=True).to(device)
        optimizer, seen = OPTIMIZERS[name](layer.parameters()), []
        for _ in range(3):
            optimizer.zero_grad()
            loss = layer(torch.tensor([1, 2, 1], device=device)).square().sum()
            loss.backward()
            seen += [loss.detach(), layer.weight.grad.clone()]
            optimizer.step()
        return [*seen, layer.weight]

    same_on_both(call)


def test_sparse_gradients_accumulate():
    def call(device):
        layer = torch.nn.Embedding(5, 3, sparse=True).to(device)
        for _ in range(3):
            layer(torch.tensor([1, 2, 1], device=device)).sum().backward()
        return layer.weight.grad

    same_on_both(call)


@pytest.mark.parametrize("sparse", (True, False))
def test_embedding_bag(sparse):
    def call(device):
        layer = torch.nn.EmbeddingBag(5, 3, sparse=sparse, mode="sum").to(device)
        layer(torch.tensor([1, 2, 1], device=device), torch.tensor([0, 2], device=device)).sum().backward()
        return layer.weight.grad

    same_on_both(call)


def test_save_and_load():
    def call(device):
        file = io.BytesIO()
        torch.save(coalesced(device), file)
        file.seek(0)
        return torch.load(file, map_location=device)

    same_on_both(call)


@pytest.mark.parametrize("name", ("add_", "sub_", "out"))
def test_what_was_empty_and_is_written_can_be_used(name):
    """Its parts had no memory, and have been resized by the kernel."""

    def call(device):
        x = torch.arange(1.0, 401, device=device).reshape(20, 20).to_sparse()
        empty = torch.sparse_coo_tensor((20, 20), device=device)
        torch.abs(x, out=empty) if name == "out" else getattr(empty, name)(x)
        return empty, empty._values() + 1, empty._indices() * 2

    same_on_both(call)


def test_sparse_gradients_that_become_zeros():
    def call(device):
        layer, seen = torch.nn.Embedding(50, 3, sparse=True).to(device), []
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad(set_to_none=False)
            (layer(torch.arange(20, device=device)) * 2).sum().backward()
            optimizer.step()
            seen.append(layer.weight.grad._values() * 1)
        return seen

    same_on_both(call)


@pytest.mark.lazy_only
def test_on_another_device_than_the_current_one():
    run_fresh(
        """
        there = torch.device("lazy:1")
        s = torch.eye(3, device=there).to_sparse()
        embedding = torch.nn.Embedding(5, 3, sparse=True).to(there)
        embedding(torch.tensor([1, 1, 4], device=there)).sum().backward()
        made = [s, embedding.weight.grad, torch.zeros(3, 3, layout=torch.sparse_coo, device=there), s.clone(), s.t()]
        made += [torch.zeros_like(s), s * 2, s + s, torch.cat([s, s]), torch.sparse.sum(s, 0), s.coalesce()]
        made += [torch.eye(3).to_sparse().to(there), torch.sparse_coo_tensor([[0], [1]], [1.0], (2, 2), device=there)]
        for tensor in made:
            assert tensor.device == tensor._indices().device == tensor._values().device == there, tensor.device
        assert torch.lazy.current_device() == 0
        assert torch.equal((s * 2).to_dense().cpu(), torch.eye(3) * 2)
        assert s.to("lazy:0").device == torch.device("lazy:0")
        """,
        devices=2,
    )
