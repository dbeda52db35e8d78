"""What is run: for each variant of an op, calls on inputs that live on the CPU."""

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import noncontiguous_like

import torch_lazyplug

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float32,
        torch.float64,
        torch.bfloat16,
        torch.float16,
        torch.complex64,
        torch.complex128,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.uint8,
        torch.bool,
    )
}

# Their results are memory nobody has written: there is nothing to compare but the geometry.
UNINITIALIZED = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "resize_as_",
}

# Their CPU kernels leave memory that they worked in behind their results, in one storage.
LARGER_ON_CPU = {
    "nn.functional.binary_cross_entropy",
    "nn.functional.mse_loss",
    "nn.functional.smooth_l1_loss",
    "nn.functional.soft_margin_loss",
    "nn.functional.unfold",
}

# Their tensor arguments after the first stay on the CPU, on every device.
CPU_ARGUMENTS = {"tensor_split"}

# Their CPU kernels touch memory that is not theirs, and give any result or crash: without elements or dimensions ...
UNDEFINED_WHEN_SMALL = {"_chunk_cat", "nn.functional.multi_margin_loss", "nn.functional.multilabel_margin_loss"}
# ... and when a batch is written to a transposed tensor.
UNDEFINED_WHEN_TRANSPOSED = {"linalg.lu", "lu_unpack", "tril", "triu"}


class NotApplicable(Exception):
    """The op has no such variant, or none for this dtype."""


@dataclass
class Case:
    """`call(inputs)` returns what a user sees; the inputs are compared afterwards as well."""

    label: str
    inputs: Any
    call: Callable[[Any], Any]
    precision: torch.dtype | None = None  # of results whose dtype is another one


def op_name(op) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


@functools.cache
def ops() -> dict:
    return {op_name(op): op for op in op_db}


# Trees of arguments --------------------------------------------------------------------------------------------------


def map_tree(fn, tree):
    """Applies `fn` to the leaves of nested containers."""
    if isinstance(tree, torch.Size):
        return tree
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_tree(fn, item) for item in tree))
    if isinstance(tree, (list, tuple)):
        return type(tree)(map_tree(fn, item) for item in tree)
    if isinstance(tree, dict):
        return {key: map_tree(fn, item) for key, item in tree.items()}
    return fn(tree)


def tensors_in(tree) -> list[torch.Tensor]:
    found = []
    map_tree(lambda leaf: found.append(leaf) if isinstance(leaf, torch.Tensor) else None, tree)
    return found


def map_tensors(fn, tree):
    return map_tree(lambda leaf: fn(leaf) if isinstance(leaf, torch.Tensor) else leaf, tree)


# Samples -------------------------------------------------------------------------------------------------------------


@dataclass
class Sample:
    """A sample of the database, with a label."""

    label: str
    arguments: tuple  # input, args, kwargs
    source: Any

    @property
    def input(self):
        return self.arguments[0]

    def with_arguments(self, arguments, label):
        return Sample(f"{self.label}, {label}", arguments, self.source)


def _is_degenerate(sample) -> bool:
    return any(t.numel() == 0 or t.dim() == 0 for t in tensors_in(sample.arguments))


def _choose(samples, limit):
    """At most `limit` samples, spread evenly, with up to two that have 0-dim or 0-element tensors."""
    if not limit or len(samples) <= limit:
        return samples
    spread = [round(i * (len(samples) - 1) / (limit - 1)) for i in range(limit)] if limit > 1 else [0]
    degenerate = [i for i, sample in enumerate(samples) if _is_degenerate(sample)]
    return [samples[i] for i in sorted({*spread, *degenerate[:1], *degenerate[-1:]})]


def _all_samples(op, dtype, requires_grad):
    return _cached_samples(op_name(op), dtype, requires_grad)


@functools.lru_cache(maxsize=4)
def _cached_samples(name, dtype, requires_grad):
    op = ops()[name]
    conjugated = {"include_conjugated_inputs": True} if dtype.is_complex and op.test_conjugated_samples else {}
    samples = op.sample_inputs("cpu", dtype, requires_grad=requires_grad, **conjugated)
    return [Sample(f"sample {i}", (s.input, s.args, _with_device(op, s.kwargs)), s) for i, s in enumerate(samples)]


def _with_device(op, kwargs):
    """Factories that are told no device would not make anything on the one under test."""
    return {"device": "cpu"} | kwargs if op.is_factory_function else kwargs


def samples_of(op, dtype, limit, requires_grad=False):
    return _choose(_all_samples(op, dtype, requires_grad), limit)


def differentiable_samples_of(op, dtype, limit):
    if not op.supports_autograd or dtype not in op.supported_backward_dtypes("cpu"):
        raise NotApplicable("not differentiable")
    return samples_of(op, dtype, limit, requires_grad=True)


# Calls ---------------------------------------------------------------------------------------------------------------


def function_of(op):
    if op.name not in CPU_ARGUMENTS:
        return op.op
    return lambda value, *args, **kwargs: op.op(value, *map_tensors(torch.Tensor.cpu, args), **kwargs)


def _plain_call(op):
    function = function_of(op)
    return lambda arguments: function(arguments[0], *arguments[1], **arguments[2])


def cotangent(output):
    """A gradient for an output: neither constant nor random."""
    values = (torch.arange(output.numel()) % 7 + 1) / 4
    values = torch.complex(values, -values) if output.is_complex() else values
    return values.to(output.dtype).reshape(output.shape).to(output.device)


def _backward_call(function, process, lay=lambda grad: grad):
    """Calls a function, then differentiates its outputs with respect to all inputs that ask for it. The outputs'
    gradients lie in memory as `lay` has them."""

    def call(arguments):
        result = process(function(arguments))
        outputs = [t for t in tensors_in(result) if t.requires_grad]
        inputs = [t for t in tensors_in(arguments) if t.requires_grad]
        if not outputs or not inputs:
            raise NotApplicable("no output requires a gradient")
        grads = torch.autograd.grad(outputs, inputs, [lay(cotangent(o)) for o in outputs], allow_unused=True)
        return result, grads

    return call


def _wrapped_call(op):
    function = function_of(op)
    return lambda arguments: op.gradcheck_wrapper(function, arguments[0], *arguments[1], **arguments[2])


# Variants ------------------------------------------------------------------------------------------------------------


def forward(op, dtype, limit) -> Iterator[Case]:
    for sample in samples_of(op, dtype, limit):
        yield Case(sample.label, sample.arguments, _plain_call(op))


def backward(op, dtype, limit) -> Iterator[Case]:
    for sample in differentiable_samples_of(op, dtype, limit):
        process = sample.source.output_process_fn_grad
        yield Case(sample.label, sample.arguments, _backward_call(_wrapped_call(op), process))


def noncontiguous(op, dtype, limit) -> Iterator[Case]:
    for sample in samples_of(op, dtype, limit):
        yield Case(sample.label, _noncontiguous(sample.arguments), _plain_call(op))


def noncontiguous_backward(op, dtype, limit) -> Iterator[Case]:
    for sample in differentiable_samples_of(op, dtype, limit):
        process = sample.source.output_process_fn_grad
        with torch.no_grad():
            arguments = _noncontiguous(sample.arguments)
        yield Case(sample.label, arguments, _backward_call(_wrapped_call(op), process))


def _noncontiguous(arguments):
    return map_tensors(lambda t: noncontiguous_like(t) if t.layout == torch.strided else t, arguments)


# By turns: each call is predicted to be like an earlier one ----------------------------------------------------------


def in_turn(op, dtype, limit) -> Iterator[Case]:
    yield from _in_turn(samples_of(op, dtype, limit), lambda sample: _plain_call(op))


def in_turn_backward(op, dtype, limit) -> Iterator[Case]:
    samples = differentiable_samples_of(op, dtype, limit)
    yield from _in_turn(samples, lambda sample: _backward_call(_wrapped_call(op), sample.source.output_process_fn_grad))


def _in_turn(samples, make_call):
    """Each sample and the next one, a step for each call."""
    for one, other in itertools.pairwise([*samples, *samples[:1]]):
        turns = [one, one, one, other, one, other, other]
        steps = functools.partial(_run_steps, [make_call(sample) for sample in turns])
        yield Case(f"{one.label} and {other.label}", [sample.arguments for sample in turns], steps)


def _run_steps(calls, inputs):
    results = []
    for call, arguments in zip(calls, inputs, strict=True):
        results.append(call(arguments))
        torch_lazyplug.mark_step(wait=True)
    return results


# Layouts: the same sizes in another order in memory ------------------------------------------------------------------


def _channels_last(tensor):
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return tensor.contiguous(memory_format=formats[tensor.dim()]) if tensor.dim() in formats else tensor


def _in_order(tensor, order):
    """With the dimensions in this order in memory."""
    back = sorted(range(tensor.dim()), key=order.__getitem__)
    return tensor.permute(order).contiguous().permute(back)


def _transposed(tensor):
    return _in_order(tensor, list(reversed(range(tensor.dim()))))


def _permuted(tensor):
    """Neither forwards nor backwards: 1, 2, ..., 0."""
    return _in_order(tensor, [*range(1, tensor.dim()), 0]) if tensor.dim() > 2 else tensor


def _expanded(tensor):
    """Each row is the first one."""
    return tensor[:1].expand(tensor.shape) if tensor.dim() else tensor


def _lay(tree, layouts):
    """Gives the tensors of a tree these layouts in turn."""
    turns = itertools.cycle(layouts)

    def lay(tensor):
        layout = next(turns)
        if tensor.layout != torch.strided or tensor.numel() == 0:
            return tensor
        with torch.no_grad():
            laid = layout(tensor)
        return laid.detach().requires_grad_(tensor.requires_grad)

    return map_tensors(lay, tree)


def _has_another(sample, layouts):
    before, after = tensors_in(sample.arguments), tensors_in(_lay(sample.arguments, layouts))
    return any(a.stride() != b.stride() for a, b in zip(before, after, strict=True) if a.layout == torch.strided)


def _laid_out(layouts):
    def cases(op, dtype, limit) -> Iterator[Case]:
        samples = [sample for sample in samples_of(op, dtype, None) if _has_another(sample, layouts)]
        for sample in _choose(samples, limit):
            yield Case(sample.label, _lay(sample.arguments, layouts), _plain_call(op))

    return cases


def _laid_out_backward(layouts):
    """The outputs' gradients are contiguous, as after a sum, or lie like the inputs."""

    def cases(op, dtype, limit) -> Iterator[Case]:
        samples = [sample for sample in differentiable_samples_of(op, dtype, None) if _has_another(sample, layouts)]
        for sample in _choose(samples, limit):
            process = sample.source.output_process_fn_grad
            for label, lay in (("plain", torch.Tensor.contiguous), ("laid", functools.partial(_lay, layouts=layouts))):
                call = _backward_call(_wrapped_call(op), process, lay)
                yield Case(f"{sample.label}, {label} gradients", _lay(sample.arguments, layouts), call)

    return cases


LAYOUTS = {
    "channels_last": [_channels_last],
    "transposed": [_transposed],
    "permuted": [_permuted],
    "expanded": [_expanded],
    "mixed": [_transposed, _permuted, torch.Tensor.contiguous],
}


def small(op, dtype, limit) -> Iterator[Case]:
    """Samples without an element or dimension, and others that are cut down to that."""
    if op.name in UNDEFINED_WHEN_SMALL:
        raise NotApplicable("undefined")
    for sample in _small_samples(op, dtype, limit):
        yield Case(sample.label, sample.arguments, _plain_call(op))


def _small_samples(op, dtype, limit):
    samples = _all_samples(op, dtype, False)
    yield from _choose([sample for sample in samples if _is_degenerate(sample)], limit)
    for sample in _choose([sample for sample in samples if tensors_in(sample.arguments)], 2 if limit else None):
        yield sample.with_arguments(map_tensors(_no_elements, sample.arguments), "no elements")
        yield sample.with_arguments(map_tensors(_no_dimensions, sample.arguments), "no dimensions")


def _no_elements(tensor):
    return tensor.narrow(0, 0, 0).clone() if tensor.dim() and tensor.layout == torch.strided else tensor


def _no_dimensions(tensor):
    if tensor.layout != torch.strided or tensor.numel() == 0:
        return tensor
    return tensor[(0,) * tensor.dim()].clone()


def _inplace_function(op):
    function = op.get_inplace()
    if function is None:
        raise NotApplicable("no in-place variant")
    return function


def inplace(op, dtype, limit) -> Iterator[Case]:
    function = _inplace_function(op)

    def call(arguments):
        result = function(arguments[0], *arguments[1], **arguments[2])
        return result, result is arguments[0]

    for sample in samples_of(op, dtype, limit):
        yield Case(sample.label, sample.arguments, call)


def inplace_backward(op, dtype, limit) -> Iterator[Case]:
    function = _inplace_function(op)
    if not op.supports_inplace_autograd:
        raise NotApplicable("not differentiable in place")

    def call(arguments):
        return op.gradcheck_wrapper(function, arguments[0].clone(), *arguments[1], **arguments[2])

    for sample in differentiable_samples_of(op, dtype, limit):
        process = sample.source.output_process_fn_grad
        yield Case(sample.label, sample.arguments, _backward_call(call, process))


def inplace_view(op, dtype, limit) -> Iterator[Case]:
    """In place on a window of a larger tensor, every element of which is compared."""
    function = _inplace_function(op)
    for index, sample in enumerate(samples_of(op, dtype, limit)):
        if not isinstance(sample.input, torch.Tensor) or sample.input.layout != torch.strided:
            continue
        base, window = _embed(sample.input, step=1 + index % 2)

        def call(inputs, window=window):
            base, (_, args, kwargs) = inputs
            return function(base[window], *args, **kwargs)

        yield Case(sample.label, (base, (None, *sample.arguments[1:])), call)


def _embed(tensor, step):
    """A larger tensor and the slices of it that hold the given one."""
    sizes = [size * step + 2 for size in tensor.shape] or [3]
    window = tuple(slice(1, 1 + size * step, step) for size in tensor.shape) or 1
    base = torch.ones(sizes, dtype=tensor.dtype)
    base[window] = tensor
    return base, window


# out= ----------------------------------------------------------------------------------------------------------------


def _filled(shape, dtype):
    return torch.full(shape, True if dtype == torch.bool else 7, dtype=dtype)


def _dense_out(tensor):
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(
        _filled(tensor.shape, tensor.dtype)
    )


def _strided_out(tensor):
    return _filled((*tensor.shape, 2), tensor.dtype)[..., 1]


def _transposed_out(tensor):
    return _filled(tuple(reversed(tensor.shape)), tensor.dtype).permute(list(reversed(range(tensor.dim()))))


def _wider_out(tensor):
    wider = torch.promote_types(tensor.dtype, torch.float64 if not tensor.is_floating_point() else torch.complex64)
    return _filled(tensor.shape, wider)


def _integral_out(tensor):
    return _filled(tensor.shape, torch.int32)


def _empty_out(tensor):
    return torch.empty(0, dtype=tensor.dtype)


def _larger_out(tensor):
    return _filled(tuple(size + 1 for size in tensor.shape) or (2,), tensor.dtype)


OUTS = {
    "dense": _dense_out,
    "strided": _strided_out,
    "transposed": _transposed_out,
    "wider dtype": _wider_out,
    "integral dtype": _integral_out,
}
RESIZED_OUTS = {"empty": _empty_out, "larger": _larger_out}


def _out_cases(op, dtype, limit, makers):
    if not op.supports_out:
        raise NotApplicable("no out= variant")

    def call(inputs):
        (value, args, kwargs), out = inputs
        result = op.op(value, *args, **kwargs, out=out)
        same = [a is b for a, b in zip(tensors_in(result), tensors_in(out), strict=True)]
        return result, same

    for sample in samples_of(op, dtype, limit):
        expected = _cpu_results(op, sample)
        for label, make in makers.items() if expected is not None else ():
            out = map_tensors(make, expected)
            precision = dtype if make is _wider_out and (dtype.is_floating_point or dtype.is_complex) else None
            yield Case(f"{sample.label}, {label} out", (sample.arguments, out), call, precision)


def _cpu_results(op, sample):
    """The op's results as its out= argument expects them; None if there are none to write."""
    try:
        expected = _plain_call(op)(map_tensors(torch.clone, sample.arguments))
    except Exception:
        return None
    if isinstance(expected, torch.Tensor):
        return expected if expected.layout == torch.strided else None
    tensors = tuple(tensors_in(expected))
    return tensors if tensors and all(t.layout == torch.strided for t in tensors) else None


def out(op, dtype, limit) -> Iterator[Case]:
    undefined = {"transposed"} if op.name in UNDEFINED_WHEN_TRANSPOSED else set()
    return _out_cases(op, dtype, limit, {label: make for label, make in OUTS.items() if label not in undefined})


def out_resize(op, dtype, limit) -> Iterator[Case]:
    return _out_cases(op, dtype, limit, RESIZED_OUTS)


# Errors --------------------------------------------------------------------------------------------------------------


def errors(op, dtype, limit) -> Iterator[Case]:
    """The mistakes that the database lists."""
    if op.error_inputs_func is None:
        raise NotApplicable("no error inputs")
    if dtype != torch.float32:
        raise NotApplicable("error inputs choose their own dtype")
    mistakes = op.error_inputs("cpu")
    for index, mistake in enumerate(itertools.islice(mistakes, limit * 4 if limit else None)):
        source = mistake.sample_input
        yield Case(f"error input {index}", (source.input, source.args, source.kwargs), _plain_call(op))


VARIANTS = {
    variant.__name__: variant
    for variant in (
        forward,
        backward,
        noncontiguous,
        noncontiguous_backward,
        in_turn,
        in_turn_backward,
        small,
        inplace,
        inplace_backward,
        inplace_view,
        out,
        out_resize,
        errors,
    )
}
VARIANTS |= {name: _laid_out(layouts) for name, layouts in LAYOUTS.items()}
VARIANTS |= {f"{name}_backward": _laid_out_backward(layouts) for name, layouts in LAYOUTS.items()}


def cases_of(op, variant, dtype, limit) -> Iterator[Case]:
    if dtype not in op.supported_dtypes("cpu"):
        raise NotApplicable("dtype not supported")
    return VARIANTS[variant](op, dtype, limit)
