"""The ops that programs are made of: tables of names and templates."""


def _names(text):
    return text.split()


def along_dim(op, arguments):
    """A call that reduces {0} along {1}."""
    subject = "{0}.contiguous()" if op in DENSE_ONLY else "{0}"
    return f"torch.{op}({subject}, {arguments})"


UNARY = _names("""
abs neg exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh
atanh sigmoid erf erfc floor ceil round trunc frac sign sgn reciprocal square logical_not bitwise_not conj_physical
digamma lgamma i0 sinc deg2rad logit nan_to_num""")
UNARY_WITHOUT_IN_PLACE = _names("isnan isinf isfinite positive angle relu signbit isneginf isposinf")

BINARY = _names("""
add sub mul div floor_divide remainder fmod pow atan2 hypot copysign nextafter eq ne lt le gt ge logical_and
logical_or logical_xor bitwise_and bitwise_or bitwise_xor ldexp xlogy heaviside gcd lcm float_power""")
BINARY_WITHOUT_IN_PLACE = _names("maximum minimum fmax fmin logaddexp rsub")
COMMON_BINARY = _names("add sub mul div eq gt lt logical_and")
OPERATORS = _names("+ - * / // % & | ^ < <= == != > >=")
COMPARISONS = _names("eq ne lt le gt ge < <= == != > >=")

TERNARY = [
    "torch.addcmul({0}, {1}, {2}, value={3})",
    "torch.addcdiv({0}, {1}, {2}, value={3})",
    "torch.lerp({0}, {1}, {2})",
    "torch.lerp({0}, {1}, {3})",
    "torch.clamp({0}, {1}, {2})",
    "torch.clamp({0}, {3}, 2)",
    "torch.clamp({0}, max={1})",
    "torch.where({0} > {3}, {1}, {2})",
    "torch.where({0} != 0, {1}, {3})",
    "{0}.masked_fill({1} > 0, {3})",
    "{0}.masked_fill(({0} > 0) == {4}, {3})",
    "({0} * {1}).masked_fill(({2} > 1) < {4}, {3})",
    "torch.where(({0} > 0) >= {4}, {1}, {2})",
]
TERNARY_IN_PLACE = [
    "{0}.addcmul_({1}, {2}, value={3})",
    "{0}.addcdiv_({1}, {2}, value={3})",
    "{0}.lerp_({1}, {3})",
    "{0}.clamp_({3}, 2)",
    "{0}.clamp_(min={1})",
    "{0}.masked_fill_({1} > 0, {3})",
]

# {0} tensor, {1} dimension, {2} keepdim
REDUCTIONS = _names("""sum prod mean amax amin any all std var nansum logsumexp argmax argmin count_nonzero norm""")
FULL_REDUCTIONS = _names("""
sum prod mean max min amax amin any all std var median nansum argmax argmin count_nonzero norm
nanmedian""")
PAIR_REDUCTIONS = _names("max min median mode sort cummax cummin nanmedian")
# Of expanded tensors, their CPU kernels return memory that nobody wrote.
DENSE_ONLY = {"median", "nanmedian"}
SCANS = _names("cumsum cumprod logcumsumexp softmax log_softmax")
WITH_KEEPDIM = set(REDUCTIONS) - {"count_nonzero", "norm"} | {"max", "min", "median", "mode", "nanmedian"}

# One tensor in, a new one out.
RESHUFFLES = [
    "torch.flip({0}, [{1}])",
    "torch.roll({0}, {3}, {1})",
    "torch.roll({0}, {3})",
    "torch.tril({0}, {3})",
    "torch.triu({0}, {3})",
    "{0}.repeat_interleave(2, dim={1})",
    "torch.diag_embed({0}, {3})",
    "torch.rot90({0})",
    "F.pad({0}, (1, {3}), value=1)",
    "torch.diff({0}, dim={1})",
    "torch.tile({0}, (2,))",
    "{0}.repeat(2, 1, 1)",
    "torch.renorm({0}, 2, {1}, 1.0)",
    "F.layer_norm({0}, {0}.shape[-1:])",
    "F.gelu({0})",
    "F.softplus({0})",
    "F.leaky_relu({0}, 0.5)",
    "F.one_hot({0} == 1)",
    "torch.nonzero({0})",
    "torch.unique({0})",
    # Without elements, its result counts as written once on the CPU, where zeros are made of two ops.
    "torch.trapezoid({0}) if {0}.numel() else None",
    "torch.argsort({0}, dim={1}, stable=True)",
    "torch.bincount({0}.flatten().clamp(max=50))",
    "torch.histc({0} + 0.5, 4)",  # the CPU refuses integers
    "torch.polar({0}, {0})",
    "torch.complex({0}, {0})",
    "torch.block_diag({0}, {0})",
    "torch.nan_to_num({0}, 1.0)",
    "torch.std_mean({0})[1]",
    "torch.aminmax({0}).max",
    "torch.linalg.vector_norm({0})",
    "torch.vander({0})",
    "torch.trace({0})",
    "torch.frexp({0}).mantissa",
]

PRODUCTS = [
    "torch.matmul({0}, {1})",
    "torch.matmul({0}, {0}.mT)",
    "torch.mm({0}, {0}.t())",
    "torch.bmm({0}, {1}.transpose(1, 2))",
    "torch.dot({0}, {1})",
    "torch.outer({0}, {1})",
    "torch.mv({0}, {1})",
    "torch.kron({0}, {1})",
    "torch.einsum('...i,...i->...', {0}, {1})",
    "torch.tensordot({0}, {1}, dims=1)",
    "torch.addmm({0}, {1}, {1}.t())",
    "torch.addmm({0}, {0}, {0}, alpha=2, beta=0.5)",
    "F.linear({0}, {1})",
    "torch.cdist({0}, {1})",
    "torch.cross({0}, {1}, dim=-1)",
    "torch.baddbmm({0}, {0}, {1})",
]

JOINS = [
    "torch.cat([{0}, {1}], {2})",
    "torch.cat([{0}, {0}, {1}], dim=-1)",
    "torch.stack([{0}, {1}], {2})",
    "torch.hstack([{0}, {1}])",
    "torch.vstack([{0}, {1}])",
    "torch.dstack([{0}, {0}])",
]

COPIES = [
    "{0}.clone()",
    "{0}.clone(memory_format=torch.contiguous_format)",
    "{0}.contiguous()",
    "{0}.to({1})",
    "{0}.to({1}, copy=True)",
    "{0}.double()",
    "{0}.type_as({2})",
    "torch.zeros_like({0})",
    "torch.ones_like({0}, dtype={1})",
    "torch.full_like({0}, 2)",
    "{0}.new_zeros({3})",
    "{0}.new_full({3}, 1)",
    "{0}.resolve_conj()",
    "{0}.resolve_neg()",
    "torch.empty_like({0}).copy_({2})",
    "{0}.to(device, copy=True)",
    "torch.Tensor.to({0}, device, {1}, copy=True)",
    "torch.empty({3}, dtype={1}, device=device).fill_(1)",
]

# Into another device and back; copies on the CPU too, where .cpu() would be the tensor itself.
TO_HOST = ["{0}.to('cpu', copy=True)", "{0}.to('cpu', {1}, copy=True)", "{0}.detach().to('cpu', copy=True)"]

# Through another device; `second` is the device itself where there is only one.
TO_SECOND = [
    "{0}.to(second(device), copy=True).to(device, copy=True)",
    "{0}.to(second(device), {1}, copy=True).to(device, copy=True)",
    "{0}.to(second(device), copy=True).add(1).to(device, copy=True)",
    "torch.ones({2}, dtype={1}, device=second(device)).to(device, copy=True)",
]

MAPPED = [
    "torch.func.vmap(lambda a: a.sum() * 2)({0})",
    "torch.func.vmap(torch.add)({0}, {1})",
    "torch.func.vmap(lambda a: a.flip(0))({0})",
    "torch.func.vmap(torch.dot)({0}, {1})",
    "torch.func.vmap(lambda a: a.cumsum(0), in_dims=-1, out_dims=-1)({0})",
    "torch.func.vmap(lambda a, b: torch.where(a > b, a, b), in_dims=(0, None))({0}, {1})",
    "torch.func.vmap(lambda a: a.t().clone().fill_(2))({0})",
    "torch.func.vmap(lambda a: a[0], in_dims=1)({0})",
    "torch.func.vmap(torch.func.vmap(lambda a: a * a))({0})",
    "torch.func.grad(lambda a: (a * a).sum())({0}.detach())",
    "torch.func.vmap(torch.func.grad(lambda a: (a * 3).sum()))({0}.detach())",
    "torch.func.jvp(lambda a: a * a, ({0}.detach(),), (torch.ones_like({0}),))[1]",
]

# Each device has its own numbers: a seed must give the same ones again, whatever happens in between.
_TWICE = (
    "(lambda draw, x: [draw({1}, x), mark_step(device) if {2} else None,"
    " repr(draw({1}, x).tolist()) == repr(draw({1}, x).tolist())][2])"
)
RANDOM = [
    f"{_TWICE}(lambda seed, x: (torch.manual_seed(seed), {draw})[1], {{0}})"
    for draw in (
        "torch.rand(x.shape, device=device)",
        "torch.randn(x.shape, device=device) + x",
        "torch.randint(0, 9, x.shape, device=device)",
        "torch.randperm(x.numel(), device=device)",
        "x.clone().float().uniform_()",
        "x.clone().bernoulli_(0.5)",
        "F.dropout(x.float(), 0.5)",
        "torch.rand(x.shape, device=device).to(x.dtype).add_(torch.randn((), device=device))",
        "torch.bernoulli(torch.full(x.shape, 0.5, device=device))",
    )
]

READS = [
    # Detached, because a copy to the CPU would be a copy nowhere but on other devices: autograd may refuse one.
    "{0}.detach().tolist()",
    "{0}.sum().item()",
    "repr({0})",
    "bool(({0} != 0).any())",
    "torch.equal({0}, {1})",
    "torch.allclose({0}, {1})",
    "len({0})",
    "{0}.max().item()",
    "list({0}.nonzero().shape)",
    "float({0}.flatten()[0])",
    "int({0}.argmax())",
    "{0}.detach().cpu().tolist()",
    "{0}.is_contiguous()",
    "{0}.shape",
]
CONDITIONS = ["{0}.sum().item() > 0", "bool(({0} > 0).any())", "{0}.flatten()[0].item() != 0", "len({0}) > 1"]
NOT = "not ({})"

# Dtypes with their weights, and numbers that are exact in all of them.
DTYPES = {
    "float32": 12,
    "int64": 5,
    "float64": 3,
    "bool": 3,
    "int32": 2,
    "complex64": 2,
    "uint8": 1,
    "int8": 1,
    "int16": 1,
    "float16": 1,
    "bfloat16": 1,
    "complex128": 1,
}
INTEGERS = [-3, -2, -1, 0, 1, 1, 2, 3, 4]
HALVES = [-3.0, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0]
SPECIAL = [float("nan"), float("inf"), -float("inf"), -0.0]
SCALARS = [0, 1, 2, 3, -1, -2, 0.5, 2.0, -1.5, 1.0, True]
# Nor what is near to numbers of some dtypes, or equal to them but for their highest bits.
COMPARED = [-256, 255, 256, 257, 2**16 + 1, 2**31, 2**32, 2**32 + 1, 1 + 1e-9, -1e-46, 1e39, False]

INDEX_READS = [
    "torch.index_select({0}, {1}, {2})",
    "torch.take({0}, {2})",
    "torch.take_along_dim({0}, {2}.abs().reshape(-1), None)",
    "torch.gather({0}, {1}, {2}.abs().reshape([-1] + [1] * ({0}.dim() - 1)))",
    "{0}.index_fill({1}, {2}, {3})",
    "{0}.index_add({1}, {2}, {0}.index_select({1}, {2}))",
    "torch.masked_select({0}, {4} > 0)",
    "{0}.scatter({1}, {2}.abs().reshape([-1] + [1] * ({0}.dim() - 1)), {3})",
    "F.embedding({2}, {0})",
]
INDEX_WRITES = [
    "{0}.index_fill_({1}, {2}, {3})",
    "{0}.index_add_({1}, {2}, {0}.index_select({1}, {2}), alpha=2)",
    "{0}.index_copy_({1}, {2}, {0}.index_select({1}, {2}.flip(0)))",
    "{0}.scatter_({1}, {2}.abs().reshape([-1] + [1] * ({0}.dim() - 1)), {3})",
    "{0}.scatter_add_({1}, {2}.abs().reshape([-1] + [1] * ({0}.dim() - 1)), {0}.clone())",
    "{0}.index_put_(({2},), {0}[0], accumulate=True)",
    "{0}.put_({2}, {0}.flatten()[0].expand({2}.shape), accumulate=True)",
    "{0}.masked_scatter_({4} > 0, {0}.clone())",
    "{0}.masked_fill_({4} != 0, {4}.flatten()[0])",
]
