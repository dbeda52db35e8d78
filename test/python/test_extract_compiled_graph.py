"""Modules whose graph is recorded once and then run without them."""

import copy

import pytest
import torch
from helpers import work
from torch import fx, nn

from torch_lazyplug import config, ir_cache
from torch_lazyplug.extract_compiled_graph import extract_compiled_graph

pytestmark = [pytest.mark.lazy_only, pytest.mark.own_schedule("extracts a graph that is pending as a whole")]


def scale(a):
    return a * 2


def subtract(a, b):
    return a - b


def addcmul(a, b, c):
    return torch.addcmul(a, b, c, value=5)


def several(a, b):
    return b + 1, a - 1


def duplicates(a, b):
    c = a + b
    return a - b, c, a + 1, c


def in_place(a, b):
    a.sub_(b)
    return b - 1, b + 1


def in_place_through_a_view(a, b):
    a[0].mul_(2)
    a.t().add_(1)
    return a.sum(), b


def in_place_and_returned(a):
    return a.add_(1), a * 2


def inputs_as_results(a, b):
    return b, a, a + b


def views(a):
    b = a + 1
    return b.t(), b[0], b.view(-1), a.t()


def no_results(a):
    a.zero_()


def unused(a, b):
    return b * 1


def factories(a):
    return a + torch.ones(2, 3) + torch.arange(3, device=torch.device("cpu")) + torch.zeros(3, device="cpu")


def nested(a):
    return {"x": a + 1, "y": [a * 2, 3]}


def longer_than_a_chunk(a):
    for i in range(400):
        a = a + i % 3
    return a


FUNCTIONS = (
    scale,
    subtract,
    addcmul,
    several,
    duplicates,
    in_place,
    in_place_through_a_view,
    in_place_and_returned,
    inputs_as_results,
    views,
    no_results,
    unused,
    factories,
    nested,
    longer_than_a_chunk,
)


class Modules:
    class Parameters(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 2)
            self.scale = nn.Parameter(torch.tensor(0.5))

        def forward(self, a):
            return self.linear(a) * self.scale, self.scale

    class Buffers(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(3)

        def forward(self, a):
            return self.norm(a), self.norm(a + 1)

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(3, 3)
            self.second = nn.Linear(3, 3)
            self.second.weight = self.first.weight

        def forward(self, a):
            return self.second(self.first(a))


def random_args(function):
    code = function.__code__
    return [torch.randn(2, 3) for _ in range(code.co_argcount - (code.co_varnames[0] == "self"))]


def flat(results):
    if isinstance(results, torch.Tensor) or not isinstance(results, (tuple, list)):
        results = [results]
    return list(results)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_functions(function):
    compiled = extract_compiled_graph(fx.symbolic_trace(function), random_args(function))
    for _ in range(3):
        args = random_args(function)
        copies = copy.deepcopy(args)
        with work() as done:
            actual = compiled(*copies)
        expected = flat(function(*args))
        torch.testing.assert_close(actual, expected if expected != [None] else [None])
        torch.testing.assert_close(copies, args)
        assert (done.recorded, done.compiles) == (0, 0)
        for a, e in zip(actual, expected, strict=True):
            if isinstance(e, torch.Tensor):
                assert a.stride() == e.stride()
                assert [a is arg for arg in copies] == [e is arg for arg in args]


@pytest.mark.parametrize("module", (Modules.Parameters, Modules.Buffers, Modules.Tied), ids=lambda m: m.__name__)
def test_modules_whose_state_changes(module):
    expected_model, model = module(), module()
    model.load_state_dict(expected_model.state_dict())
    compiled = extract_compiled_graph(fx.symbolic_trace(model), [torch.randn(4, 3)])
    for _ in range(3):
        a = torch.randn(4, 3)
        with torch.no_grad():
            torch.testing.assert_close(compiled(a), flat(expected_model(a)))
            torch.testing.assert_close(dict(model.state_dict()), dict(expected_model.state_dict()))
            for parameter in (*model.parameters(), *expected_model.parameters()):
                parameter.mul_(1.5)


def test_recording_changes_neither_arguments_nor_state():
    model = Modules.Buffers()
    before = copy.deepcopy(model.state_dict())
    a = torch.randn(4, 3)
    kept = a.clone()
    extract_compiled_graph(fx.symbolic_trace(model), [a])
    torch.testing.assert_close(dict(model.state_dict()), dict(before))
    torch.testing.assert_close(a, kept)


def test_lazy_arguments_give_lazy_results():
    example = [torch.ones(2, 3, device="lazy"), torch.ones(2, 3, device="lazy")]
    compiled = extract_compiled_graph(fx.symbolic_trace(in_place), example)
    a, b = torch.full((2, 3), 5.0, device="lazy") * 1, torch.ones(2, 3, device="lazy") * 2
    results = compiled(a, b)
    assert [r.device.type for r in results] == ["lazy", "lazy"]
    assert (results[0].unique().tolist(), a.unique().tolist()) == ([1], [3])


def test_random_ops_draw_new_numbers():
    compiled = extract_compiled_graph(fx.symbolic_trace(lambda a: torch.bernoulli(a)), [torch.full((1000,), 0.5)])
    a = torch.full((1000,), 0.5)
    (first,), (second,) = compiled(a), compiled(a)
    assert not torch.equal(first, second)
    assert 0.4 < first.mean() < 0.6
    torch.manual_seed(3)
    (third,) = compiled(a)
    torch.manual_seed(3)
    assert torch.equal(compiled(a)[0], third)


def test_the_graph_outlives_the_cache():
    compiled = extract_compiled_graph(fx.symbolic_trace(scale), [torch.ones(2, 3)])
    ir_cache.reset()
    assert compiled(torch.ones(2, 3))[0].unique().tolist() == [2]


def test_fallbacks_are_refused():
    config.set_force_fallback("aten::sub")
    try:
        with pytest.raises(RuntimeError, match="fallback.*aten::sub=1"):
            extract_compiled_graph(fx.symbolic_trace(subtract), random_args(subtract))
    finally:
        config.set_force_fallback("")


def test_looking_at_values_is_refused():
    class Look(nn.Module):
        def forward(self, a):
            return a * a.sum().item()

    model = fx.Graph()
    a = model.placeholder("a")
    total = model.call_method("item", (model.call_method("sum", (a,)),))
    model.output(model.call_function(torch.mul, (a, total)))
    with pytest.raises(RuntimeError, match="the model looks at the values of tensors"):
        extract_compiled_graph(fx.GraphModule(Look(), model), [torch.ones(2)])


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((torch.ones(2, 3),), TypeError, "takes 2 arguments, got 1"),
        ((torch.ones(2, 3), torch.ones(2)), RuntimeError, r"must be Float\[2, 3\]"),
        ((torch.ones(2, 3, requires_grad=True), torch.ones(2, 3)), RuntimeError, "has no backward"),
    ],
)
def test_wrong_arguments(args, error, message):
    compiled = extract_compiled_graph(fx.symbolic_trace(subtract), random_args(subtract))
    with pytest.raises(error, match=message):
        compiled(*args)


def test_written_arguments_that_share_memory_are_refused():
    a = torch.ones(3, 3)
    with pytest.raises(RuntimeError, match="argument 0, which shares its memory"):
        extract_compiled_graph(fx.symbolic_trace(in_place), [a, a.t()])


def test_settings_are_restored():
    before = {name: config.get(name) for name in config.names()}
    extract_compiled_graph(fx.symbolic_trace(scale), [torch.ones(2)])
    assert {name: config.get(name) for name in config.names()} == before
