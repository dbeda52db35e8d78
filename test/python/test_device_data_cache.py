"""Numbers that are used again are not copied again, and nothing that a program can do changes a number that is kept."""

import struct
import threading

import pytest
import torch
from helpers import DEVICE, assert_same, both, finish_pending, work

import torch_lazyplug
from torch_lazyplug import config, metrics

pytestmark = pytest.mark.lazy_only


@pytest.fixture(autouse=True)
def empty():
    torch.lazy.empty_cache()


class Uses:
    """How many numbers have been found, and how many copied, since this was made."""

    def __init__(self):
        self.before = self.now()

    def now(self):
        return [metrics.counter_value(f"DeviceDataCache{kind}") or 0 for kind in ("Hit", "Miss")]

    def counts(self):
        hits, misses = (now - before for now, before in zip(self.now(), self.before, strict=True))
        return {"hits": hits, "misses": misses}


NUMBERS = [
    torch.tensor(True),
    torch.tensor(7, dtype=torch.uint8),
    torch.tensor(-(2**62)),
    torch.tensor(1.5, dtype=torch.bfloat16),
    torch.tensor(-2.5, dtype=torch.float16),
    torch.tensor(1 / 3, dtype=torch.float64),
    torch.tensor(float("inf")),
    torch.tensor(1 + 2j, dtype=torch.complex64),
    torch.tensor(1e-300 - 1e300j, dtype=torch.complex128),
]


@pytest.mark.smoke
@pytest.mark.parametrize("number", NUMBERS, ids=str)
def test_numbers_of_each_dtype(number):
    for _ in range(3):
        uses = Uses()
        both(lambda x: (x * number, x + number, x * number), torch.tensor([1.0, -2.0]))
    assert uses.counts() == {"hits": 3, "misses": 0}


def test_python_numbers_are_kept_too():
    x = torch.ones(4, device=DEVICE)
    uses = Uses()
    results = [x * 2.5 + 1 for _ in range(10)]
    assert uses.counts() == {"hits": 18, "misses": 2}
    assert all(result.tolist() == [3.5] * 4 for result in results)


def test_signs_of_zero_and_nans_are_told_apart():
    def bits(tensor):
        return tensor.view(torch.int32).tolist()

    payloads = [struct.unpack("<f", struct.pack("<I", word))[0] for word in (0x7FC00000, 0x7FC00123, 0xFFC00001)]
    patterns = [torch.tensor([word], dtype=torch.int64).to(torch.int32) for word in (0x7FC00123, -0x80000000, 0)]
    numbers = [pattern.view(torch.float32)[0] for pattern in patterns] + [torch.tensor(value) for value in payloads]
    zeros = torch.zeros(1)
    for number in numbers * 2:
        expected = torch.where(zeros == 0, number, zeros)
        x = zeros.to(DEVICE)
        assert bits(torch.where(x == 0, number, x).cpu()) == bits(expected)


def test_wrapped_numbers_promote_as_such():
    both(lambda x: (x + 2.0, x + torch.tensor(2.0, dtype=torch.float64), x + 2.0), torch.tensor([1, 2]))


def test_a_tensor_that_is_written_is_another_number():
    def compute(x):
        number = torch.tensor(2.0)
        results = [x * number]
        for value in (3.0, 2.0, 4.0):
            number.fill_(value)
            results.append(x * number)
        return results

    for _ in range(2):
        both(compute, torch.rand(3))


def test_results_made_of_numbers_are_written():
    number = torch.tensor(5.0)

    def compute(x):
        y = torch.where(x > 0, number, x)
        z = torch.maximum(x, number)
        w = torch.empty((), device=x.device).copy_(number)
        for result in (y, z, w):
            result.add_(1).mul_(number)
        return y, z, w, x * number

    for _ in range(3):
        both(compute, torch.tensor(1.0))
    assert number.item() == 5


def test_memory_of_results_is_not_the_numbers():
    x = torch.zeros((), device=DEVICE)
    number = torch.tensor(5.0)
    for _ in range(3):
        y = torch.where(x == 0, number, x)
        finish_pending()
        y.untyped_storage().fill_(0)
        assert y.item() == 0
        assert (x + number).item() == 5


def test_what_a_graph_starts_from_may_be_written():
    x = torch.ones(2, device=DEVICE)
    y = x * torch.tensor(3.0)
    _, values = torch_lazyplug.computation.get_tensors_ts_device_data_node([y])
    for value in values:
        if value.dim() == 0:
            value.fill_(100)
    assert y.tolist() == [3, 3]
    assert (x * torch.tensor(3.0)).tolist() == [3, 3]


def test_kernels_in_python_may_keep_and_write_their_arguments():
    kept = []

    @torch.library.custom_op("lazyplug_numbers::keep", mutates_args=(), device_types="cpu")
    def keep(x: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
        kept.append(number)
        return x * number

    @keep.register_fake
    def _(x, number):
        return torch.empty_like(x)

    x = torch.ones(2, device=DEVICE)
    number = torch.tensor(3.0)
    assert keep(x, number).tolist() == [3, 3]
    pending = x * number
    for tensor in kept:
        tensor.fill_(100)
    assert (x * number).tolist() == [3, 3]
    assert pending.tolist() == [3, 3]


def test_they_take_no_device_memory():
    x = torch.ones(2, device=DEVICE)
    finish_pending()
    before = torch.lazy.memory_allocated()
    for number in range(100):
        x * float(number)
    finish_pending()
    assert torch.lazy.memory_allocated() == before


def test_empty_cache_forgets_them():
    x = torch.ones(2, device=DEVICE)
    y = x * 2.5
    torch.lazy.empty_cache()
    uses = Uses()
    assert (x * 2.5 + y).tolist() == [5, 5]
    assert uses.counts() == {"hits": 0, "misses": 1}


def test_their_number_is_bounded():
    x = torch.ones(2, device=DEVICE)
    before = config.get("device_data_cache_size")
    config.set("device_data_cache_size", 3)
    try:
        for number in (1.5, 2.5, 3.5, 4.5):
            x * number
        uses = Uses()
        x * 4.5, x * 3.5, x * 1.5
        assert uses.counts() == {"hits": 2, "misses": 1}
        config.set("device_data_cache_size", 0)
        uses = Uses()
        assert (x * 4.5).tolist() == [4.5, 4.5]
        assert uses.counts() == {"hits": 0, "misses": 0}
    finally:
        config.set("device_data_cache_size", before)


@pytest.mark.own_schedule("counts graphs")
def test_equal_numbers_make_no_other_graph():
    x = torch.ones(3, device=DEVICE)
    finish_pending()

    def compute(a, b):
        return ((x * a + b) * torch.tensor(a)).tolist()

    compute(2.0, 3.0)
    with work() as done:
        assert compute(4.0, 4.0) == [32.0] * 3
    assert (done.compiles, done.cache_misses) == (0, 0)


def test_threads_share_them():
    x = torch.ones(2, device=DEVICE)
    errors = []

    def run(seed):
        try:
            for i in range(200):
                number = float((i + seed) % 7)
                assert_same((x * number + number).cpu(), torch.full((2,), 2 * number))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
