"""Making tensors, and moving them: in every direction, at the moment the line says."""

import copy
import io
import pickle

import pytest
import torch
from helpers import DEVICE, STATES, both, finish_pending, work

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.complex128,
)


def same_device(tensor):
    return tensor.device.type == torch.device(DEVICE).type


# Factories -----------------------------------------------------------------------------------------------------------

FACTORIES = {
    "zeros": lambda d: torch.zeros(2, 3, device=d),
    "ones": lambda d: torch.ones(2, 3, device=d, dtype=torch.int32),
    "full": lambda d: torch.full((2, 3), 1.5, device=d),
    "full_integer": lambda d: torch.full((2,), 7, device=d),
    "full_bool": lambda d: torch.full((2,), True, device=d),
    "tensor": lambda d: torch.tensor([[1, 2], [3, 4]], device=d),
    "tensor_scalar": lambda d: torch.tensor(2.5, device=d),
    "tensor_bool": lambda d: torch.tensor([True, False], device=d),
    "tensor_complex": lambda d: torch.tensor([1 + 2j], device=d),
    "tensor_empty": lambda d: torch.tensor([], device=d),
    "as_tensor": lambda d: torch.as_tensor([1.0, 2.0], device=d),
    "scalar_tensor": lambda d: torch.scalar_tensor(3, device=d),
    "arange": lambda d: torch.arange(5, device=d),
    "arange_step": lambda d: torch.arange(1, 9, 2.5, device=d),
    "arange_dtype": lambda d: torch.arange(3, dtype=torch.float64, device=d),
    "linspace": lambda d: torch.linspace(0, 1, 5, device=d),
    "logspace": lambda d: torch.logspace(0, 2, 3, device=d),
    "eye": lambda d: torch.eye(3, device=d),
    "eye_rectangular": lambda d: torch.eye(2, 4, device=d, dtype=torch.int64),
    "tril_indices": lambda d: torch.tril_indices(3, 3, device=d),
    "triu_indices": lambda d: torch.triu_indices(3, 4, 1, device=d),
    "hann_window": lambda d: torch.hann_window(6, device=d),
    "complex": lambda d: torch.complex(torch.ones(2, device=d), torch.zeros(2, device=d)),
    "empty_size": lambda d: torch.zeros(0, 3, device=d),
    "meshgrid": lambda d: torch.meshgrid(torch.arange(2, device=d), torch.arange(3, device=d), indexing="ij"),
    "one_hot": lambda d: torch.nn.functional.one_hot(torch.arange(3, device=d), 4),
    "requires_grad": lambda d: torch.ones(2, device=d, requires_grad=True),
    "default_dtype": lambda d: torch.zeros(2, device=torch.device(d)),
    "with_device": lambda d: _under_device(d),
    "vander": lambda d: torch.vander(torch.arange(3.0, device=d)),
    "range_of_diagonal": lambda d: torch.diag(torch.arange(3.0, device=d)),
}


def _under_device(device):
    with torch.device(device):
        return torch.arange(3) + torch.ones(3)


@pytest.mark.parametrize("name", FACTORIES)
def test_factories(name):
    # One-hot looks at its values to check them; everything else is recorded.
    allowed = None if name == "one_hot" else 0
    # The CPU's windows are views of larger ones.
    nbytes = name != "hann_window"
    both(lambda anchor: FACTORIES[name](anchor.device), torch.zeros(1), fallbacks=allowed, nbytes=nbytes)


@pytest.mark.parametrize("dtype", DTYPES)
def test_factories_in_every_dtype(dtype):
    def make(anchor):
        options = {"dtype": dtype, "device": anchor.device}
        return torch.zeros(3, **options), torch.ones(2, 2, **options), torch.full((2,), 1, **options)

    both(make, torch.zeros(1))


def test_uninitialized():
    for x in (
        torch.empty(2, 3, device=DEVICE),
        torch.empty_strided((2, 3), (1, 2), device=DEVICE),
        torch.empty_like(torch.zeros(3, 2, device=DEVICE).t()),
        torch.zeros(2, device=DEVICE).new_empty(4),
    ):
        assert same_device(x)
        assert x.fill_(3).eq(3).all().item()
    assert torch.empty_strided((2, 3), (1, 2), device=DEVICE).stride() == (1, 2)
    assert torch.empty(2, 3, 4, 5, device=DEVICE, memory_format=torch.channels_last).stride() == (60, 1, 15, 3)


@pytest.mark.parametrize("state", STATES)
def test_like_and_new(state):
    def make(x):
        return (
            torch.zeros_like(x),
            torch.ones_like(x, dtype=torch.int64),
            torch.full_like(x, 3),
            torch.zeros_like(x.t()),
            torch.zeros_like(x[:, ::2]),
            torch.zeros_like(x, memory_format=torch.contiguous_format),
            x.new_zeros(2, 3),
            x.new_ones(2, dtype=torch.bool),
            x.new_full((2,), 4),
            x.new_tensor([1, 2, 3]),
            torch.zeros_like(x, device="cpu").device.type,
        )

    both(make, torch.randn(3, 4), state=state)


def test_random_numbers_are_plausible():
    n = 4000
    options = {"device": DEVICE}
    uniform, normal = torch.rand(n, **options), torch.randn(n, **options)
    integers, order = torch.randint(3, 9, (n,), **options), torch.randperm(100, **options)
    assert all(map(same_device, (uniform, normal, integers, order)))
    assert 0 <= uniform.min().item() <= uniform.max().item() < 1
    assert abs(uniform.mean().item() - 0.5) < 0.05
    assert abs(normal.mean().item()) < 0.1 and abs(normal.std().item() - 1) < 0.1
    assert sorted(set(integers.tolist())) == [3, 4, 5, 6, 7, 8]
    assert sorted(order.tolist()) == list(range(100))
    assert not torch.equal(torch.rand(9, **options).cpu(), torch.rand(9, **options).cpu())
    assert torch.zeros(n, **options).bernoulli_(0.3).mean().item() == pytest.approx(0.3, abs=0.05)
    assert torch.empty(n, **options).uniform_(2, 4).mean().item() == pytest.approx(3, abs=0.1)
    assert torch.rand_like(normal).shape == normal.shape


def test_manual_seed_repeats():
    def draw():
        torch.manual_seed(5)
        return [torch.rand(3, device=DEVICE).tolist(), torch.randn(3, device=DEVICE).tolist()]

    assert draw() == draw()


# Moving --------------------------------------------------------------------------------------------------------------


@pytest.mark.smoke
@pytest.mark.parametrize("dtype", DTYPES)
def test_round_trip(dtype):
    x = (torch.arange(12).reshape(3, 4) - 3).to(dtype)
    y = x.to(DEVICE)
    assert same_device(y) and y.dtype == dtype
    assert torch.equal(y.cpu(), x)
    assert torch.equal(y.to("cpu"), x)
    assert torch.equal(y.t().cpu(), x.t())


@pytest.mark.parametrize("source", DTYPES)
def test_conversions(source):
    x = torch.tensor([[0, 1, 3], [7, 100, 2]]).to(source)
    targets = [d for d in DTYPES if d.is_complex or not source.is_complex]
    both(lambda x: [x.to(target) for target in targets], x)
    both(lambda x: [x.t().to(target, copy=True) for target in targets], x)


def test_device_and_dtype_at_once():
    x = torch.tensor([1.75, -2.5])
    assert x.to(DEVICE, torch.int64).tolist() == [1, -2]
    assert x.to(DEVICE).to("cpu", torch.float64).dtype == torch.float64
    assert x.to(torch.zeros(1, dtype=torch.float64, device=DEVICE)).dtype == torch.float64
    assert torch.zeros(2, dtype=torch.int64, device=DEVICE).copy_(x).tolist() == [1, -2]
    assert torch.zeros(2, dtype=torch.int64).copy_(x.to(DEVICE)).tolist() == [1, -2]


NON_CONTIGUOUS = {
    "transposed": lambda: torch.randn(3, 4).t(),
    "strided": lambda: torch.randn(6, 6)[::2, 1::3],
    "offset": lambda: torch.randn(10)[3:7],
    "expanded": lambda: torch.randn(3, 1).expand(3, 4),
    "zero_dimensional": lambda: torch.randn(4)[2],
    "empty": lambda: torch.randn(0, 3),
    "channels_last": lambda: torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    "conjugate": lambda: torch.randn(3, dtype=torch.complex64).conj(),
    "negative": lambda: torch.randn(3, dtype=torch.complex64).conj().imag,
    "windows": lambda: torch.randn(8).unfold(0, 3, 1),
}


@pytest.mark.parametrize("name", NON_CONTIGUOUS)
def test_non_contiguous_sources(name):
    x = NON_CONTIGUOUS[name]()
    reference = x.to("cpu", copy=True)
    there = x.to(DEVICE, copy=True)
    assert there.stride() == reference.stride()
    torch.testing.assert_close(there.cpu(), x.resolve_conj().resolve_neg())
    back = (there.to(there.dtype) * 1).cpu()
    torch.testing.assert_close(back, x * 1)


@pytest.mark.smoke
@pytest.mark.parametrize("non_blocking", (False, True))
def test_source_may_change_after_the_copy(non_blocking):
    x = torch.arange(4.0)
    there = x.to(DEVICE, copy=True, non_blocking=non_blocking)
    target = torch.zeros(4, device=DEVICE)
    target.copy_(x, non_blocking=non_blocking)
    y = there * 2
    x.fill_(-1)
    assert there.tolist() == [0, 1, 2, 3]
    assert target.tolist() == [0, 1, 2, 3]
    assert y.tolist() == [0, 2, 4, 6]


def test_source_may_die_after_the_copy():
    there = [torch.full((1000,), float(i)).to(DEVICE) for i in range(20)]
    noise = [torch.full((1000,), -1.0) for _ in range(20)]
    assert [(x + 0).mean().item() for x in there] == list(range(20))
    del noise


def test_scalar_operands_are_read_at_their_line():
    scale = torch.tensor(2.0)
    x = torch.ones(3, device=DEVICE)
    y = x * scale
    scale.fill_(100)
    assert y.tolist() == [2, 2, 2]


@pytest.mark.lazy_only
def test_copies_back_are_snapshots():
    x = torch.ones(3, device=DEVICE)
    before = x.cpu()
    x.add_(1)
    after = x.to("cpu", non_blocking=True)
    finish_pending()
    assert before.tolist() == [1, 1, 1]
    assert after.tolist() == [2, 2, 2]
    after.zero_()
    assert x.tolist() == [2, 2, 2]


def test_writing_into_cpu_views():
    target = torch.zeros(3, 4)
    target[:, 1].copy_(torch.arange(3.0, device=DEVICE))
    target[2] = torch.ones(4, device=DEVICE)
    assert target.tolist() == [[0, 0, 0, 0], [0, 1, 0, 0], [1, 1, 1, 1]]


def test_writing_into_device_views():
    target = torch.zeros(3, 4, device=DEVICE)
    target[:, 1].copy_(torch.arange(3.0))
    target.t()[3] = torch.ones(3)
    target[0] = torch.tensor(5.0)
    assert target.tolist() == [[5, 5, 5, 5], [0, 1, 0, 1], [0, 2, 0, 1]]


# Reading -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_reading_values(dtype):
    def read(x):
        y = x + x
        return y.tolist(), y[1].item(), x[0, 0].item() if x.dim() > 1 else None, y.cpu()

    both(read, torch.tensor([0, 1, 1]).to(dtype), on_cpu=[0])


def test_python_conversions():
    x = torch.tensor([1.75, 2.0], device=DEVICE) + 1
    assert float(x[0]) == 2.75
    assert int(x[1]) == 3
    assert bool(x[0] > 2)
    assert complex(x[1]) == 3 + 0j
    assert [round(v.item()) for v in x] == [3, 3]
    assert f"{x[0]:.1f}" == "2.8"
    assert range(10)[torch.tensor(3, device=DEVICE)] == 3
    assert x.cpu().numpy().tolist() == [2.75, 3.0]


def test_printing():
    x = torch.arange(6.0).reshape(2, 3)
    text = repr(x.to(DEVICE) * 1)
    if torch.device(DEVICE).type != "cpu":
        assert f"device='{DEVICE}:0'" in text
    assert text.startswith(repr(x).rstrip(")"))
    assert "requires_grad=True" in repr(torch.ones(2, device=DEVICE, requires_grad=True))
    assert "[]" in repr(torch.ones(0, device=DEVICE))
    assert "..." in repr(torch.zeros(10000, device=DEVICE))


def test_printing_parameters_of_subclasses():
    class Named(torch.Tensor):
        pass

    def text(device):
        return repr(torch.nn.Parameter(torch.ones(2, device=device).as_subclass(Named)))

    assert text(DEVICE).replace(f", device='{DEVICE}:0'", "") == text("cpu")


def test_deepcopy():
    def compute(x):
        view = x[0]
        twin, twin_view = copy.deepcopy([x, view])
        twin_view.add_(1)
        return twin, twin_view

    both(compute, torch.randn(3, 2))


class Renewed(torch.Tensor):
    """A subclass that PyTorch can copy: it says how to make another one."""

    def new_empty(self, *args, **kwargs):
        return self.as_subclass(torch.Tensor).new_empty(*args, **kwargs).as_subclass(Renewed)


def test_deepcopy_of_subclasses():
    def compute(x):
        tensor = (x * 1).as_subclass(Renewed)
        tensor.note = [1]
        twin = copy.deepcopy(tensor)
        tensor.add_(1)
        tensor.note.append(2)
        assert (type(twin), twin.note) == (Renewed, [1])
        return twin.as_subclass(torch.Tensor)

    both(compute, torch.randn(3, 2))


def test_deepcopy_of_other_subclasses_raises_as_on_the_cpu():
    class Bare(torch.Tensor):
        pass

    messages = []
    for device in ("cpu", DEVICE):
        with pytest.raises(RuntimeError) as error:
            copy.deepcopy(torch.ones(3, device=device).as_subclass(Bare))
        messages.append(str(error.value))
    assert messages[0] == messages[1]


def test_data_of_a_wrapper_is_set_without_asking_it():
    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

        def __init__(self, inner):
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            if func is torch.ops.aten.detach.default:
                return cls(args[0].inner)
            raise NotImplementedError(str(func))

    for device in ("cpu", DEVICE):
        parameter = torch.nn.Parameter(Wrapper(torch.ones(2, device=device)), requires_grad=False)
        parameter.data = Wrapper(torch.zeros(2, device=device))


def test_state_dict_round_trip():
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).to(DEVICE)
    model(torch.randn(5, 3).to(DEVICE))
    state = {name: tensor.cpu() for name, tensor in model.state_dict().items()}
    other = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).to(DEVICE)
    other.load_state_dict(state)
    for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(a.cpu(), b.cpu())


def test_saving():
    x = torch.arange(4.0, device=DEVICE) * 2
    file = io.BytesIO()
    torch.save({"x": x, "view": x[1:3]}, file)
    file.seek(0)
    loaded = torch.load(file, map_location="cpu")
    assert loaded["x"].tolist() == [0, 2, 4, 6]
    assert loaded["view"].tolist() == [2, 4]
    file.seek(0)
    assert torch.load(file)["x"].mul(2).tolist() == [0, 4, 8, 12]
    assert pickle.loads(pickle.dumps(x)).tolist() == [0, 2, 4, 6]


# Work ----------------------------------------------------------------------------------------------------------------


@pytest.mark.lazy_only
def test_moving_compiles_nothing():
    x = torch.randn(3, 4)
    with work() as done:
        there = x.to(DEVICE)
        finish_pending()
        there.cpu()
        there.t().cpu()
    assert (done.compiles, done.fallbacks) == (0, 0)


@pytest.mark.lazy_only
@pytest.mark.own_schedule("counts graphs")
def test_one_read_runs_everything_pending_once():
    x = torch.ones(3).to(DEVICE)
    with work() as done:
        results = [x * i for i in range(5)] + [x - i for i in range(5)]
        assert [result.tolist()[0] for result in results] == [0, 1, 2, 3, 4, 1, 0, -1, -2, -3]
    assert done.flushes == 1
    assert done.executed == 10
