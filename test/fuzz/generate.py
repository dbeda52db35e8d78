"""Makes a program from a seed. Each statement is tried on the CPU first, so that most of them mean something."""

import torch

from . import catalog, featured, views
from .builder import Builder
from .program import Index, Program, Ref, Statement


class Generator(Builder):
    """Each family of statements is a method, which adds one of them, or none."""

    def block(self, kind, code="", args=(), length=3):
        self.blocks.append([])
        for _ in range(self.rng.randint(1, length)):
            self.step(nested=True)
        body = tuple(self.blocks.pop())
        if body:
            self.blocks[-1].append(Statement(code, args, kind=kind, body=body))

    # ---- families ----

    def leaf(self):
        shape, dtype = self.shape(), self.dtype()
        data = [self._element(dtype) for _ in range(views.numel(shape))]
        ok = self.add("torch.tensor({0}, dtype={1}).reshape({2}).clone().to(device)", data, dtype, shape, results=1)
        if ok and len(shape) > 1 and self.rng.random() < 0.3:
            self._lay_out(shape)
        name = f"t{self.created}"
        if ok and self.uses_autograd and dtype.is_floating_point and self.rng.random() < 0.5:
            self.add("{0}.requires_grad_()", Ref(name))

    def _lay_out(self, shape):
        """The youngest variable in memory of another order."""
        order = tuple(self.rng.sample(range(len(shape)), len(shape)))
        inverse = tuple(order.index(dim) for dim in range(len(order)))
        codes = ["{0}.permute({1}).contiguous().permute({2})", "torch.stack([{0}, {0}], -1)[..., 0]"]
        if len(shape) == 4:
            codes += ["{0}.contiguous(memory_format=torch.channels_last)"] * 2
        self.add(self.rng.choice(codes), Ref(f"t{self.created}"), order, inverse, results=1)

    def _element(self, dtype):
        rng = self.rng
        if dtype.is_complex:
            return complex(rng.choice(catalog.INTEGERS), rng.choice(catalog.INTEGERS))
        if dtype.is_floating_point:
            return rng.choice(catalog.SPECIAL) if rng.random() < 0.02 else rng.choice(catalog.HALVES)
        if dtype is torch.bool:
            return rng.random() < 0.5
        return abs(rng.choice(catalog.INTEGERS)) if dtype is torch.uint8 else rng.choice(catalog.INTEGERS)

    def factory(self):
        codes = [
            "torch.zeros({0}, dtype={1}, device=device)",
            "torch.ones({0}, dtype={1}, device=device)",
            "torch.full({0}, {2}, device=device)",
            "torch.arange({3}, dtype={1}, device=device)",
            "torch.eye({3}, dtype={1}, device=device)",
            "torch.linspace(0, 1, {3}, device=device)",
            "torch.scalar_tensor({2}, device=device)",
            "torch.tensor({2}, device=device)",
            "torch.empty_strided((2, 3), (1, 2), dtype={1}, device=device).zero_()",
            "torch.tril_indices({3}, 3, device=device)",
        ]
        args = (self.shape(), self.dtype(), self.scalar(), self.rng.randint(0, 6))
        self.add(self.rng.choice(codes), *args, results=1)

    def host_scalar(self):
        dtype = self.dtype()
        self.add("torch.tensor({0}, dtype={1})", self._element(dtype), dtype, results=1, host=True)

    def view(self):
        name = self.tensor()
        code, args = views.draw_view(self.rng, self.value(name))
        self.add(code, Ref(name), *args, results=1)

    def several_views(self):
        name = self.tensor(lambda t: t.dim() > 0)
        if name:
            code = self.rng.choice(
                ["{0}.unbind({1})", "{0}.chunk(2, {1})", "{0}.split(1, {1})", "{0}.tensor_split(2, {1})"]
            )
            self.add(code, Ref(name), views.draw_dim(self.rng, self.value(name)), results=2)

    def unary(self):
        name, form = self.tensor(), self.rng.random()
        if form < 0.4:
            op = self.rng.choice(catalog.UNARY + catalog.UNARY_WITHOUT_IN_PLACE)
            self.add(f"torch.{op}({{0}})", Ref(name), results=1)
        elif form < 0.8:
            self.add(f"{{0}}.{self.rng.choice(catalog.UNARY)}_()", Ref(name), writes=(name,))
        else:
            self._with_out(f"torch.{self.rng.choice(catalog.UNARY)}({{0}}, out={{1}})", Ref(name), aliasing=True)

    def _with_out(self, code, *args, aliasing=False):
        """`out=` is the last argument: a variable that may fit, or have to grow, or be wrong.

        Only pointwise ops check whether it shares memory with what they read.
        """
        first = next((a.name for a in args if isinstance(a, Ref)), None)
        out = self.like(first) if self.rng.random() < 0.8 else self.tensor(lambda t: t.numel() == 0)
        if out and _can_grow(self.value(out)) and (aliasing or not self._share(out, args)):
            self.add(code, *args, Ref(out), writes=(out,), fragile=True)

    def _share(self, out, args):
        variables = self.machine.variables
        return any(isinstance(a, Ref) and torch._C._is_alias_of(variables[a.name], variables[out]) for a in args)

    def binary(self):
        names = catalog.COMMON_BINARY if self.rng.random() < 0.5 else catalog.BINARY
        name, form, op = self.tensor(), self.rng.random(), self.rng.choice(names)
        other = self._operand_of(op, name)
        if form < 0.25:
            self._operator(name)
        elif form < 0.4:
            op = self.rng.choice(catalog.BINARY_WITHOUT_IN_PLACE) if self.rng.random() < 0.3 else op
            self.add(f"torch.{op}({{0}}, {{1}})", Ref(name), other, results=1)
        elif form < 0.85:
            alpha = ", alpha={2}" if op in ("add", "sub") and self.rng.random() < 0.3 else ""
            self.add(f"{{0}}.{op}_({{1}}{alpha})", Ref(name), other, self.scalar(), writes=(name,))
        else:
            self._with_out(f"torch.{op}({{0}}, {{1}}, out={{2}})", Ref(name), other, aliasing=True)

    def _operand_of(self, op, name):
        other = self.operand(name)
        is_number = op in catalog.COMPARISONS and not isinstance(other, Ref)
        return self.rng.choice(catalog.COMPARED) if is_number and self.rng.random() < 0.5 else other

    def _operator(self, name):
        operator = self.rng.choice(catalog.OPERATORS)
        other = self._operand_of(operator, name)
        code = f"{{1}} {operator} {{0}}" if self.rng.random() < 0.2 else f"{{0}} {operator} {{1}}"
        self.add(code, Ref(name), other, results=1)

    def ternary(self):
        name = self.tensor()
        args = (Ref(name), Ref(self.like(name) or name), Ref(self.like(name) or name), self.scalar())
        args += (self.rng.choice(catalog.COMPARED),)
        if self.rng.random() < 0.5:
            self.add(self.rng.choice(catalog.TERNARY), *args, results=1)
        else:
            self.add(self.rng.choice(catalog.TERNARY_IN_PLACE), *args, writes=(name,))

    def reduction(self):
        name, form = self.tensor(), self.rng.random()
        dim, keep = views.draw_dim(self.rng, self.value(name)), self.rng.random() < 0.4
        if form < 0.3:
            self.add(f"torch.{self.rng.choice(catalog.FULL_REDUCTIONS)}({{0}})", Ref(name), results=1)
        elif form < 0.6:
            self._reduce(self.rng.choice(catalog.REDUCTIONS), name, dim, keep, results=1)
        elif form < 0.75:
            self._reduce(self.rng.choice(catalog.PAIR_REDUCTIONS), name, dim, keep, results=2)
        elif form < 0.9:
            self.add(f"torch.{self.rng.choice(catalog.SCANS)}({{0}}, {{1}})", Ref(name), dim, results=1)
        else:
            op = self.rng.choice(["sum", "cumsum", "prod", "amax", "any", "argmax", "mean", "cumprod"])
            self._with_out(f"torch.{op}({{0}}, {{1}}, out={{2}})", Ref(name), dim)

    def _reduce(self, op, name, dim, keep, results):
        rest = ", {2}" if op in catalog.WITH_KEEPDIM else ""
        if op in ("sum", "prod", "mean", "nansum") and self.rng.random() < 0.2:
            rest += ", dtype={3}"
        where = "dim={1}" if op in ("std", "var", "norm") else "{1}"
        rest = rest.replace(", {2}", ", keepdim={2}")
        self.add(catalog.along_dim(op, where + rest), Ref(name), dim, keep, torch.float64, results=results)

    def reshuffle(self):
        name = self.tensor()
        dim = views.draw_dim(self.rng, self.value(name))
        args = (Ref(name), dim, None, self.rng.randint(-1, 2))
        self.add(self.rng.choice(catalog.RESHUFFLES), *args, results=1)

    def product(self):
        name = self.tensor(lambda t: t.dim() > 0)
        if name:
            self.add(self.rng.choice(catalog.PRODUCTS), Ref(name), Ref(self.like(name)), results=1)

    def join(self):
        name = self.tensor()
        args = (Ref(name), Ref(self.like(name) or name), views.draw_dim(self.rng, self.value(name)))
        if self.rng.random() < 0.8:
            self.add(self.rng.choice(catalog.JOINS), *args, results=1)
        else:
            self._with_out("torch.cat([{0}, {1}], {2}, out={3})", *args)

    def copy(self):
        name = self.tensor()
        dtype = self.dtype()
        if _is_castable(self.value(name), dtype):
            code = self.rng.choice(catalog.COPIES)
            self.add(code, Ref(name), dtype, Ref(self.like(name) or name), self.shape(), results=1)

    def copy_into(self):
        target = self.tensor()
        source = self.like(target) or target
        if _is_castable(self.value(source), self.value(target).dtype):
            code = self.rng.choice(
                ["{0}.copy_({1})", "{0}.copy_({1})", "{0}.data.copy_({1})", "{0}.detach().copy_({1})"]
            )
            self.add(code, Ref(target), Ref(source), writes=(target,))

    def fill(self):
        target = self.tensor()
        code = self.rng.choice(["{0}.fill_({1})", "{0}.zero_()", "{0}.fill_(True)", "{0}.detach().fill_({1})"])
        self.add(code, Ref(target), self._scalar_for(target), writes=(target,))

    def _scalar_for(self, name):
        return self.scalar() if self.value(name).dtype is not torch.uint8 else 3

    def across(self):
        """To the CPU, and from there."""
        there = [n for n in self.host if n in self.machine.variables]
        if not there or self.rng.random() < 0.5:
            name, dtype = self.tensor(), self.dtype()
            if _is_castable(self.value(name), dtype):
                self.add(self.rng.choice(catalog.TO_HOST), Ref(name), dtype, results=1, host=True)
            return
        source, target = self.rng.choice(sorted(there)), self.tensor()
        if not _is_castable(self.value(source), self.value(target).dtype):
            return
        if self.rng.random() < 0.5:
            self.add("{0}.to(device, copy=True)", Ref(source), results=1)
        else:
            self.add(self.rng.choice(["{0}.copy_({1})", "{0}[...] = {1}"]), Ref(target), Ref(source), writes=(target,))

    def second_device(self):
        name, dtype = self.tensor(), self.dtype()
        if not _is_castable(self.value(name), dtype):
            return
        if self.rng.random() < 0.7:
            self.add(self.rng.choice(catalog.TO_SECOND), Ref(name), dtype, self.shape(), results=1)
            return
        source = self.like(name) or name
        if _is_castable(self.value(source), self.value(name).dtype):
            code = "{0}.copy_({1}.to(second(device), copy=True))"
            self.add(code, Ref(name), Ref(source), writes=(name,))

    def mapped(self):
        name = self.tensor(lambda t: t.dim() > 0)
        if name:
            self.add(self.rng.choice(catalog.MAPPED), Ref(name), Ref(self.like(name) or name), results=1)

    def random(self):
        code = self.rng.choice(catalog.RANDOM)
        self.add(code, Ref(self.tensor()), self.rng.randrange(100), self.rng.random() < 0.5)

    # ---- indexing ----

    def _index_tensor(self, size, host=False):
        length = self.rng.randint(0, 3)
        data = [self.rng.randrange(-size, size) if size else 0 for _ in range(length)]
        if self.rng.random() < 0.02:
            data.append(size + 1)
        device = "" if host else ", device=device"
        if self.add(f"torch.tensor({{0}}, dtype=torch.int64{device})", data, results=1, host=host):
            return Ref(f"t{self.created}")
        return None

    def _mask(self, name):
        if self.add("{0} > 0", Ref(name), results=1):
            return Ref(f"t{self.created}")
        return None

    def _advanced_index(self, name):
        tensor = self.value(name)
        if self.rng.random() < 0.25:
            mask = self._mask(name)
            return Index([mask]) if mask else Index([...])
        items = list(views.draw_index(self.rng, tensor))
        place = self.rng.randrange(len(items) + 1) if len(items) < tensor.dim() else self.rng.randrange(len(items))
        size = tensor.shape[min(place, tensor.dim() - 1)] if tensor.dim() else 0
        items[place : place + 1] = [self._index_tensor(size, self.rng.random() < 0.2) or slice(None)]
        return Index(items)

    def index(self):
        name = self.tensor()
        self.add("{0}[{1}]", Ref(name), self._advanced_index(name), results=1)

    def set_item(self):
        name = self.tensor()
        tensor = self.value(name)
        index = self._advanced_index(name) if self.rng.random() < 0.5 else views.draw_index(self.rng, tensor)
        value = self.operand(name)
        if isinstance(value, Ref) and not _is_castable(self.value(value.name), tensor.dtype):
            value = 1
        if not isinstance(value, Ref) or self._is_filled_on_the_cpu(value, name):
            value = self._scalar_for(name)
        self.add("{0}[{1}] = {2}", Ref(name), index, value, writes=(name,), fragile=True)

    def _is_filled_on_the_cpu(self, value, name):
        """A scalar assigned to a part of a tensor is a fill on the CPU and a copy on other devices, which differ.

        Into another dtype, the copy even of a negative view: it may not negate, or raise.
        """
        scalar = self.value(value.name)
        return scalar.dim() == 0 and (scalar.requires_grad or scalar.is_neg() or self._share(name, [value]))

    def indexed(self):
        """The named indexing ops, with the index as a tensor."""
        name = self.tensor(lambda t: t.dim() > 0)
        if not name:
            return
        dim = self.rng.randrange(self.value(name).dim())
        index = self._index_tensor(self.value(name).shape[dim])
        if index is None:
            return
        args = (Ref(name), dim, index, self.scalar(), Ref(self.like(name) or name))
        if self.rng.random() < 0.5:
            self.add(self.rng.choice(catalog.INDEX_READS), *args, results=1)
        else:
            self.add(self.rng.choice(catalog.INDEX_WRITES), *args, writes=(name,), fragile=True)

    # ---- storage ----

    def storage(self):
        name = self.tensor()
        tensor, other = self.value(name), Ref(self.like(name) or name)
        chance = self.rng.random()
        if chance < 0.4 and _can_grow(tensor):
            self.add("{0}.resize_({1}).fill_({2})", Ref(name), self.shape(), 1, writes=(name,), fragile=True)
        elif chance < 0.7 and self.value(other.name).dtype == tensor.dtype:
            code = self.rng.choice(
                ["{0}.set_({1})", "{0}.data = {1}", "{0}.set_({1}.untyped_storage(), 0, (min(1, {1}.numel()),))"]
            )
            self.add(code, Ref(name), other, writes=(name,), fragile=True)
        else:
            codes = ["{0}.t_()", "{0}.squeeze_()", "{0}.unsqueeze_(0)", "{0}.transpose_(0, -1)", "{0}.detach_()"]
            self.add(self.rng.choice(codes), Ref(name), writes=(name,), fragile=True)

    # ---- reading, control flow, autograd ----

    def read(self):
        name = self.tensor()
        self.add(self.rng.choice(catalog.READS), Ref(name), Ref(self.like(name) or name))

    def cut(self):
        codes = ["mark_step(device)", "mark_step(device, wait=True)"]
        codes += ['run_at_once(device, "always")', 'run_at_once(device, "never")']
        self.blocks[-1].append(Statement(self.rng.choice(codes)))

    def branch(self):
        name, code = self.tensor(lambda t: t.numel() > 0), self.rng.choice(catalog.CONDITIONS)
        if not name:
            return
        value, error = self.machine.attempt(Statement(code, (Ref(name),)))
        if error is None:
            self.block("if", code if value else catalog.NOT.format(code), (Ref(name),))

    def loop(self):
        self.block("for", "", (self.rng.randint(2, 3),))

    def no_grad(self):
        self.block("no_grad")

    def foreach(self):
        name = self.tensor()
        other = self.tensor()
        code = self.rng.choice(
            ["torch._foreach_{}_([{{0}}, {{1}}], {{2}})", "torch._foreach_{}([{{0}}, {{1}}], {{2}})"]
        )
        in_place = "_(" in code
        writes = (name, other) if in_place else ()
        op = self.rng.choice(["add", "mul", "sub", "div"])
        args = (Ref(name), Ref(other), self.scalar())
        self.add(code.format(op), *args, results=0 if in_place else 2, writes=writes, fragile=True)

    def backward(self):
        name = self.tensor(lambda t: t.requires_grad and t.grad_fn is not None)
        if not name:
            return
        code = self.rng.choice(
            [
                "{0}.sum().backward()",
                "{0}.mul(2).sum().backward(retain_graph=True)",
                "{0}.abs().sum().backward()",
                "{0}.backward(torch.ones_like({0}))",
            ]
        )
        self.add(code, Ref(name))

    def gradient(self):
        name = self.tensor(lambda t: t.is_leaf and t.grad is not None)
        if name:
            code = self.rng.choice(["{0}.grad", "{0}.grad.clone()", "{0}.grad * {0}"])
            self.add(code, Ref(name), results=1)

    def update(self):
        name = self.tensor(lambda t: t.is_leaf and t.grad is not None)
        if name:
            code = self.rng.choice(["{0}.data.sub_({0}.grad, alpha=0.5)", "{0}.grad.zero_()", "{0}.grad = None"])
            self.add(code, Ref(name), writes=(name,))

    def remove(self):
        name = self.tensor()
        if len(self.names()) > 2:
            self.delete(name)

    # ---- the whole ----

    def step(self, nested=False):
        family = self.rng.choices(NESTED if nested else FAMILIES, NESTED_WEIGHTS if nested else WEIGHTS)[0]
        if not self.names():
            family = Generator.leaf
        if family in AUTOGRAD and not self.uses_autograd:
            family = Generator.view
        family(self)

    def program(self, seed, mode):
        rng = self.rng
        for _ in range(rng.randint(2, 3)):
            self.leaf()
        length = rng.randint(8, 22)
        features = featured.features_of(seed)
        for _ in range(60):
            if len(self.blocks[0]) >= length:
                break
            self.step()
            if features and rng.random() < 0.5:
                featured.add_feature(self, features.pop())
        for row in features:
            featured.add_feature(self, row)
        late = rng.random() < 0.5
        return Program(seed, tuple(self.blocks[0]), 2 if rng.random() < 0.25 else 1, mode, late)


_WEIGHTS = {
    Generator.leaf: 4,
    Generator.factory: 3,
    Generator.host_scalar: 1.5,
    Generator.view: 22,
    Generator.several_views: 2,
    Generator.unary: 9,
    Generator.binary: 20,
    Generator.ternary: 5,
    Generator.reduction: 7,
    Generator.reshuffle: 4,
    Generator.product: 3,
    Generator.join: 3,
    Generator.copy: 5,
    Generator.copy_into: 5,
    Generator.fill: 3,
    Generator.across: 2,
    Generator.second_device: 2,
    Generator.mapped: 2.5,
    Generator.random: 1.5,
    Generator.index: 4,
    Generator.set_item: 9,
    Generator.indexed: 4,
    Generator.storage: 2.5,
    Generator.read: 4,
    Generator.cut: 3,
    Generator.branch: 2,
    Generator.loop: 2,
    Generator.no_grad: 0.5,
    Generator.foreach: 1,
    Generator.backward: 6,
    Generator.gradient: 3,
    Generator.update: 3,
    Generator.remove: 3,
}
BLOCKS = {Generator.branch, Generator.loop, Generator.no_grad}
AUTOGRAD = {Generator.backward, Generator.gradient, Generator.update, Generator.no_grad}
FAMILIES, WEIGHTS = list(_WEIGHTS), list(_WEIGHTS.values())
NESTED = [family for family in FAMILIES if family not in BLOCKS]
NESTED_WEIGHTS = [_WEIGHTS[family] for family in NESTED]


def _can_grow(tensor):
    """Without a gap before it in the storage, whose contents nobody knows."""
    return tensor.storage_offset() * tensor.element_size() <= tensor.untyped_storage().nbytes()


def _is_castable(tensor, dtype):
    """Out-of-range conversions are undefined in C++."""
    if dtype.is_floating_point or dtype.is_complex or dtype is torch.bool or tensor.numel() == 0:
        return True
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return True
    numbers = tensor.detach().resolve_conj().resolve_neg()
    numbers = torch.view_as_real(numbers) if tensor.is_complex() else numbers
    low, high = numbers.double().min().item(), numbers.double().max().item()
    return low > -100 and high < 100 and (dtype is not torch.uint8 or low >= 0)


def generate(seed, mode):
    return Generator(seed).program(seed, mode)
