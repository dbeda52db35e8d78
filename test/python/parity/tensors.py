"""Tensors: making, moving, printing, reading, storages."""

import copy
import pickle

import torch

from parity import probe

TENSOR, STORAGE = "Tensors", "Storages and interchange"


@probe(TENSOR, "x.cuda()")
def method(d, m):
    x = getattr(torch.ones(2), d)()
    assert x.device.type == d and getattr(x, d)() is x


@probe(TENSOR, "x.is_cuda")
def predicate(d, m):
    assert getattr(torch.ones(2, device=d), f"is_{d}") and not getattr(torch.ones(2), f"is_{d}")


@probe(TENSOR, "x.to('cuda', torch.float16, non_blocking=True)")
def to(d, m):
    x = torch.ones(2).to(d, torch.float16, non_blocking=True)
    assert (x.device.type, x.dtype) == (d, torch.float16)


@probe(TENSOR, "x.to('cpu'), x.cpu()")
def to_cpu(d, m):
    x = torch.arange(4, device=d)
    assert torch.equal(x.cpu(), torch.arange(4)) and torch.equal(x.to("cpu"), x.cpu())


@probe(TENSOR, "torch.tensor([1, 2], device='cuda')")
def tensor(d, m):
    assert torch.tensor([1, 2], device=d).tolist() == [1, 2]
    assert torch.as_tensor([1.5], device=d).item() == 1.5


@probe(TENSOR, "torch.zeros / ones / full / arange / linspace / eye(..., device='cuda')")
def factories(d, m):
    made = (torch.zeros(2, device=d), torch.ones(2, device=d), torch.full((2,), 3, device=d), torch.arange(2, device=d))
    assert [x.sum().item() for x in (*made, torch.linspace(0, 1, 3, device=d), torch.eye(2, device=d))] == [
        *(0, 2, 6, 1),
        *(1.5, 2),
    ]


@probe(TENSOR, "x.new_zeros(2), torch.ones_like(x)")
def like(d, m):
    x = torch.ones(3, device=d)
    assert x.new_zeros(2).device == torch.ones_like(x).device == x.device


@probe(TENSOR, "x.get_device(), x.device.index")
def get_device(d, m):
    assert torch.ones(1, device=d).get_device() == torch.ones(1, device=d).device.index == 0


@probe(TENSOR, "x.type(), x.type('torch.cuda.HalfTensor')")
def type_names(d, m):
    x = torch.ones(1, device=d)
    assert x.type() == f"torch.{d}.FloatTensor"
    assert x.type(f"torch.{d}.HalfTensor").dtype == torch.float16


@probe(TENSOR, "print(x)")
def printing(d, m):
    text = repr(torch.arange(3, device=d))
    assert text == f"tensor([0, 1, 2], device='{d}:0')", text


@probe(TENSOR, "x.item(), float(x), bool(x > 0), x.tolist()")
def reading(d, m):
    x = torch.full((), 2.5, device=d)
    assert x.item() == float(x) == 2.5 and bool(x > 0) and x.view(1).tolist() == [2.5]


@probe(TENSOR, "x.numpy() raises TypeError")
def numpy_error(d, m):
    try:
        torch.ones(1, device=d).numpy()
    except TypeError as error:
        assert "Tensor.cpu()" in str(error)
        return
    raise AssertionError("x.numpy() did not raise")


@probe(TENSOR, "x[0] = 1; x[mask]; x[index]")
def indexing(d, m):
    x = torch.zeros(3, device=d)
    x[0] = 1
    assert x[x > 0].tolist() == [1] and x[torch.tensor([0, 2], device=d)].tolist() == [1, 0]


@probe(TENSOR, "views write through: x.view(-1)[1:].add_(1)")
def views(d, m):
    x = torch.zeros(2, 2, device=d)
    x.view(-1)[1:].add_(1)
    x.t()[0, 0] = 5
    assert x.tolist() == [[5, 1], [1, 1]]


@probe(TENSOR, "torch.add(a, b, out=c)")
def out(d, m):
    c = torch.empty(2, device=d)
    assert torch.add(torch.ones(2, device=d), 1, out=c) is c and c.tolist() == [2, 2]


@probe(TENSOR, "x + torch.tensor(1.0)  (a scalar on the CPU)")
def cpu_scalar(d, m):
    assert (torch.ones(2, device=d) + torch.tensor(1.0)).tolist() == [2, 2]


@probe(TENSOR, "x + y raises, if y is on the CPU")
def mixed(d, m):
    try:
        torch.ones(2, device=d) + torch.ones(2)
    except RuntimeError as error:
        assert "same device" in str(error)
        return
    raise AssertionError("devices were mixed")


@probe(TENSOR, "shape errors raise at their line")
def shape_error(d, m):
    try:
        torch.ones(2, 3, device=d) @ torch.ones(2, 3, device=d)
    except RuntimeError as error:
        assert "cannot be multiplied" in str(error)
        return
    raise AssertionError("the product was accepted")


@probe(TENSOR, "x.half(), x.bfloat16(), x.to(torch.complex64)")
def dtypes(d, m):
    x = torch.ones(2, device=d)
    for dtype in (torch.half, torch.bfloat16, torch.complex64, torch.int8, torch.bool, torch.float64):
        assert (x.to(dtype) + x.to(dtype)).cpu().dtype == dtype


@probe(TENSOR, "torch.ones(2, dtype=torch.complex64, device='cuda').conj()")
def conj(d, m):
    x = torch.tensor([1 + 2j], device=d).conj()
    assert x.is_conj() and x.imag.item() == -2 and torch.view_as_real(x.resolve_conj()).tolist() == [[1, -2]]


@probe(TENSOR, "torch.nested.nested_tensor([a, b], device='cuda')", openreg=False)
def nested(d, m):
    x = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], device=d, layout=torch.jagged)
    assert x.device.type == d and (x * 2).values().sum().item() == 10


@probe(TENSOR, "torch.linalg.svd, torch.fft.fft, torch.sort, torch.unique")
def algorithms(d, m):
    x = torch.tensor([[2.0, 0.0], [0.0, 1.0]], device=d)
    assert torch.linalg.svd(x).S.tolist() == [2, 1] and torch.fft.fft(x).real.sum().item() == 4
    assert x.flatten().sort().values.tolist() == [0, 0, 1, 2] and x.unique().tolist() == [0, 1, 2]


@probe(TENSOR, "torch._foreach_add(tensors, 1)")
def foreach(d, m):
    assert [x.item() for x in torch._foreach_add([torch.ones((), device=d)] * 2, 1)] == [2, 2]


# Storages and interchange --------------------------------------------------------------------------------------------


@probe(STORAGE, "x.data_ptr()")
def data_ptr(d, m):
    x = torch.ones(4, device=d) + 1
    assert x[1:].data_ptr() == x.data_ptr() + 4 > 4


@probe(STORAGE, "x.untyped_storage(), x.untyped_storage().nbytes()")
def storage(d, m):
    x = torch.ones(4, device=d)
    assert x.untyped_storage().nbytes() == 16 and x.untyped_storage().device.type == d


@probe(STORAGE, "storage.cuda(), storage.cpu()")
def storage_moves(d, m):
    storage = getattr(torch.ones(4).untyped_storage(), d)()
    assert storage.device.type == d and storage.cpu().device.type == "cpu"


@probe(STORAGE, "torch.UntypedStorage(4, device='cuda')")
def new_storage(d, m):
    assert torch.UntypedStorage(4, device=d).device.type == d


@probe(STORAGE, "torch.empty(0, device='cuda').set_(storage)")
def set_storage(d, m):
    x = torch.arange(4.0, device=d)
    y = torch.empty(0, device=d).set_(x.untyped_storage(), 1, (2,), (1,))
    y.zero_()
    assert x.tolist() == [0, 0, 0, 3]


@probe(STORAGE, "x.resize_(8), storage.resize_(64)")
def resize(d, m):
    x = torch.ones(4, device=d)
    x.resize_(8)
    assert x.shape == (8,) and x[:4].sum().item() == 4
    x.untyped_storage().resize_(64)
    assert x.untyped_storage().nbytes() == 64


@probe(STORAGE, "torch.from_dlpack(x)")
def dlpack(d, m):
    x = torch.arange(3.0, device=d)
    y = torch.from_dlpack(torch.utils.dlpack.to_dlpack(x))
    assert y.device == x.device and y.tolist() == [0, 1, 2]


@probe(STORAGE, "copy.copy(x), copy.deepcopy(x)")
def copies(d, m):
    x = torch.ones(2, device=d)
    deep = copy.deepcopy({"x": x, "view": x[1:]})
    copy.copy(x).zero_()
    deep["x"].add_(1)
    assert x.tolist() == [0, 0] and deep["view"].tolist() == [2]


@probe(STORAGE, "pickle.dumps(x)")
def pickling(d, m):
    x = pickle.loads(pickle.dumps(torch.ones(2, device=d)))
    assert x.device.type == d and x.tolist() == [1, 1]


@probe(STORAGE, "x.cpu().numpy()")
def numpy(d, m):
    assert (torch.ones(2, device=d) + 1).cpu().numpy().tolist() == [2, 2]


@probe(STORAGE, "torch.nn.utils.rnn.pack_padded_sequence(x, lengths)")
def packed(d, m):
    sequence = torch.nn.utils.rnn.pack_padded_sequence(torch.ones(3, 2, 1, device=d), [3, 1])
    assert getattr(sequence, f"is_{d}") and sequence.batch_sizes.device.type == "cpu"
    assert torch.nn.utils.rnn.pad_packed_sequence(sequence)[0].sum().item() == 4
