"""What else happens in a step, between layers or afterwards: reads, hooks, threads, writes, odd habits of programs.

Each function returns the lines to insert; what it needs before or after the loop goes into `draw.setup` and
`draw.finish`.
"""

EVENTS = {}  # name: function
PHASES = {}  # name: where in a step it may happen
WEIGHTS = {}

ANYWHERE = ("forward", "loss", "backward", "end")


def event(*phases, weight=1.0):
    def register(function):
        EVENTS[function.__name__], PHASES[function.__name__] = function, phases
        WEIGHTS[function.__name__] = weight
        return function

    return register


def _parameter(draw):
    return f"parameters[{draw.number(0, 30)} % len(parameters)]"


def _readable(draw, phase):
    """A tensor that a program may look at in that phase."""
    choices = {"forward": ["h", "h"], "loss": ["loss", "loss", "h"]}.get(phase, ["loss", "h", "{0}.grad", "{0}.grad"])
    return draw.pick([*choices, "{0}"]).format(_parameter(draw))


def _if_there(name, code):
    """A gradient may be missing."""
    return f"if {name} is not None:\n    {code}" if name.endswith(".grad") else code


@event(*ANYWHERE, weight=8)
def read(draw, phase):
    forms = [
        "{0}",
        "{0}",
        "{0}.sum().item()",
        "{0}.tolist()",
        "repr({0})",
        "float({0}.mean())",
        "bool(({0} > 0).any())",
    ]
    forms += [
        "{0}.detach().clone().t_() if {0}.dim() == 2 else {0}",
        "{0}.detach().clone()",
        "{0}.detach().abs().max().item()",
    ]
    name = _readable(draw, phase)
    return _if_there(name, f'note("read", {draw.pick(forms).format(name)})')


@event(*ANYWHERE)
def mark(draw, phase):
    return f"mark_step(device, wait={draw.chance(0.3)})"


@event(*ANYWHERE)
def switch(draw, phase):
    return f'run_at_once(device, "{draw.choice("always", "never")}")'


@event(*ANYWHERE, weight=2)
def read_in_thread(draw, phase):
    name = _readable(draw, phase)
    form = draw.choice("{0}.detach().clone().cpu()", "({0} * 2).sum().item()", "{0}.detach().clone()").format(name)
    return _if_there(name, f'note("thread", in_thread(lambda: {form}))')


@event("forward", "loss", "end")
def loop_in_thread(draw, phase):
    name = draw.tensor(f"started(lambda: side_loop(device, {draw.number(0, 99)}, {draw.number(1, 4)}))")
    draw.finish.append(f'for value in {name}():\n    note("side", value)')
    return "pass"


@event("loss", weight=2)
def total(draw, phase):
    name = draw.tensor("torch.zeros((), device=device)")
    draw.finish.append(f'note("total", {name})')
    return f"{name} += loss.detach()"


@event("forward", "end")
def history(draw, phase):
    name = draw.tensor("[]")
    draw.finish.append(f'for value in {name}:\n    note("history", value)')
    return f"{name}.append({draw.choice('h.detach()', 'h', _parameter(draw) + '.detach()', 'h.detach().clone()')})"


@event("forward")
def carried(draw, phase):
    name = draw.tensor("[0.0]")
    return f"h = h + 0.1 * {name}[0]\n{name}[0] = h.detach()"


@event("loss")
def penalty(draw, phase):
    name = _parameter(draw)
    lines = [
        f"(slope,) = torch.autograd.grad(loss, [{name}], create_graph=True, allow_unused=True)",
        "if slope is not None:",
    ]
    return "\n".join([*lines, "    loss = loss + 0.1 * slope.pow(2).sum()"])


@event("loss")
def backward_early(draw, phase):
    return "loss.backward(retain_graph=True)"


@event("backward", weight=3)
def clip(draw, phase):
    forms = [
        'note("norm", nn.utils.clip_grad_norm_(parameters, 0.5, foreach={0}))',
        "nn.utils.clip_grad_norm_(parameters, 1.0)",
    ]
    forms += [
        "nn.utils.clip_grad_value_(parameters, 0.1)",
        'note("norm", nn.utils.clip_grad_norm_(parameters, 0.1).item())',
    ]
    return draw.pick(forms).format(draw.choice(None, True, False))


@event("backward")
def change_gradient(draw, phase):
    name = f"{_parameter(draw)}.grad"
    forms = ["{0}.mul_(0.5)", "{0}.add_({0}.mean())", "{0}.zero_()", "{0}[..., 0] = 0", "{0}.clamp_(-0.1, 0.1)"]
    return _if_there(name, draw.pick(forms).format(name))


@event("end", weight=2)
def write_parameter(draw, phase):
    forms = [
        "{0}.mul_(0.99)",
        "{0}.clamp_(-1, 1)",
        "{0}[0] = 0",
        "{0}.add_({0}.mean(), alpha=0.1)",
        "{0}.copy_({0}.roll(1, 0))",
    ]
    return f"with torch.no_grad():\n    {draw.pick(forms).format(_parameter(draw))}"


@event("end")
def turn_parameter(draw, phase):
    """The same numbers in memory of another order."""
    name = _parameter(draw)
    return f"{name}.data = {name}.data.transpose(0, -1).contiguous().transpose(0, -1)"


@event("end")
def freeze(draw, phase):
    return f"{_parameter(draw)}.requires_grad_(step % 2 == 1)"


@event("forward", "end", weight=2)
def buffers(draw, phase):
    """What reads running statistics before they change, perhaps pending beside a call at once that changes them."""
    name = draw.tensor("[]")
    draw.finish.append(f'for value in {name}:\n    note("buffer", value)')
    reads = f"{name}.extend(2 * b for b in modules.buffers() if b.is_floating_point())"
    if draw.chance(0.5):
        return reads
    return f'run_at_once(device, "never")\n{reads}\nrun_at_once(device, "always")'


@event("end", weight=2)
def schedule(draw, phase):
    forms = ["StepLR(optimizer, 2, 0.5)", "ExponentialLR(optimizer, 0.9)", "LambdaLR(optimizer, lambda n: 1 / (n + 1))"]
    forms += ["CosineAnnealingLR(optimizer, 4)", "LinearLR(optimizer)"]
    name = draw.tensor(f"torch.optim.lr_scheduler.{draw.pick(forms)} if optimizer else None")
    return f"if {name}:\n    {name}.step()"


@event("end", weight=2)
def average(draw, phase):
    name = draw.tensor("[p.detach().clone() for p in parameters]")
    draw.finish.append(f'for value in {name}:\n    note("average", value)')
    loop = f"for value, p in zip({name}, parameters):\n    value."
    forms = [f"torch._foreach_lerp_({name}, [p.detach() for p in parameters], 0.1)", f"{loop}lerp_(p.detach(), 0.1)"]
    return draw.pick([*forms, f"{loop}mul_(0.9).add_(p.detach(), alpha=0.1)"])


@event("end")
def restore(draw, phase):
    """Back to an earlier state."""
    name = draw.tensor("{}")
    saved = f"{name}.update({{k: v.clone() for k, v in modules.state_dict().items()}})"
    return f"if step == 0:\n    {saved}\nelif step == 2 and {name}:\n    modules.load_state_dict({name})"


@event("end")
def parameter_hook(draw, phase):
    forms = ["hook(lambda g: g * 0.9)", "post_accumulate_grad_hook(lambda p: note({0}, p.grad))"]
    forms += [
        "hook(lambda g: g.transpose(0, -1).contiguous().transpose(0, -1))",
        "hook(lambda g: note({0}, g.sum().item()))",
    ]
    name = _parameter(draw)
    draw.setup.append(f"{name}.register_{draw.pick(forms)}".format(_named("hook of", name)))
    return "pass"


def _named(what, owner):
    """The name of a note; see `Recording` for hooks."""
    index = owner.partition("[")[2].removesuffix("]")
    return f'f"{what} {{{index}}}"'


@event("end")
def module_hook(draw, phase):
    forms = ['forward_hook(lambda m, i, o: note("output", o) if torch.is_tensor(o) else None)']
    forms += ["forward_hook(lambda m, i, o: o * 1.1 if torch.is_tensor(o) else None)"]
    forms += ["full_backward_hook(lambda m, i, o: note({0}, o[0]))"]
    name = f"modules[{draw.number(0, 30)} % len(modules)]"
    draw.setup.append(f"{name}.register_{draw.pick(forms)}".format(_named("hook of module", name)))
    return "pass"
