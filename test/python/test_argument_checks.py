"""Checks that only the CPU kernels make: on small tensors they raise while the line runs, as in eager."""

import pytest
import torch
from helpers import DEVICE, IS_SCHEDULED, assert_same, assert_same_error, error_of, finish_pending, work

import torch_lazyplug


def ints(*values, device):
    return torch.tensor(values, device=device)


# Meta kernels let these pass. They are written so that no result is read.
REFUSED = {
    "alpha_of_another_kind": lambda d: torch.add(ints(1, 2, device=d), ints(1, 2, device=d), alpha=1.5),
    "mm_dtypes": lambda d: torch.ones(2, 2, device=d) @ torch.ones(2, 2, device=d, dtype=torch.float64),
    "bitwise_of_floats": lambda d: torch.ones(2, device=d) & torch.ones(2, device=d),
    "softmax_of_integers": lambda d: ints(1, 2, device=d).softmax(0),
    "complex_of_two_dtypes": lambda d: torch.complex(torch.ones(2, device=d), torch.ones(2, device=d).double()),
    "index_put_dtypes": lambda d: torch.ones(5, device=d).__setitem__(ints(0, 1, device=d), ints(1, 2, device=d)),
    "index_put_shapes": lambda d: torch.ones(2, 3, device=d).__setitem__(ints(0, 1, device=d), torch.ones(4, device=d)),
    "mask_values": lambda d: torch.ones(4, device=d).__setitem__(
        ints(1, 1, 1, 0, device=d).bool(), ints(1.0, 2.0, device=d)
    ),
    "index_of_nothing": lambda d: torch.empty(10, 0, device=d)[:, [0, 1]],
    "random_range": lambda d: torch.empty(2000, device=d).random_(3, 3),
    "random_beyond_dtype": lambda d: torch.empty(2000, dtype=torch.int8, device=d).random_(0, 1000),
    "permutation_beyond_dtype": lambda d: torch.randperm(2**11 + 2, out=torch.empty(0, dtype=torch.half, device=d)),
    "singular": lambda d: torch.linalg.inv(torch.zeros(2, 2, device=d)),
}

# The first call is fine, and the second differs only in a number.
REFUSED_NUMBERS = {
    "negative_power": lambda d, bad: ints(1, 2, device=d) ** (-1 if bad else 2),
    "division_by_zero": lambda d, bad: ints(1, 2, device=d).div_(0 if bad else 2, rounding_mode="trunc"),
    "overflow": lambda d, bad: torch.zeros(3, dtype=torch.int8, device=d).fill_(1000 if bad else 10),
    "imaginary": lambda d, bad: torch.zeros(3, device=d).fill_(1 + 1j if bad else 1 + 0j),
    "imaginary_next_to_half": lambda d, bad: torch.ones(3, device=d).half().clamp(1 + 1j if bad else 1 + 0j),
    "complex_overflow": lambda d, bad: (
        torch.zeros(3, device=d)
        .half()
        .masked_fill(torch.ones(3, device=d, dtype=torch.bool), 1e6 + 0j if bad else 1 + 0j)
    ),
    "division_by_false": lambda d, bad: ints(1, 2, device=d).div_(not bad, rounding_mode="trunc"),
    "negative_deviation": lambda d, bad: torch.zeros(3, device=d).normal_(0.0, -1.0 if bad else 1.0),
    "negative_rate": lambda d, bad: torch.zeros(3, device=d).exponential_(-0.5 if bad else 0.5),
    "no_probability": lambda d, bad: torch.zeros(3, device=d).bernoulli_(1.5 if bad else 0.5),
    "certain_success": lambda d, bad: torch.zeros(3, device=d).geometric_(1.0 if bad else 0.5),
    "bounds_of_uniform": lambda d, bad: torch.zeros(3, device=d).uniform_(*((5.0, 2.0) if bad else (2.0, 5.0))),
    "distance_of_bounds": lambda d, bad: torch.zeros(3, device=d).uniform_(*((-2e38, 2e38) if bad else (-1e38, 1e38))),
    "distance_of_half": lambda d, bad: torch.zeros(3, device=d).half().uniform_(*((-4e4, 4e4) if bad else (-4e4, 2e4))),
    "no_deviation": lambda d, bad: torch.zeros(3, device=d).log_normal_(1.0, 0.0 if bad else 1.0),
    "no_scale": lambda d, bad: torch.zeros(3, device=d).cauchy_(0.0, 0.0 if bad else 1.0),
    "negative_scale": lambda d, bad: torch.zeros(3, device=d).cauchy_(0.0, -1.0 if bad else 1.0),
    "zero_rate": lambda d, bad: torch.zeros(3, device=d).exponential_(0.0 if bad else 0.5),
    "negative_probability": lambda d, bad: torch.zeros(3, device=d).bernoulli_(-0.1 if bad else 0.5),
    "no_probability_of_draws": lambda d, bad: torch.bernoulli(torch.zeros(3, device=d), 1.1 if bad else 0.5),
    "dropout": lambda d, bad: torch.nn.functional.dropout(torch.ones(3, device=d), 1.5 if bad else 0.5),
    "normal_of_means": lambda d, bad: torch.normal(torch.zeros(3, device=d), -1.0 if bad else 1.0),
    "histogram_bounds": lambda d, bad: torch.histc(torch.ones(3, device=d), 4, *((3, 1) if bad else (1, 3))),
    "infinite_histogram": lambda d, bad: torch.histc(torch.ones(3, device=d), 4, 0, float("inf") if bad else 3),
    "no_norm": lambda d, bad: torch.renorm(torch.ones(2, 2, device=d), 0.0 if bad else 2.0, 0, 1.0),
    "negative_norm": lambda d, bad: torch.renorm(torch.ones(2, 2, device=d), 2.0, 0, -1.0 if bad else 1.0),
    "negative_shrink": lambda d, bad: torch.nn.functional.softshrink(torch.ones(3, device=d), -1.0 if bad else 1.0),
    "celu": lambda d, bad: torch.nn.functional.celu(torch.ones(3, device=d), 0.0 if bad else 1.0),
    "distance": lambda d, bad: torch.cdist(
        torch.ones(2, 2, device=d), torch.ones(2, 2, device=d), -1.0 if bad else 3.0
    ),
    "negative_beta": lambda d, bad: torch.nn.functional.smooth_l1_loss(
        torch.zeros(3, device=d), torch.ones(3, device=d), beta=-1.0 if bad else 1.0
    ),
    "power_of_margin": lambda d, bad: torch.nn.functional.multi_margin_loss(
        torch.ones(2, 3, device=d), torch.tensor([0, 1], device=d), p=3 if bad else 2
    ),
    "hardtanh": lambda d, bad: torch.nn.functional.hardtanh(
        torch.ones(3, device=d), *((2.0, 1.0) if bad else (1.0, 2.0))
    ),
    "leaky": lambda d, bad: torch.nn.functional.rrelu(
        torch.ones(3, device=d), *((0.5, 0.1) if bad else (0.1, 0.5)), True
    ),
    "negative_delta": lambda d, bad: torch.nn.functional.huber_loss(
        torch.zeros(3, device=d), torch.ones(3, device=d), delta=-1.0 if bad else 1.0
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_raises_while_the_line_runs(name):
    expected = error_of(REFUSED[name], "cpu")
    for _ in range(2):  # what was refused is not remembered as a call that works
        assert_same_error(error_of(REFUSED[name], DEVICE), expected)
    assert (torch.arange(3.0, device=DEVICE) * 2).tolist() == [0, 2, 4]


@pytest.mark.parametrize("name", REFUSED_NUMBERS)
def test_raises_for_a_number_that_the_kernel_refuses(name):
    call = REFUSED_NUMBERS[name]
    call(DEVICE, False)
    finish_pending()
    assert_same_error(error_of(call, DEVICE, True), error_of(call, "cpu", True))
    call(DEVICE, False).cpu()


@pytest.mark.parametrize("name", REFUSED_NUMBERS)
def test_raises_for_a_number_that_the_kernel_refuses_in_a_loop(name):
    call = REFUSED_NUMBERS[name]
    expected = error_of(call, "cpu", True)
    for _ in range(4):
        call(DEVICE, False)
        finish_pending()  # the same step again: it is predicted
    with work() as done:
        assert_same_error(error_of(call, DEVICE, True), expected)
        call(DEVICE, False).cpu()
    assert done.fallbacks == 0


def test_numbers_in_another_order_need_no_new_graph():
    def clamped(x, low, high):
        return x.clamp(low, high).tolist()

    clamped(torch.ones(4, device=DEVICE), 0.25, 0.5)
    with work() as done:
        for low, high in ((0.5, 0.25), (1.0, 0.5), (0.5, 0.5), (1.0, 1.0), (0.0, 1.0), (-1e38, 3e38)):
            assert clamped(torch.ones(4, device=DEVICE), low, high) == clamped(torch.ones(4), low, high)
    assert done.compiles == 0 or IS_SCHEDULED
    assert done.fallbacks == 0


@pytest.mark.parametrize(
    "dtype, fits, overflows",
    [
        (torch.int8, 127, 128),
        (torch.int8, -128, -129),
        (torch.uint8, 255, 256),
        (torch.uint8, -255, -256),
        (torch.int16, 32767, 32768),
        (torch.int32, 2**31 - 1, 2**31),
        (torch.float16, 65504.0, 65505.0),
        (torch.bfloat16, 3.38e38, 3.395e38),
        (torch.float32, 3.4e38, 3.5e38),
        (torch.float32, float("inf"), 1e300),
    ],
)
def test_raises_for_the_next_number_that_does_not_fit(dtype, fits, overflows):
    def fill(device, number):
        return torch.zeros(3, dtype=dtype, device=device).fill_(number)

    assert torch.equal(fill(DEVICE, fits).cpu(), fill("cpu", fits))
    assert_same_error(error_of(fill, DEVICE, overflows), error_of(fill, "cpu", overflows))


@pytest.mark.smoke
@pytest.mark.own_schedule("looks at what is pending")
def test_a_call_that_zeros_cannot_stand_in_for_is_run_once_and_then_recorded():
    """The CPU kernel refuses zeros here, but not the values: from the second time on nothing waits."""
    values, divisors = torch.tensor([7, 9], device=DEVICE), torch.tensor([2, 3], device=DEVICE)
    assert (values // divisors).tolist() == [3, 3]
    with work() as done:
        again = values // divisors
        pending = torch_lazyplug.debug.get_tensors_text([again])
    assert "aten::floor_divide" in pending
    assert done.fallbacks == 0


@pytest.mark.own_schedule("counts graphs")
def test_numbers_of_another_range_need_no_new_graph():
    def scaled(x, number):
        return (x.add(x, alpha=number) * number).tolist()

    x = torch.ones(4, device=DEVICE)
    for number in (0.5, 3.0):
        scaled(x, number)
    with work() as done:
        for number in (0.0, -1.0, 1e3, 1e9, -1e18, float("inf")):
            assert scaled(x, number) == scaled(torch.ones(4), number)
    assert done.compiles == 0 and done.fallbacks == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda out: torch.linspace(0, 3, 4, out=out),
        lambda out: torch.logspace(0, 3, 4, out=out),
        lambda out: torch.arange(0, 4, out=out),
        lambda out: torch.arange(4, out=out),
    ],
)
def test_out_of_the_right_number_of_elements_keeps_its_shape(make):
    """Eager fills it in place, whatever its strides; Meta kernels would make it one-dimensional."""
    expected = torch.zeros(2, 3)
    make(expected.narrow(1, 1, 2))
    actual = torch.zeros(2, 3, device=DEVICE)
    view = actual.narrow(1, 1, 2)
    assert make(view) is view
    assert view.shape == (2, 2) and view.stride() == (3, 1)
    assert torch.equal(actual.cpu(), expected)


def test_bools_that_require_gradients_are_refused_as_any_others():
    """Writing a number that requires gradients makes its destination require them, even one of bools."""
    for device in ("cpu", DEVICE):
        mask = torch.zeros(2, dtype=torch.bool, device=device)
        mask[mask] = torch.tensor(1.0, device=device, requires_grad=True)
        assert mask.requires_grad
        with pytest.raises(NotImplementedError, match="not implemented for 'Bool'"):
            torch.nextafter(mask, mask)


# On tensors that are not small, where Meta kernels are asked, which do not check these dtypes.
def _large(*sizes, device, dtype=torch.float32):
    return torch.ones(*sizes, device=device, dtype=dtype)


REFUSED_DTYPES = {
    "mm": lambda d: _large(130, 130, device=d) @ _large(130, 130, device=d, dtype=torch.float64),
    "bmm": lambda d: _large(3, 90, 90, device=d) @ _large(3, 90, 90, device=d, dtype=torch.float64),
    "mv": lambda d: _large(130, 130, device=d) @ _large(130, device=d, dtype=torch.float64),
    "addmm_term": lambda d: torch.addmm(_large(8, device=d), *(_large(130, 130, device=d),) * 2),
    "addmm_term_in_3d": lambda d: torch.addmm(_large(1, 2, 3, device=d), *(_large(130, 130, device=d),) * 2),
    "linear_bias": lambda d: torch.nn.functional.linear(*(_large(130, 130, device=d),) * 2, _large(8, device=d)),
    "dilation": lambda d: torch.nn.functional.conv2d(
        _large(2, 3, 64, 64, device=d), _large(4, 3, 3, 3, device=d), dilation=0
    ),
    "output_padding": lambda d: torch.nn.functional.conv_transpose2d(
        _large(2, 3, 64, 64, device=d), _large(3, 4, 3, 3, device=d), stride=2, output_padding=2
    ),
    "mv_shapes": lambda d: _large(130, 130, device=d) @ _large(8, device=d),
    "linear": lambda d: torch.nn.functional.linear(
        _large(130, 130, device=d), _large(130, 130, device=d, dtype=torch.float64)
    ),
    "convolution": lambda d: torch.nn.functional.conv2d(
        _large(2, 3, 64, 64, device=d, dtype=torch.float64), _large(4, 3, 3, 3, device=d)
    ),
    "layer_norm": lambda d: torch.nn.functional.layer_norm(
        _large(130, 130, device=d, dtype=torch.float64), (130,), _large(130, device=d), _large(130, device=d)
    ),
    "cross_entropy": lambda d: torch.nn.functional.binary_cross_entropy(
        _large(130, 130, device=d), _large(130, 130, device=d, dtype=torch.float64)
    ),
    "softmax": lambda d: _large(130, 130, device=d, dtype=torch.int64).softmax(-1),
    "mse_loss": lambda d: torch.nn.functional.mse_loss(*(_large(130, 130, device=d, dtype=torch.int64),) * 2),
    "xor": lambda d: _large(130, 130, device=d) ^ _large(130, 130, device=d),
    "gcd": lambda d: torch.gcd(_large(130, 130, device=d), _large(130, 130, device=d)),
    "rows_of_integers": lambda d: torch.nn.functional.layer_norm(_large(130, 130, device=d, dtype=torch.uint8), (130,)),
    "cross_product": lambda d: torch.linalg.cross(
        _large(900, 3, device=d), _large(900, 3, device=d, dtype=torch.float64)
    ),
    "distances": lambda d: torch.cdist(_large(130, 130, device=d), _large(130, 130, device=d, dtype=torch.float64)),
    "prelu": lambda d: torch.prelu(_large(130, 130, device=d).long(), _large(1, device=d).long()),
    "dimensions_named_twice": lambda d: _large(130, 130, device=d).var((0, -2)),
    "dimensions_of_logsumexp": lambda d: torch.logsumexp(_large(130, 130, device=d), (0, -2)),
    "dimensions_of_nansum": lambda d: torch.nansum(_large(130, 130, device=d), (0, -2)),
    "images_without_samples": lambda d: torch.nn.functional.fractional_max_pool2d(
        _large(2, 16, 32, 32, device=d), 2, output_size=1, _random_samples=_large(1, 16, 2, device=d)
    ),
    "samples_of_fewer_channels": lambda d: torch.nn.functional.fractional_max_pool3d(
        _large(2, 16, 16, 16, 16, device=d), 2, output_size=1, _random_samples=_large(2, 15, 3, device=d)
    ),
    "adaptive_average": lambda d: torch.nn.functional.adaptive_avg_pool2d(_large(1, 130, 130, device=d).long(), 3),
    "weight_norm": lambda d: torch._weight_norm(_large(130, 130, device=d).long(), _large(130, 1, device=d).long()),
    "mask": lambda d: _large(130, 130, device=d).masked_fill(_large(130, 130, device=d), 0.0),
}


@pytest.mark.parametrize("name", REFUSED_DTYPES)
def test_dtypes_are_checked_at_the_line_whatever_the_size(name):
    def message(device):
        with pytest.raises(RuntimeError) as error:
            REFUSED_DTYPES[name](device)
        return str(error.value)

    expected = message("cpu")
    for _ in range(2):  # the first time does not decide for the second
        assert message(DEVICE) == expected


@pytest.mark.parametrize(
    ("dtype", "op", "accepted", "refused"),
    [
        (torch.bool, torch.remainder, 2, True),
        (torch.bool, torch.fmod, 2, True),
        (torch.int64, torch.bitwise_and, 1, 1.5),
        (torch.int32, torch.bitwise_xor, 1, 1.5),
    ],
)
def test_a_number_of_another_type_is_checked_anew(dtype, op, accepted, refused):
    def message(device):
        x = _large(130, 130, device=device, dtype=dtype)
        op(x, accepted)
        with pytest.raises(NotImplementedError) as error:
            op(x, refused)
        return str(error.value)

    assert message(DEVICE) == message("cpu")


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "nansum", "sum", "prod"])
def test_each_dtype_argument_is_checked_anew(name):
    """Also after another one has been taken."""
    refused = {"cumsum": torch.bool, "cumprod": torch.bool, "nansum": torch.complex64}.get(name, torch.complex32)
    x = torch.ones(300, 40)
    y = x.to(DEVICE)
    call = getattr(torch, name)
    assert_same(call(y, 0, dtype=torch.float64).cpu(), call(x, 0, dtype=torch.float64))
    assert_same_error(error_of(lambda: call(y, 0, dtype=refused)), error_of(lambda: call(x, 0, dtype=refused)))


def test_what_a_refused_call_would_have_written_is_there():
    x = _large(130, 130, device=DEVICE)
    index = torch.tensor([0], device=DEVICE)
    with pytest.raises(RuntimeError, match="source and destination dtypes match"):
        x.index_put_((index,), torch.zeros(1, 130, device=DEVICE, dtype=torch.float64))
    with pytest.raises(RuntimeError, match="masked_fill_ only supports boolean masks"):
        x.masked_fill_(x, 0.0)
    assert x.sum().item() == 130 * 130


@pytest.mark.own_schedule("counts compiles")
def test_right_dtypes_are_recorded_at_once():
    x, index = torch.randn(130, 130), torch.arange(130)

    def program(x, index):
        picked = x.index_select(0, index).masked_fill(x > 0, 0.0) + x.gather(1, index.expand(130, 130))
        return torch.nn.functional.cross_entropy(picked, index) + torch.where(x > 0, picked, x).sum()

    with work() as done:
        actual = program(x.to(DEVICE), index.to(DEVICE)).cpu()
    torch.testing.assert_close(actual, program(x, index))
    assert (done.compiles, done.fallbacks) == (1, 0)


def test_one_element_may_be_assigned_to_itself():
    for sizes in ((1,), (1, 1)):
        x = torch.ones(sizes, device=DEVICE) * 3
        x[:] = x[0]
        x[0] = x[(0,) * len(sizes)]
        assert x.flatten().tolist() == [3]


# Sizes and strides of one memory. Copies between views that lie alike are none, whatever overlaps in them.
VIEWS = (
    ((1,), (1,)),
    ((1,), (2,)),
    ((1, 1), (1, 1)),
    ((1, 1), (0, 1)),
    ((2, 3), (3, 1)),
    ((2, 3), (0, 1)),
    ((2, 3), (1, 2)),
)


@pytest.mark.parametrize("source", VIEWS, ids=str)
@pytest.mark.parametrize("target", VIEWS, ids=str)
def test_copies_within_one_memory_are_refused_as_on_the_cpu(target, source):
    def program(x):
        x.as_strided(*target).copy_(x.as_strided(*source))

    expected, actual = torch.arange(6.0), torch.arange(6.0).to(DEVICE)
    refused = error_of(program, expected)
    if refused:
        assert_same_error(error_of(program, actual), refused)
    else:
        program(actual)
    assert actual.tolist() == expected.tolist()
