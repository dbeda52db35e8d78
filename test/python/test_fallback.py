"""Ops that cannot be recorded run on the CPU: right values, and counted by name."""

import pytest
import torch
from helpers import DEVICE, STATES, both, finish_pending, train_both, work

from torch_lazyplug import metrics

# Sizes of these results depend on the data, so no shape can be promised while recording.
DATA_DEPENDENT = {
    "nonzero": lambda x: x.nonzero(),
    "masked_select": lambda x: x.masked_select(x > 1),
    "boolean_index": lambda x: x[x > 1],
    "unique": lambda x: torch.unique(x),
    "unique_with_counts": lambda x: torch.unique(x, return_inverse=True, return_counts=True),
    "unique_consecutive": lambda x: torch.unique_consecutive(x.flatten()),
    "bincount": lambda x: torch.bincount(x.flatten().to(torch.int64)),
    "repeat_interleave": lambda x: x.repeat_interleave(torch.tensor([1, 0, 2], device=x.device), 0),
    "argwhere": lambda x: torch.argwhere(x),
    "where_indices": lambda x: torch.where(x > 1),
}

# Python wants an answer now: the pending part runs, and the rest of the program goes on.
IMMEDIATE = {
    "equal": lambda x: torch.equal(x, x.clone()),
    "allclose": lambda x: torch.allclose(x, x + 1e-9),
    "item": lambda x: x.sum().item(),
    "bool": lambda x: bool((x > 0).any()),
    "tolist": lambda x: (x * 2).tolist(),
    "len": lambda x: len(x),
    "contains": lambda x: 2.0 in x,
    "max_index": lambda x: int(x.flatten().argmax()),
    "is_nonzero": lambda x: torch.is_nonzero(x.sum()),
    "iterate": lambda x: [row.sum().item() for row in x],
}


def numbers():
    return torch.tensor([[0.0, 1.0, 2.0], [2.0, 0.0, 3.0], [1.0, 1.0, 5.0]])


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", DATA_DEPENDENT)
def test_data_dependent_sizes(name, state):
    both(DATA_DEPENDENT[name], numbers(), state=state, fallbacks=None)


@pytest.mark.lazy_only
def test_whether_tensors_are_equal_is_a_read():
    x = numbers()
    pairs = [(x, x + 0), (x, x + 1), (x, x.t()), (x, x[:2]), (x / 0, x / 0), (x[:0], x[:0])]
    pairs += [(x, x.double()), (x > 1, x)]
    for a, b in pairs:
        with work() as done:
            assert torch.equal(a.to(DEVICE), b.to(DEVICE)) is torch.equal(a, b)
        assert done.fallbacks == 0


@pytest.mark.parametrize("name", IMMEDIATE)
def test_immediate_answers(name):
    both(IMMEDIATE[name], numbers(), fallbacks=None)


@pytest.mark.lazy_only
def test_nobody_is_asked_for_a_shape_that_depends_on_data():
    x = torch.rand(3, 4, device=DEVICE)
    mask = x > 0.5
    finish_pending()
    before = metrics.counter_value("ShapeInference")
    assert torch.equal(x[mask].cpu(), x.cpu()[mask.cpu()])
    assert metrics.counter_value("ShapeInference") == before


def test_repeats_whose_sum_is_known_are_recorded():
    x, repeats = torch.rand(3, 4), torch.tensor([1, 0, 4])
    for dim, width in ((0, 5), (None, None)):
        repeats = repeats if width else torch.arange(12)
        size = width or 66
        for _ in range(2):
            both(lambda x, n, d=dim, s=size: x.repeat_interleave(n, d, output_size=s), x, repeats)
    with pytest.raises(RuntimeError, match="allocated size does not match required size"):
        x.to(DEVICE).repeat_interleave(repeats.to(DEVICE), output_size=3).cpu()


@pytest.mark.lazy_only
@pytest.mark.parametrize(
    "op, call",
    (
        ("aten::nonzero", lambda x: x.nonzero()),
        ("aten::masked_select", lambda x: x.masked_select(x > 1)),
        ("aten::_unique2", lambda x: torch.unique(x)),
        ("aten::unique_consecutive", lambda x: torch.unique_consecutive(x)),
        ("aten::bincount", lambda x: torch.bincount(x.flatten().to(torch.int64))),
    ),
)
def test_fallbacks_are_counted_by_name(op, call):
    import torch_lazyplug

    x = numbers().to(DEVICE)
    with work() as done:
        call(x)
        call(x)
    assert done.fallback_ops == {op: 2}
    assert done.fallbacks == 2
    assert op in torch_lazyplug.metrics.executed_fallback_ops()
    assert op in torch_lazyplug.metrics.metrics_report()


@pytest.mark.lazy_only
def test_reset_forgets_fallbacks():
    import torch_lazyplug

    numbers().to(DEVICE).nonzero()
    torch_lazyplug.metrics.reset()
    assert torch_lazyplug.metrics.executed_fallback_ops() == []
    assert not torch_lazyplug.metrics.counter_value("aten::nonzero")


@pytest.mark.lazy_only
def test_recordable_ops_do_not_fall_back():
    x = numbers().to(DEVICE)
    with work() as done:
        y = (x @ x).softmax(1).sort(1).values.cumsum(0).topk(2).values
        z = torch.nn.functional.gelu(y).var(0) + torch.linalg.norm(x, dim=0)[:2]
        z.cpu()
    assert done.fallbacks == 0, done.fallback_ops


@pytest.mark.smoke
def test_fallback_in_the_middle_of_a_graph():
    def compute(x):
        before = x * 2 + 1
        positions = before.nonzero()
        after = before[positions[:, 0], positions[:, 1]].sum() + positions.shape[0]
        x.mul_(3)
        return before, positions, after, x.masked_select(x > 3).sum()

    for _ in range(2):
        both(compute, numbers(), fallbacks=None)


def test_fallback_sees_writes_made_through_views():
    def compute(x):
        x[0] = 0
        x.t()[2] += 1
        return x.nonzero()

    both(compute, numbers(), fallbacks=None)


def test_fallback_under_autograd():
    def compute(x):
        y = x * 2
        (y.masked_select(y > 2).square().sum() + y[y > 3].sum()).backward()
        return y

    both(compute, numbers().requires_grad_(), fallbacks=None)


def test_sparse_and_quantized_are_refused_or_right():
    """Storage formats of other backends: a clear error or the right numbers, never a crash."""
    x = numbers().to(DEVICE)
    try:
        dense = x.to_sparse().to_dense()
    except (RuntimeError, NotImplementedError):
        pass
    else:
        torch.testing.assert_close(dense.cpu(), numbers())
    assert x.sum().item() == 15


# Forced --------------------------------------------------------------------------------------------------------------


def forced_program(x, y):
    a = x + y
    b = a.sigmoid()
    b[0].add_(1)
    out = torch.empty(0, device=x.device)
    torch.add(a, b, out=out)
    out.t().mul_(2)
    return a, b, out


@pytest.mark.lazy_only
@pytest.mark.parametrize("names", ("aten::add", "aten::add.Tensor", "aten::sigmoid,aten::mul*", "all"))
def test_forced_fallback_changes_no_result(forced, names):
    forced(names)
    with work() as done:
        both(forced_program, numbers(), numbers().t(), fallbacks=None)
    assert done.fallbacks > 0


@pytest.mark.lazy_only
def test_forced_fallback_counts_only_the_named(forced):
    x = numbers().to(DEVICE)
    forced("aten::sigmoid")
    with work() as done:
        (x.sigmoid() + x.tanh()).cpu()
    assert done.fallback_ops == {"aten::sigmoid": 1}
    forced("")
    with work() as done:
        (x.sigmoid() + x.tanh()).cpu()
        finish_pending()
    assert done.fallbacks == 0


@pytest.mark.lazy_only
def test_forced_fallback_training_step(forced):
    forced("aten::addmm,aten::mm,aten::threshold_backward")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    batches = [(torch.rand(5, 4), torch.randint(2, (5,))) for _ in range(3)]
    done = train_both(
        model,
        batches,
        lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
        lambda m, x, y: torch.nn.functional.cross_entropy(m(x), y),
    )
    assert set(done.fallback_ops) <= {"aten::addmm", "aten::mm", "aten::threshold_backward"}
    assert done.fallbacks > 0
