"""debug.bisect: the op, or the pass, by which a program on the device parts from the CPU's."""

import inspect
import random

import pytest
import torch
import torch.nn.functional as F
from helpers import copies, work
from torch.library import Library

from torch_lazyplug import config, debug, metrics
from torch_lazyplug.bisection import PASSES, runs
from torch_lazyplug.bisection.copies import Copies
from torch_lazyplug.bisection.differences import Tolerances, find_difference

pytestmark = pytest.mark.lazy_only

LAZY, CPU = torch.device("lazy"), torch.device("cpu")

# Ops whose kernels for the device are wrong.
_library = Library("lazyplug_bisect", "FRAGMENT")


def define(schema, on_cpu, on_device):
    _library.define(schema)
    name = schema.split("(")[0]
    _library.impl(name, on_cpu, "CPU")
    _library.impl(name, on_device, "PrivateUse1")


def raise_value_error(*args):
    raise ValueError("only here")


def fill_with_three(x):
    x.fill_(3)


define("scale(Tensor x, float by) -> Tensor", lambda x, by: x * by, lambda x, by: x * by + 0.5)
define("add_one_(Tensor(a!) x) -> Tensor(a!)", lambda x: x.add_(1), lambda x: x.add_(1.25))
define("write(Tensor(a!) x) -> ()", lambda x: None, fill_with_three)
define("refuse(Tensor x) -> Tensor", lambda x: x.clone(), raise_value_error)
define("refuse_on_cpu(Tensor x) -> Tensor", raise_value_error, lambda x: x.clone())
define("wide(Tensor x) -> Tensor", lambda x: x.clone(), lambda x: x.double())
_library.define("same(Tensor(a) x) -> Tensor(a)")
_library.impl("same", lambda x: x.view(x.shape), "CPU")
_library.impl("same", lambda x: x.clone(), "PrivateUse1")

ops = torch.ops.lazyplug_bisect


def line_of(function, text):
    """Where the line with this text stands."""
    lines, start = inspect.getsourcelines(function)
    (number,) = [i for i, line in enumerate(lines) if text in line]
    return f"{__file__}:{start + number}"


# Equal programs ------------------------------------------------------------------------------------------------------


def train(model, x, labels):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
    return loss.item()


def write_views(x, y):
    x[1:].mul_(2)
    y += x[0]
    x.t()[0] = y.sum()


def network():
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.GELU(), torch.nn.Linear(8, 3))


SHARED = torch.arange(12.0)
EQUAL = {
    "training": (train, lambda: (network(), torch.randn(5, 4), torch.randint(3, (5,)))),
    "writes": (write_views, lambda: (torch.randn(3, 4), torch.randn(4))),
    "shared memory": (write_views, lambda: (SHARED.view(3, 4), SHARED[8:])),
    "gradients": (lambda x: (x.sin() ** 2).sum().backward(), lambda: torch.randn(3).requires_grad_()),
    "nested": (lambda d, pair: {"a": [d["x"] + pair[0]]}, lambda: ({"x": torch.ones(2)}, (torch.ones(2), 3))),
    "NaN": (lambda x: (x / 0, x.sqrt(), (x / 0) - (x / 0)), lambda: torch.tensor([-1.0, 0.0, 1.0])),
    "numbers": (lambda x, n: (x.sum().item() / 3, n, x.argmax().item(), "text", None), lambda: (torch.ones(3), 2)),
    "from the device": (lambda x: x * 2, lambda: torch.ones(3, device="lazy") + 1),
    "no inputs": (lambda: torch.ones(3).numpy().sum(), lambda: ()),
    "the same error": (lambda x: x.index_select(0, x.new_tensor([9]).long()), lambda: torch.ones(3)),
    "complex": (lambda x: x.conj() @ x + x.imag.sum(), lambda: torch.randn(3, dtype=torch.complex64)),
    "LSTM": (lambda lstm, x: lstm(x)[0].sum().backward(), lambda: (torch.nn.LSTM(3, 4), torch.randn(5, 2, 3))),
    "zero tensors": (lambda x: torch.func.hessian(lambda a: a.pow(3).sum())(x), lambda: torch.randn(3)),
    "nested tensors": (lambda x: torch.nested.nested_tensor([x, x[1:]]).to_padded_tensor(0.0), lambda: torch.randn(3)),
    "data-dependent": (lambda x: x[x > 0].unique(), lambda: torch.randn(8)),
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal_programs(name):
    function, make_inputs = EQUAL[name]
    finding = debug.bisect(function, make_inputs())
    assert not finding and finding.kind == "equal" and str(finding) == "The devices agree", finding


@pytest.mark.parametrize("name", EQUAL)
def test_each_op_of_equal_programs_is_right(name, monkeypatch):
    """The run op by op, which equal programs do not come to, finds nothing either, and then no switch is blamed."""
    spoil(monkeypatch, lambda settings: True)
    function, make_inputs = EQUAL[name]
    finding = debug.bisect(function, make_inputs())
    assert finding.kind == "unexplained" and finding.difference.where == "spoiled", finding
    assert "all passes and schedules off" in finding.detail


def test_the_callers_tensors_and_modules_are_left_alone():
    model, x = network(), torch.randn(5, 4)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    debug.bisect(train, (model, x, torch.zeros(5, dtype=torch.int64)))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(p.grad is None and p.device.type == "cpu" for p in model.parameters())


def test_a_module_can_be_the_program():
    assert not debug.bisect(network(), torch.randn(5, 4))


# Wrong ops -----------------------------------------------------------------------------------------------------------


def wrong_forward(x):
    y = (x * 2).relu()
    z = ops.scale(y[:, 1:], 3.0)  # wrong
    return ops.scale(z, 1.0)


def wrong_in_place(x):
    y = x * 1
    ops.add_one_(y[1])  # wrong
    return y.sum()


def wrong_write(x):
    ops.write(x[1:])  # wrong


class WrongBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return ops.scale(gradient, 2.0)  # wrong


def wrong_backward(x):
    y = x.clone().requires_grad_()
    WrongBackward.apply(y).square().sum().backward()
    return y.grad


def wrong_dtype(x):
    return ops.wide(x)  # wrong


def wrong_alias(x):
    y = ops.same(x)  # wrong
    return y.add_(1), x


WRONG = {
    wrong_forward: ("scale", "x: float32[2, 2] strides (3, 1)", "result", 0.5),
    wrong_in_place: ("add_one_", "x: float32[3] strides (1,)", "result", 0.25),
    wrong_write: ("write", "x: float32[1, 3] strides (3, 1)", "x", 2.0),
    wrong_dtype: ("wide", "x: float32[2, 3] strides (3, 1)", "result", None),
    wrong_alias: ("same", "x: float32[2, 3] strides (3, 1)", "result", None),
}


@pytest.mark.parametrize("program", WRONG)
def test_the_first_wrong_op_is_named(program):
    op, operand, where, greatest = WRONG[program]
    finding = debug.bisect(program, torch.ones(2, 3))
    assert finding and finding.kind == "op"
    assert finding.op == f"lazyplug_bisect::{op}" and finding.location == line_of(program, "# wrong")
    assert finding.operands[0] == operand
    assert (finding.difference.where, finding.difference.greatest) == (where, greatest)
    text = str(finding)
    assert all(part in text for part in (finding.op, finding.location, operand, finding.difference.text))


def test_an_op_of_a_backward_pass_is_named():
    finding = debug.bisect(wrong_backward, torch.ones(2, 3))
    assert (finding.kind, finding.op) == ("op", "lazyplug_bisect::scale")
    assert finding.location == line_of(WrongBackward, "# wrong") + " (in WrongBackwardBackward)"


def test_numbers_among_operands_are_shown():
    assert debug.bisect(wrong_forward, torch.ones(2, 3)).operands[1] == "by: 3.0"


def test_tolerances_can_be_given():
    assert not debug.bisect(wrong_in_place, torch.ones(2, 3), atol=10)
    assert not debug.bisect(lambda x: ops.scale(x, 1.0), torch.full((3,), 100.0), rtol=0.01)
    assert debug.bisect(lambda x: ops.scale(x, 1.0), torch.full((3,), 100.0), rtol=0.001)


@pytest.mark.parametrize("op, device, other", [("refuse", "lazy", "the CPU"), ("refuse_on_cpu", "the CPU", "lazy")])
def test_an_error_on_one_device_is_named(op, device, other):
    def program(x):
        return getattr(ops, op)(x + 1) * 2  # wrong

    finding = debug.bisect(program, torch.ones(2))
    assert (finding.kind, finding.op) == ("error", f"lazyplug_bisect::{op}")
    assert finding.location == line_of(program, "# wrong")
    assert f"on {device}, not on {other}: ValueError: only here" in str(finding)


def test_an_error_that_depends_on_values_belongs_to_its_op(monkeypatch):
    """Its op has raised on both devices when the program goes on."""

    def program(x):
        try:
            x.index_select(0, x.new_tensor([9]).long())
        except IndexError:
            return x + 1
        return x

    finding = debug.bisect(program, torch.ones(3))
    assert finding.kind == "schedule" and finding.pass_name == "launch_blocking=True", finding


def test_programs_that_do_something_else_on_the_device_are_told_apart():
    def program(x):
        return x.sin() if x.device.type == "lazy" else x.cos()  # wrong

    finding = debug.bisect(program, torch.ones(3))
    line = line_of(program, "# wrong")
    assert finding.kind == "unexplained"
    assert finding.detail == f"the first call that differs is aten::sin at {line}, on the CPU aten::cos at {line}"


# Random numbers ------------------------------------------------------------------------------------------------------


def draw(x):
    y = F.dropout(x, 0.5) + torch.rand_like(x)
    return y.normal_() * torch.randperm(3, device=x.device)


def test_random_numbers_are_no_difference():
    finding = debug.bisect(draw, torch.ones(3))
    assert not finding and "random numbers were drawn" in str(finding)


def test_random_numbers_of_the_cpu_are_the_same():
    finding = debug.bisect(lambda x: x + torch.rand(3).to(x.device) + random.random(), torch.ones(3))
    assert not finding and finding.detail == ""


def test_wrong_ops_are_found_among_random_ones():
    def program(x):
        return ops.scale(draw(x), 2.0)

    assert debug.bisect(program, torch.ones(3)).op == "lazyplug_bisect::scale"


def test_generators_go_on_where_they_were():
    torch.manual_seed(3)
    random.seed(3)
    expected = torch.rand(3), torch.rand(3, device=LAZY).cpu(), random.random()
    torch.manual_seed(3)
    random.seed(3)
    debug.bisect(draw, torch.ones(3))
    assert torch.equal(torch.rand(3), expected[0])
    assert torch.equal(torch.rand(3, device=LAZY).cpu(), expected[1])
    assert random.random() == expected[2]


# Passes and schedules ------------------------------------------------------------------------------------------------


def spoil(monkeypatch, is_wrong):
    """Has whole runs on the device leave a wrong value where settings say so, as if a pass or a schedule were wrong."""
    run = runs.Program.run

    def spoiled(self, device, mode=None, settings=None):
        outcome = run(self, device, mode, settings)
        with config.changed(settings or {}):
            value = 1.0 if device.type == "lazy" and mode is None and is_wrong(config) else 0.0
        return runs.Outcome({"spoiled": value, **outcome.values}, outcome.error, outcome.line)

    monkeypatch.setattr(runs.Program, "run", spoiled)


def without(name):
    return lambda config: name not in config.get("disabled_passes").split(",")


BLAMED = {
    "identities": (without("identities"), "pass", "identities"),
    "destinations": (without("destinations"), "pass", "destinations"),
    "fusion": (lambda config: config.get("fusion") != 0, "pass", "fusion"),
    "overlap": (lambda config: config.get("overlap") != "never", "schedule", "overlap=never"),
    "cuts": (lambda config: config.get("schedule") != "never", "schedule", "schedule=never"),
    "blocking": (lambda config: not config.get("launch_blocking"), "schedule", "launch_blocking=True"),
    "two passes": (lambda c: without("identities")(c) or without("dead_code")(c), "pass", "any pass"),
}


@pytest.mark.parametrize("name", BLAMED)
@pytest.mark.own_schedule("changes the schedule itself")
def test_what_mends_a_program_is_to_blame(name, monkeypatch):
    is_wrong, kind, blamed = BLAMED[name]
    spoil(monkeypatch, is_wrong)
    finding = debug.bisect(lambda x: x.exp() + x.exp(), torch.ones(3))
    assert (finding.kind, finding.pass_name) == (kind, blamed)
    assert finding.difference.where == "spoiled" and finding.difference.greatest == 1
    assert finding.mended_by[-1] == "everything off" and blamed in str(finding)
    assert ("no single setting" in finding.detail) == (name == "two passes")


def test_what_comes_and_goes_is_said(monkeypatch):
    wrong = iter([True, False])
    spoil(monkeypatch, lambda config: next(wrong))
    finding = debug.bisect(torch.exp, torch.ones(3))
    assert (finding.kind, finding.pass_name) == ("schedule", "")
    assert "the next run, with the same settings, was right" in str(finding)


def test_a_wrong_run_of_random_numbers_is_one(monkeypatch):
    spoil(monkeypatch, without("pure_writes"))
    assert debug.bisect(draw, torch.ones(3)).pass_name == "pure_writes"


def test_all_passes_are_tried():
    torch.ones(3, device=LAZY).exp().cpu()
    run = {name.removeprefix("PassTime/") for name in metrics.metric_names() if name.startswith("PassTime/")}
    assert run and run <= set(PASSES)


class Stop(BaseException):
    pass


@pytest.mark.parametrize("error", [ValueError, Stop])
@pytest.mark.own_schedule("changes the schedule itself")
def test_settings_are_restored(error, monkeypatch):
    config.set("disabled_passes", "identities")
    before = {name: config.get(name) for name in config.names()}
    calls = []

    def program(x):
        calls.append({name: config.get(name) for name in before})
        if config.get("launch_blocking"):
            raise error
        return x + 1

    try:
        spoil(monkeypatch, lambda config: True)
        try:
            debug.bisect(program, torch.ones(3))
        except Stop:
            assert error is Stop
        assert {name: config.get(name) for name in before} == before
    finally:
        config.set("disabled_passes", "")
    assert all("identities" in call["disabled_passes"] for call in calls)
    assert any(call["disabled_passes"] == "identities,dead_code" for call in calls)
    assert any(call["launch_blocking"] for call in calls) and not calls[0]["launch_blocking"]


# The parts -----------------------------------------------------------------------------------------------------------


def test_copies_lie_and_share_like_the_originals():
    base = torch.arange(12.0)
    originals = [base.view(3, 4).t()[1:], base[4:8], base.requires_grad_(False)]
    for actual, expected in zip(Copies(LAZY).of(originals), copies(originals, "cpu"), strict=True):
        assert actual.device.type == "lazy" and torch.equal(actual.cpu(), expected)
        assert (actual.stride(), actual.storage_offset()) == (expected.stride(), expected.storage_offset())
    a, b, c = Copies(LAZY).of(originals)
    b.zero_()
    assert c[4:8].tolist() == [0] * 4 and a[0, 1].item() == 0
    assert base[4:8].tolist() == [4, 5, 6, 7]


def test_copies_of_modules_are_on_the_device_and_tied_as_before():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3), torch.nn.LSTM(3, 3))
    model[1].weight = model[0].weight
    model.extra = [torch.ones(2)]
    model[0].bias.grad = torch.ones(3)
    copied, weight = Copies(LAZY).of((model, model[0].weight))
    assert copied[0].weight is copied[1].weight is weight and isinstance(weight, torch.nn.Parameter)
    assert copied[2]._flat_weights[0] is copied[2].weight_ih_l0
    assert copied.extra[0].device.type == copied[0].bias.grad.device.type == "lazy"
    assert {p.device.type for p in copied.parameters()} == {"lazy"}


def test_optimizers_are_refused():
    optimizer = torch.optim.SGD([torch.ones(1).requires_grad_()])
    with pytest.raises(TypeError, match="make it inside of the function"):
        debug.bisect(lambda o: None, (optimizer,))


NAN, INF = float("nan"), float("inf")
PAIRS = [
    (torch.tensor([1.0, NAN, INF]), torch.tensor([1.0 + 1e-7, NAN, INF]), None),
    (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5]), 0.5),
    (torch.tensor([1, 2]), torch.tensor([1, 4]), 2),
    (torch.tensor([True]), torch.tensor([False]), 1),
    (torch.tensor([1j, 2]), torch.tensor([1j, -2]), 4),
    (torch.tensor([1.0]).to_sparse(), torch.tensor([3.0]).to_sparse(), 2),
    (torch.tensor(1.0, dtype=torch.bfloat16), torch.tensor(1.004, dtype=torch.bfloat16), None),
    (torch.tensor([INF]), torch.tensor([1.0]), INF),
    (2**60 + 1, 2**60, 1),
    (0.1 + 1e-9, 0.1, None),
    (NAN, NAN, None),
    (torch.ones(0), torch.ones(0), None),
]


@pytest.mark.parametrize("actual, expected, greatest", PAIRS)
def test_differences_of_values(actual, expected, greatest):
    difference = find_difference("here", actual, expected, Tolerances())
    assert (difference and difference.greatest) == greatest
    assert difference is None or str(difference).startswith("here: ")


@pytest.mark.parametrize(
    "actual, expected", [(torch.ones(2), torch.ones(1, 2)), (1, 1.0), (1, torch.ones(1)), ("a", "b")]
)
def test_differences_of_kinds(actual, expected):
    assert " instead of " in find_difference("here", actual, expected, Tolerances()).text


def test_nothing_is_run_on_the_cpu_that_the_program_does_not():
    """Watching an op does not make the device fall back."""
    with work() as done:
        debug.bisect(wrong_in_place, torch.ones(2, 3))
    assert done.fallbacks == 0
