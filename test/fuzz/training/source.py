"""Writes a recipe down as Python."""

import contextlib
import pathlib
import textwrap
from dataclasses import replace

import torch

from . import inputs, prelude
from .draw import Draw
from .events import ANYWHERE, EVENTS, PHASES
from .layers import LAYERS
from .optimizers import MANUAL, OPTIMIZERS

MAX_NUMEL = 600
MAX_PARAMETERS = 1_000_000  # of all modules: an attention over 3,072 features takes half a minute on the CPU
PRELUDE = pathlib.Path(prelude.__file__).read_text()
DTYPES = {"float32": torch.float32, "float64": torch.float64}


class Builder:
    """Runs what it writes on the CPU, to know what `h` is and which lines mean something."""

    def __init__(self, dtype):
        self.dtype, self.setup, self.forward, self.counts = DTYPES[dtype], [], [], {}
        self.limit = MAX_NUMEL
        self.scope = {**vars(prelude), "device": "cpu", "step": 0}

    @property
    def h(self):
        return self.scope["h"]

    def fresh(self, prefix):
        self.counts[prefix] = self.counts.get(prefix, -1) + 1
        return f"{prefix}{self.counts[prefix]}"

    def modules(self, kind=""):
        return [n for n, m in self.scope.items() if isinstance(m, torch.nn.Module) and kind in ("", type(m).__name__)]

    def parameters(self):
        return [parameter for name in self.modules() for parameter in self.scope[name].parameters()]

    def saved(self, suits):
        return [n for n, t in self.scope.items() if n[0] == "s" and isinstance(t, torch.Tensor) and suits(t)]

    def begin(self, item):
        draw, self.limit = Draw(item.seed, self), 2 * inputs.LARGE
        fits = self._add(draw, inputs.INPUTS[item.kind](draw))
        self.limit = 2 * inputs.LARGE if fits and self.h.numel() >= inputs.LARGE else MAX_NUMEL
        return fits

    def add_layer(self, item):
        """Tells whether it fitted."""
        draw = Draw(item.seed, self)
        return self._add(draw, LAYERS[item.kind](draw, self.h))

    def _add(self, draw, code):
        before = dict(self.scope)
        if code is None or not self._try([*draw.setup, code]):
            self.scope = before
            return False
        self.setup += draw.setup
        self.forward.append(code)
        return True

    def _try(self, lines):
        with default_dtype(self.dtype):
            try:
                exec("\n".join(lines), self.scope)
            except Exception:  # noqa: BLE001  (whatever PyTorch says to it, it does not fit)
                return False
        return _is_manageable(self.h, self.limit) and sum(p.numel() for p in self.parameters()) <= MAX_PARAMETERS


def _is_manageable(h, limit):
    is_small = isinstance(h, torch.Tensor) and 1 <= h.dim() <= 5 and 0 < h.numel() <= limit
    return is_small and bool(h.detach().abs().max() < 100)


@contextlib.contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


# The whole -----------------------------------------------------------------------------------------------------------

_WHEN = ["", "", "", "if step == 0:", "if step == 1:", "if step == 2:", "if step % 2 == 0:", "if step % 3 == 1:"]


def _under(head, code):
    return f"{head}\n{textwrap.indent(code, '    ')}" if head else code


class Events:
    """The lines of events, by where they happen; those between layers with their place."""

    def __init__(self, builder, items):
        self.lines, self.setup, self.finish = {phase: [] for phase in ANYWHERE}, [], []
        for item in items:
            self._add(item, Draw(item.seed, builder))

    def _add(self, item, draw):
        draw.finish = self.finish
        phase = draw.pick(PHASES[item.kind])
        code = EVENTS[item.kind](draw, phase)
        self.setup += draw.setup
        if code != "pass":
            self.lines[phase].append((item.place, _under(draw.pick(_WHEN), code)))

    def among(self, layers):
        """The layers' lines with those of events between them."""
        lines = [(number / len(layers), code) for number, code in enumerate(layers)]
        return [code for _, code in sorted(lines + self.lines["forward"], key=lambda line: line[0])]

    def at(self, phase):
        return [code for _, code in self.lines[phase]]


def _update(item, draw):
    """What makes the optimizer; the lines that forget gradients, and those that use them."""
    every = draw.choice(1, 1, 1, 2, 3)
    forget, use = f"if step % {every} == 0:", f"if step % {every} == {every - 1}:" if every > 1 else ""
    if item.kind == "manual":
        old = draw.choice("p.grad = None", "p.grad.zero_()")
        lines = [
            _under("for p in parameters:", _under("if p.grad is not None:", code)) for code in (old, draw.pick(MANUAL))
        ]
        return "None", _under(forget, lines[0]), _under(use, lines[1])
    none = draw.choice("", "set_to_none=False")
    return OPTIMIZERS[item.kind](draw), _under(forget, f"optimizer.zero_grad({none})"), _under(use, "optimizer.step()")


def written(program, builder):
    """The function `program(device, note)` of what the builder holds, and the rest of the recipe."""
    draw = Draw(program.loss.seed, builder)
    loss = inputs.LOSSES[program.loss.kind](draw, builder.h)
    optimizer, forget, use = _update(program.optimizer, Draw(program.optimizer.seed, builder))
    events = Events(builder, program.events)
    modules = f"modules = nn.ModuleList([{', '.join(builder.modules())}])"
    setup = [
        *builder.setup,
        *draw.setup,
        modules,
        "parameters = parameters_of(modules)",
        f"optimizer = {optimizer}",
    ]
    step = [forget, *events.among(builder.forward), loss, *events.at("loss"), "loss.backward()", *events.at("backward")]
    loop = _under(f"for step in range({program.steps}):", "\n".join([*step, use, *events.at("end")]))
    lines = [*setup, *events.setup, loop, *events.finish, "report(note, modules, optimizer)"]
    return _under("def program(device, note):", "\n".join(lines)) + "\n"


def rewritten(program):
    """The program with the text of its recipe. Layers that do not fit any more are left out."""
    builder = Builder(program.dtype)
    if not builder.begin(program.input):
        return None
    layers = tuple(item for item in program.layers if builder.add_layer(item))
    return replace(program, layers=layers, text=written(program, builder))
