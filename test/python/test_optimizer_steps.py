"""A step of an optimizer is one node, with the bits of the `_foreach_` calls that PyTorch makes of it."""

import collections
import copy
from functools import partial

import pytest
import torch
from helpers import DEVICE, IS_LAZY, assert_same, assert_same_error, run_fresh, work
from torch.optim import SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, NAdam, RAdam, RMSprop
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import torch_lazyplug
from torch_lazyplug import config

SHAPES = [(3, 4), (7,), (), (2, 3, 4, 5), (33, 65), (0, 3), (1,)]

DECAY, MAXIMIZE = {"weight_decay": 0.1}, {"maximize": True}
CENTERED_MOMENTUM = {"centered": True, "momentum": 0.9}
SETTINGS = {
    "AdamW": (AdamW, {}),
    "AdamW without decay": (AdamW, {"weight_decay": 0}),
    "AdamW, betas, eps": (AdamW, {"betas": (0.8, 0.9), "eps": 1e-3, "lr": 0.3}),
    "AdamW, integer lr": (AdamW, {"lr": 1}),
    "AdamW, maximize": (AdamW, {"maximize": True}),
    "Adam": (Adam, {}),
    "Adam, decay": (Adam, {"weight_decay": 0.1}),
    "Adam, decay, maximize": (Adam, {"weight_decay": 0.1, "maximize": True}),
    "Adam, amsgrad": (Adam, {"amsgrad": True, "lr": 0.1}),
    "Adadelta": (Adadelta, {}),
    "Adadelta, decay": (Adadelta, DECAY),
    "Adadelta, decay, maximize": (Adadelta, DECAY | MAXIMIZE),
    "Adagrad": (Adagrad, {}),
    "Adagrad, maximize": (Adagrad, MAXIMIZE | {"lr": 0.3}),
    "Adagrad, everything": (Adagrad, DECAY | MAXIMIZE | {"lr_decay": 0.1, "initial_accumulator_value": 0.5}),
    "Adamax": (Adamax, {}),
    "Adamax, decay": (Adamax, DECAY | {"betas": (0.8, 0.9)}),
    "Adamax, maximize": (Adamax, MAXIMIZE),
    "NAdam": (NAdam, {}),
    "NAdam, decay, maximize": (NAdam, DECAY | MAXIMIZE),
    "NAdam, decoupled decay": (NAdam, DECAY | {"decoupled_weight_decay": True, "momentum_decay": 0.1}),
    "RAdam": (RAdam, {}),  # not yet rectified
    "RAdam, short memory": (RAdam, {"betas": (0.5, 0.9), "lr": 0.1}),
    "RAdam, decay, maximize": (RAdam, DECAY | MAXIMIZE),
    "RAdam, decoupled decay": (RAdam, DECAY | {"decoupled_weight_decay": True}),
    "RMSprop": (RMSprop, {}),
    "RMSprop, decay, maximize": (RMSprop, DECAY | MAXIMIZE),
    "RMSprop, momentum": (RMSprop, {"momentum": 0.9}),
    "RMSprop, centered": (RMSprop, {"centered": True, "alpha": 0.9}),
    "RMSprop, everything": (RMSprop, DECAY | MAXIMIZE | CENTERED_MOMENTUM),
    "SGD": (SGD, {"lr": 0.1}),
    "SGD, decay": (SGD, {"lr": 0.1, "weight_decay": 0.1}),
    "SGD, momentum": (SGD, {"lr": 0.1, "momentum": 0.9}),
    "SGD, Nesterov": (SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "SGD, Nesterov, decay": (SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True} | DECAY),
    "SGD, Nesterov, maximize": (SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True} | MAXIMIZE),
    "SGD, everything": (SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.2, "weight_decay": 0.1, "maximize": True}),
}
CHOICES = {"chosen": {}, "foreach": {"foreach": True}}


def parameters(device, dtype=torch.float32):
    torch.manual_seed(0)
    tensors = [torch.randn(shape, dtype=dtype) for shape in SHAPES]
    tensors[3] = tensors[3].to(memory_format=torch.channels_last)
    return [t.to(device).requires_grad_() for t in tensors]


def set_gradients(tensors, step):
    torch.manual_seed(100 + step)
    for tensor in tensors:
        tensor.grad = torch.empty_like(tensor).copy_(torch.randn(tensor.shape, dtype=tensor.dtype))


def train(optimizer_class, options, device, dtype=torch.float32, steps=5, change=lambda optimizer, step: None):
    """Parameters, gradients, and what the optimizer keeps, after some steps."""
    tensors = parameters(device, dtype)
    optimizer = optimizer_class(tensors, **options)
    for step in range(steps):
        set_gradients(tensors, step)
        change(optimizer, step)
        optimizer.step()
    tensors += [t.grad for t in tensors if t.grad is not None]  # Nesterov's method changes them
    return [t.detach() for t in tensors], [t._version for t in tensors], optimizer.state_dict()["state"]


def on_cpu(trained):
    tensors, versions, state = trained
    return [t.cpu() for t in tensors], versions, [{k: v.cpu() for k, v in s.items()} for s in state.values()]


def makes_momentum(optimizer_class, options):
    """Whether PyTorch makes what is kept out of the first gradients, one by one."""
    return optimizer_class is SGD and "momentum" in options


def count(name):
    return torch_lazyplug.metrics.counter_value(name) or 0


class Calls:
    """How many steps were recorded as one node, and how many `_foreach_` calls were."""

    def __enter__(self):
        self._before = self._now()
        return self

    def __exit__(self, *_):
        self.updates, self.foreach = (now - before for now, before in zip(self._now(), self._before, strict=True))

    @staticmethod
    def _now():
        names = [name for name in torch_lazyplug.metrics.counter_names() if name.startswith("lazy::_foreach_")]
        return count("lazy::tile_update_"), sum(count(name) for name in names)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64), ids=str)
@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.smoke
def test_one_node_with_the_same_bits(name, choice, dtype):
    optimizer_class, options = SETTINGS[name]
    options = options | CHOICES[choice]
    with work() as done, Calls() as calls:
        actual = train(optimizer_class, options, DEVICE, dtype)
    assert_same(actual, train(optimizer_class, options | {"foreach": True}, "cpu", dtype))
    if IS_LAZY:
        makes_buffers = makes_momentum(optimizer_class, options)
        assert calls.updates == 5 - makes_buffers
        assert (calls.foreach != 0) == makes_buffers
        assert not done.fallbacks, done.fallback_ops


def adds_multiples(optimizer_class, options):
    """Whether tensors are added with a factor, which the CPU rounds by place if they have 16 bits."""
    is_coupled = options.get("weight_decay", 0) and not options.get("decoupled_weight_decay")
    return (
        optimizer_class in (SGD, Adadelta)
        or (is_coupled and optimizer_class is not AdamW)
        or (optimizer_class is RMSprop and "momentum" in options)
    )


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16), ids=str)
@pytest.mark.parametrize("name", SETTINGS)
def test_floats_of_16_bits_are_rounded_by_each_call(name, dtype):
    optimizer_class, options = SETTINGS[name]
    with work() as done, Calls() as calls:
        actual = train(optimizer_class, options, DEVICE, dtype)
    assert_same(actual, train(optimizer_class, options | {"foreach": True}, "cpu", dtype))
    if IS_LAZY:
        assert calls.updates == (0 if adds_multiples(optimizer_class, options) else 5)
        assert not done.fallbacks, done.fallback_ops


@pytest.mark.parametrize("fusion", (1, 3))
@pytest.mark.parametrize("name", SETTINGS)
def test_the_bits_of_calls_that_run_alone(name, fusion):
    optimizer_class, options = SETTINGS[name]
    with config.changed({"fusion": fusion, "disabled_passes": "foreach_groups"}), Calls() as calls:
        expected = on_cpu(train(optimizer_class, options, DEVICE))
    assert calls.updates == 0 and calls.foreach > 0
    with config.changed({"fusion": fusion}), Calls() as calls:
        actual = on_cpu(train(optimizer_class, options, DEVICE))
    assert calls.updates >= 4
    assert_same(actual, expected)


@pytest.mark.parametrize("optimizer_class", (Adagrad, AdamW, Adamax, NAdam, RAdam))
def test_steps_that_differ_from_parameter_to_parameter(optimizer_class):
    """One that has been frozen for a while has made fewer steps."""
    options = {"lr_decay": 0.5} if optimizer_class is Adagrad else {}

    def freeze(optimizer, step):
        if step < 2:
            optimizer.param_groups[0]["params"][1].grad = None

    with Calls() as calls:
        actual = train(optimizer_class, options, DEVICE, change=freeze)
    assert_same(actual, train(optimizer_class, options | {"foreach": True}, "cpu", change=freeze))
    assert calls.updates == 5


def test_other_numbers_need_no_other_graph():
    tensors = parameters(DEVICE)
    optimizer = AdamW(tensors)
    compiles = []
    for step in range(6):
        with work() as done:
            set_gradients(tensors, step)
            optimizer.param_groups[0]["lr"] = 1e-3 / (step + 1)
            optimizer.step()
            torch_lazyplug.mark_step(wait=True)
        compiles.append(done.compiles)
    assert sum(compiles[2:]) == 0, compiles


def test_groups_and_saved_state():
    def run(device):
        tensors = parameters(device)
        groups = [{"params": tensors[:2], "lr": 0.1}, {"params": tensors[2:], "weight_decay": 0.5}]
        optimizer = AdamW(groups, foreach=True)
        for step in range(2):
            set_gradients(tensors, step)
            optimizer.step()
        state = copy.deepcopy(optimizer.state_dict())
        optimizer = AdamW(groups, foreach=True)
        optimizer.load_state_dict(state)
        set_gradients(tensors, 2)
        optimizer.step()
        return [t.detach() for t in tensors], optimizer.state_dict()["state"]

    with Calls() as calls:
        actual = run(DEVICE)
    assert_same(actual, run("cpu"))
    assert calls.updates == 6


def test_views_of_one_storage():
    """As flat parameters are: PyTorch's calls, which know what overlaps."""

    def run(device):
        torch.manual_seed(0)
        flat = torch.randn(12).to(device)
        tensors = [flat[:4].requires_grad_(), flat[4:].requires_grad_()]
        optimizer = AdamW(tensors, foreach=True)
        for step in range(3):
            set_gradients(tensors, step)
            optimizer.step()
        return flat.detach(), [t.detach() for t in tensors]

    with Calls() as calls:
        actual = run(DEVICE)
    assert_same(actual, run("cpu"))
    assert calls.updates == 0


def test_gradients_that_lie_otherwise():
    def run(device):
        torch.manual_seed(0)
        tensor = torch.randn(3, 4).to(device).requires_grad_()
        optimizer = AdamW([tensor], foreach=True)
        for _ in range(3):
            tensor.grad = torch.randn(4, 3).to(device).t()
            optimizer.step()
        return tensor.detach()

    with Calls() as calls:
        actual = run(DEVICE)
    assert_same(actual, run("cpu"))
    assert calls.updates == 0 and calls.foreach > 0


@pytest.mark.parametrize(
    "options",
    (
        {"foreach": False},
        {"fused": True},
        {"capturable": True},
        {"differentiable": True},
        {"lr": torch.tensor(1e-3), "foreach": False},
    ),
    ids=str,
)
def test_other_variants_are_left_to_pytorch(options):
    with Calls() as calls:
        tensors = [p.detach().clone() for p in parameters(DEVICE)]
        optimizer = AdamW(tensors, **options)
        for tensor in tensors:
            tensor.grad = torch.ones_like(tensor)
        optimizer.step()
    assert calls.updates == 0


def test_subclasses_keep_their_ways():
    class Noisy(AdamW):
        def _init_group(self, *args):
            self.calls = getattr(self, "calls", 0) + 1
            return super()._init_group(*args)

    tensors = parameters(DEVICE)
    optimizer = Noisy(tensors)
    set_gradients(tensors, 0)
    optimizer.step()
    assert optimizer.calls == 1


class OtherMapping(collections.UserDict):
    def __missing__(self, key):
        self[key] = {}
        return self[key]


class CountedDict(collections.defaultdict):
    def __getitem__(self, key):
        self.reads = getattr(self, "reads", 0) + 1
        return super().__getitem__(key)


@pytest.mark.parametrize("device", ["cpu", DEVICE])
@pytest.mark.parametrize("optimizer_class", [partial(SGD, momentum=0.9), Adam])
def test_what_a_program_has_replaced_is_left_to_pytorch(optimizer_class, device):
    def steps(change):
        tensor = torch.ones(3).to(device).requires_grad_()
        optimizer = optimizer_class([tensor], lr=0.1)
        change(optimizer)
        for _ in range(3):
            tensor.grad = torch.ones(3).to(device)
            optimizer.step()
        return tensor.detach().cpu(), optimizer

    def set_tuple(optimizer):
        optimizer.param_groups[0]["params"] = tuple(optimizer.param_groups[0]["params"])

    def set_state(optimizer, state):
        optimizer.state = state

    expected, _ = steps(lambda optimizer: None)
    assert torch.equal(steps(set_tuple)[0], expected)
    assert torch.equal(steps(lambda optimizer: set_state(optimizer, OtherMapping()))[0], expected)
    actual, optimizer = steps(lambda optimizer: set_state(optimizer, CountedDict(dict)))
    assert torch.equal(actual, expected)
    assert optimizer.state.reads >= 3


def test_who_watches_sees_each_call():
    seen = []

    class Dispatched(TorchDispatchMode):
        def __torch_dispatch__(self, op, types, args=(), kwargs=None):
            seen.append(op.name())
            return op(*args, **(kwargs or {}))

    class Called(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(getattr(function, "__name__", ""))
            return function(*args, **(kwargs or {}))

    tensors = parameters(DEVICE)
    optimizer = AdamW(tensors)
    set_gradients(tensors, 0)
    for mode, name in ((Dispatched, "aten::_foreach_lerp_.Scalar"), (Called, "_foreach_lerp_")):
        seen.clear()
        with mode():
            optimizer.step()
        assert name in seen


def test_a_default_device_does_not_watch():
    tensors = parameters(DEVICE)
    optimizer = AdamW(tensors)
    set_gradients(tensors, 0)
    with torch.device(DEVICE), Calls() as calls:
        optimizer.step()
    assert calls.updates == 1


def test_forced_fallbacks_see_the_calls():
    tensors = parameters(DEVICE)
    optimizer = AdamW(tensors)
    set_gradients(tensors, 0)
    with config.changed({"force_fallback": "aten::_foreach_lerp_"}), work() as done:
        optimizer.step()
    assert done.fallback_ops == {"aten::_foreach_lerp_": 1}


def test_compiled_steps_are_taken_apart():
    """On the CPU, as without the plugin: one graph, and nothing of ours in it."""
    seen = []

    def backend(graph, inputs):
        seen.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    tensors = parameters("cpu")[:2]
    optimizer = SGD(tensors, lr=0.1, foreach=True)
    set_gradients(tensors, 0)
    expected = [t.detach().add(t.grad, alpha=-0.1) for t in tensors]
    torch.compile(optimizer.step, backend=backend)()
    assert_same([t.detach() for t in tensors], expected)
    assert any("_foreach_add_" in name for name in seen) and not any("lazyplug" in name for name in seen), seen


def test_numbers_that_overflow_raise_as_in_eager():
    def run(device):
        tensors = parameters(device)
        optimizer = SGD(tensors, lr=1e300, foreach=True)
        set_gradients(tensors, 0)
        with pytest.raises(RuntimeError) as raised:
            optimizer.step()
        return raised.value

    assert_same_error(run(DEVICE), run("cpu"))


@pytest.mark.parametrize("optimizer_class", (AdamW, Adamax, RAdam))
def test_correction_by_zero_raises_as_in_eager(optimizer_class):
    def run(device):
        tensors = parameters(device)
        optimizer = optimizer_class(tensors, foreach=True)
        optimizer.param_groups[0]["betas"] = (1.0, 0.999)
        set_gradients(tensors, 0)
        with pytest.raises(ZeroDivisionError) as raised:
            optimizer.step()
        return raised.value

    assert_same_error(run(DEVICE), run("cpu"))


def test_a_step_at_once():
    """Each op runs when it is recorded: PyTorch's calls, so that an error names its own."""
    with config.changed({"launch_blocking": True}):
        actual = train(AdamW, {"foreach": True}, DEVICE)
    assert_same(actual, train(AdamW, {"foreach": True}, "cpu"))


def test_a_failed_gradient_spoils_its_step_only():
    good, bad = torch.ones(3, device=DEVICE, requires_grad=True), torch.ones(3, device=DEVICE, requires_grad=True)
    table = torch.ones(4, 3, device=DEVICE)
    good.grad, bad.grad = torch.ones(3, device=DEVICE), table[torch.tensor([9], device=DEVICE)][0]
    optimizer = SGD([bad], lr=0.5)
    other = SGD([good], lr=0.5)
    optimizer.step()
    other.step()
    assert good.tolist() == [0.5] * 3
    with pytest.raises((IndexError, RuntimeError), match="out of"):
        bad.tolist()


def test_as_an_operator_at_once():
    """Where graphs never come again, the node runs on the CPU by itself."""
    out = run_fresh(
        """
        import random
        x = [torch.randn(5, device="lazy", requires_grad=True) for _ in range(3)]
        y = [t.detach().cpu().requires_grad_() for t in x]
        optimizers = [torch.optim.AdamW(t, foreach=True) for t in (x, y)]
        random.seed(0)
        for step in range(150):
            torch.manual_seed(step)
            gradients = [torch.randn(5) for _ in x]
            for tensors, optimizer in zip((x, y), optimizers):
                for tensor, gradient in zip(tensors, gradients):
                    tensor.grad = gradient.to(tensor.device)
                    for _ in range(random.Random(step).randrange(9)):
                        tensor.grad = tensor.grad * 1.5 - gradient.to(tensor.device)
                optimizer.step()
        print(all(torch.equal(a.cpu(), b) for a, b in zip(x, y)), torch_lazyplug.metrics.counter_value("RunAtOnce"))
        """,
        LAZYPLUG_FUSION="1",
        LAZYPLUG_MAX_UNUSED_GRAPHS="2",
    )
    are_equal, at_once = out.split()
    assert are_equal == "True" and int(at_once) > 0


class Multiplied(torch.nn.Parameter):
    """Adds as a group of which the updates are the logarithms, as rotations do."""

    def add_(self, other, *, alpha=1):
        self.data = self.data * torch.exp(alpha * other)
        return self

    def addcdiv_(self, first, second, *, value=1):
        return self.add_(first / second, alpha=value)


@pytest.mark.parametrize("optimizer", [SGD, Adam, AdamW, RMSprop, Adagrad, Adadelta, Adamax, NAdam, RAdam])
def test_parameters_of_other_classes_are_updated_by_their_methods(optimizer):
    def train(device):
        parameters = [kind(torch.tensor([1.0, 2.0], device=device)) for kind in (Multiplied, torch.nn.Parameter)]
        chosen = optimizer(parameters, lr=0.1)
        for _ in range(3):
            for parameter in parameters:
                parameter.grad = torch.tensor([0.5, -0.5], device=device)
            chosen.step()
        return [parameter.detach().as_subclass(torch.Tensor) for parameter in parameters]

    expected = train("cpu")
    assert not torch.equal(*expected)
    assert_same(train(DEVICE), expected, rtol=1e-6)


def test_modes_see_the_gradients_that_are_read():
    class Doubled(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            return result * 2 if func == torch.Tensor.grad.__get__ and result is not None else result

    def train(device):
        parameter = torch.nn.Parameter(torch.ones(3, device=device))
        optimizer = SGD([parameter], lr=0.1, momentum=0.9)
        parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        with Doubled():
            optimizer.step()
        return parameter.detach()

    assert_same(train(DEVICE), train("cpu"))
