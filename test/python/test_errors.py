"""Errors come where eager's come, with the same type and message, and harm nothing else."""

import pytest
import torch
import torch.nn.functional as F
from helpers import DEVICE, assert_same_error, error_of, finish_pending


def ones(*size, device, **options):
    return torch.ones(*size, device=device, **options)


# Each raises while the line runs, before anybody reads a result.
AT_ITS_LINE = {
    "add_shapes": lambda d: ones(2, 3, device=d) + ones(4, device=d),
    "add_in_place_shapes": lambda d: ones(3, device=d).add_(ones(2, 3, device=d)),
    "matmul_shapes": lambda d: ones(2, 3, device=d) @ ones(4, 5, device=d),
    "mm_dimensions": lambda d: torch.mm(ones(2, device=d), ones(2, 2, device=d)),
    "bmm_batches": lambda d: torch.bmm(ones(2, 3, 4, device=d), ones(3, 4, 5, device=d)),
    "addmm_shapes": lambda d: torch.addmm(ones(7, device=d), ones(2, 3, device=d), ones(3, 4, device=d)),
    "linear_shapes": lambda d: F.linear(ones(2, 3, device=d), ones(5, 4, device=d)),
    "conv_channels": lambda d: F.conv2d(ones(1, 2, 5, 5, device=d), ones(4, 3, 3, 3, device=d)),
    "conv_kernel_too_large": lambda d: F.conv2d(ones(1, 2, 2, 2, device=d), ones(4, 2, 3, 3, device=d)),
    "pool_too_large": lambda d: F.max_pool2d(ones(1, 1, 2, 2, device=d), 5),
    "cat_shapes": lambda d: torch.cat([ones(2, 3, device=d), ones(2, 4, device=d)]),
    "stack_shapes": lambda d: torch.stack([ones(2, device=d), ones(3, device=d)]),
    "view_size": lambda d: ones(2, 3, device=d).view(4),
    "view_strides": lambda d: ones(2, 3, device=d).t().view(6),
    "reshape_size": lambda d: ones(2, 3, device=d).reshape(5),
    "expand_size": lambda d: ones(2, 3, device=d).expand(4, 3),
    "as_strided_beyond_storage": lambda d: ones(4, device=d).as_strided((3,), (2,), 1),
    "dimension_range": lambda d: ones(2, 3, device=d).sum(2),
    "transpose_dimension": lambda d: ones(2, 3, device=d).transpose(0, 2),
    "permute_repeats": lambda d: ones(2, 3, device=d).permute(0, 0),
    "select_range": lambda d: ones(2, 3, device=d)[5],
    "narrow_range": lambda d: ones(4, device=d).narrow(0, 3, 2),
    "too_many_indices": lambda d: ones(2, device=d)[0, 0],
    "split_sizes": lambda d: ones(4, device=d).split([1, 2]),
    "copy_shapes": lambda d: ones(2, 3, device=d).copy_(ones(4, device=d)),
    "assign_shapes": lambda d: ones(2, 3, device=d).__setitem__(0, ones(4, device=d)),
    "gather_dimensions": lambda d: ones(2, 3, device=d).gather(0, ones(2, device=d, dtype=torch.int64)),
    "index_dtype": lambda d: ones(2, 3, device=d)[ones(2, device=d)],
    "mask_shape": lambda d: ones(2, 3, device=d).masked_fill_(ones(4, device=d, dtype=torch.bool), 0),
    "embedding_index_dtype": lambda d: F.embedding(ones(2, device=d), ones(3, 4, device=d)),
    "cross_entropy_shapes": lambda d: F.cross_entropy(ones(2, 3, device=d), ones(4, device=d, dtype=torch.int64)),
    "layer_norm_shape": lambda d: F.layer_norm(ones(2, 3, device=d), (4,)),
    "batch_norm_one_value": lambda d: F.batch_norm(ones(1, 3, device=d), None, None, training=True),
    "result_cast_in_place": lambda d: ones(2, device=d, dtype=torch.int64).add_(1.5),
    "result_cast_out": lambda d: torch.add(ones(2, device=d), 1, out=ones(2, device=d, dtype=torch.int64)),
    "mean_of_integers": lambda d: ones(2, device=d, dtype=torch.int64).mean(),
    "negative_bool": lambda d: -ones(2, device=d, dtype=torch.bool),
    "printed_tensors": lambda d: torch.ops.aten.add(ones(1, device=d), 1, out=[ones(1, device=d)]),
    "item_of_many": lambda d: ones(2, device=d).item(),
    "bool_of_many": lambda d: bool(ones(2, device=d)),
    "negative_size": lambda d: torch.empty(-1, device=d),
    "arange_of_nothing": lambda d: torch.arange(3, 0, device=d),
    "leaf_in_place": lambda d: ones(2, device=d, requires_grad=True).add_(1),
    "leaf_view_in_place": lambda d: ones(2, device=d, requires_grad=True)[0].fill_(1),
    "integers_require_grad": lambda d: ones(2, device=d, dtype=torch.int64, requires_grad=True),
    "backward_of_many": lambda d: (ones(2, device=d, requires_grad=True) * 2).backward(),
    "backward_without_graph": lambda d: ones((), device=d).backward(),
    "writing_to_expanded": lambda d: ones(1, device=d).expand(3).add_(1),
    "writing_overlaps_reading": lambda d: (lambda x: x[1:].add_(x[:-1]))(ones(4, device=d)),
    "out_overlaps_input": lambda d: (lambda x: torch.mul(x[:-1], 2, out=x[1:]))(ones(4, device=d)),
}

# These depend on values, or on checks that only the kernel makes: the latest moment is when somebody reads.
AT_THE_READ = {
    "mm_dtypes": lambda d: ones(2, 2, device=d) @ ones(2, 2, device=d, dtype=torch.float64),
    "softmax_dimension": lambda d: ones(2, device=d).softmax(1),
    "bitwise_of_floats": lambda d: ones(2, device=d) & ones(2, device=d),
    "softmax_of_integers": lambda d: ones(2, device=d, dtype=torch.int64).softmax(0),
    "index": lambda d: ones(4, device=d)[torch.tensor([1, 9], device=d)],
    "index_put": lambda d: ones(4, device=d).index_put_((torch.tensor([9], device=d),), torch.zeros(1, device=d)),
    "index_select": lambda d: ones(4, device=d).index_select(0, torch.tensor([9], device=d)),
    "gather": lambda d: ones(4, device=d).gather(0, torch.tensor([9], device=d)),
    "scatter": lambda d: ones(4, device=d).scatter(0, torch.tensor([9], device=d), 0.0),
    "embedding": lambda d: F.embedding(torch.tensor([0, 9], device=d), ones(3, 2, device=d)),
    "cross_entropy": lambda d: F.cross_entropy(ones(1, 3, device=d), torch.tensor([7], device=d)),
    "singular_inverse": lambda d: torch.linalg.inv(torch.zeros(2, 2, device=d)),
    "not_positive_definite": lambda d: torch.linalg.cholesky(-ones(2, 2, device=d)),
    "one_not_positive_definite": lambda d: torch.linalg.cholesky(torch.tensor([[[1.0]], [[-1.0]]], device=d)),
    "singular_system": lambda d: torch.linalg.solve(torch.zeros(2, 2, device=d), ones(2, device=d)),
    "integer_division_by_zero": lambda d: torch.tensor([1], device=d) // torch.tensor([0], device=d),
}


@pytest.mark.parametrize("name", AT_ITS_LINE)
def test_raises_at_its_line_like_eager(name):
    assert_same_error(error_of(AT_ITS_LINE[name], DEVICE), error_of(AT_ITS_LINE[name], "cpu"))
    assert_device_works()


@pytest.mark.parametrize("name", AT_THE_READ)
def test_raises_at_the_read_at_the_latest(name):
    assert_same_error(error_of(lambda: AT_THE_READ[name](DEVICE).cpu()), error_of(AT_THE_READ[name], "cpu"))
    assert_device_works()


@pytest.mark.lazy_only
def test_a_late_error_names_the_call():
    error = error_of(lambda: AT_THE_READ["cross_entropy"](DEVICE).cpu())
    operands = "Float[1, 3] strides=[3, 1], Long[1] strides=[1], None"  # there are no weights
    assert f"(while running aten::nll_loss_forward({operands}))" in str(error)


def assert_device_works():
    x = torch.arange(3.0, device=DEVICE)
    assert (x * 2 + 1).tolist() == [1, 3, 5]


# The neighbours of an error ------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_tensors_before_and_after_a_shape_error_are_usable():
    before = ones(2, 3, device=DEVICE) * 2
    target = ones(2, 3, device=DEVICE) * 5
    with pytest.raises(RuntimeError):
        target.add_(ones(4, device=DEVICE))
    after = before + 1
    assert before.sum().item() == 12
    assert target.sum().item() == 30
    assert after.sum().item() == 18


@pytest.mark.smoke
def test_tensors_before_and_after_a_failed_run_are_usable():
    """The error belongs to what it broke: it is raised there, and nowhere else."""
    available = ones(3, device=DEVICE)
    finish_pending()
    before = available * 2
    failed = error_of(lambda: ones(4, device=DEVICE)[torch.tensor([9], device=DEVICE)].cpu())
    after = available * 3 + before
    assert isinstance(failed, IndexError)
    assert available.tolist() == [1, 1, 1]
    assert before.tolist() == [2, 2, 2]
    assert after.tolist() == [5, 5, 5]


def test_a_failed_run_can_be_repeated_with_good_values():
    """Same graph, other values: nothing bad may stay in the cache."""
    table = torch.arange(4.0, device=DEVICE)

    def look_up(index):
        return (table[torch.tensor([index], device=DEVICE)] * 2).tolist()

    assert look_up(1) == [2]
    with pytest.raises(IndexError):
        look_up(9)
    assert look_up(2) == [4]
    with pytest.raises(IndexError):
        look_up(-9)
    assert look_up(3) == [6]


def test_parameters_survive_a_failed_step():
    model = torch.nn.Embedding(4, 3).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    start = model.weight.detach().cpu().clone()

    def step(index):
        optimizer.zero_grad()
        loss = model(torch.tensor([index], device=DEVICE)).sum()
        loss.item()
        loss.backward()
        optimizer.step()

    with pytest.raises(IndexError):
        step(7)
    torch.testing.assert_close(model.weight.detach().cpu(), start)
    step(1)
    start[1] -= 1
    torch.testing.assert_close(model.weight.detach().cpu(), start)


def test_error_inside_a_hook_or_function_reaches_the_caller():
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            raise ValueError("from backward")

    x = ones(2, device=DEVICE, requires_grad=True)
    with pytest.raises(ValueError, match="from backward"):
        Fails.apply(x).sum().backward()
    assert_device_works()


# Devices -------------------------------------------------------------------------------------------------------------


@pytest.mark.lazy_only
@pytest.mark.parametrize("index", (1, 7, 100))
def test_bad_device_index(index):
    with pytest.raises(RuntimeError, match=str(index)):
        torch.zeros(2, device=f"lazy:{index}")
    with pytest.raises(RuntimeError, match=str(index)):
        torch.zeros(2).to(f"lazy:{index}")
    assert_device_works()


@pytest.mark.parametrize("name", ("lasy", "lazy:", "lazy:-2", "lazy:x", "lazy:0:0"))
def test_bad_device_string(name):
    with pytest.raises(RuntimeError):
        torch.device(name)


@pytest.mark.lazy_only
@pytest.mark.parametrize("pending", (False, True))
def test_numpy_is_a_type_error(pending):
    x = ones(2, device=DEVICE)
    if pending:
        x = x + 1
    with pytest.raises(TypeError, match="lazy:0 device type tensor to numpy"):
        x.numpy()
    assert x.cpu().numpy().tolist() == x.tolist()


@pytest.mark.lazy_only
def test_operands_on_different_devices():
    on_cpu, on_lazy = torch.ones(3), ones(3, device=DEVICE)
    for operation in (
        lambda: on_lazy + on_cpu,
        lambda: on_cpu + on_lazy,
        lambda: on_lazy.add_(on_cpu),
        lambda: torch.cat([on_lazy, on_cpu]),
        lambda: on_lazy.reshape(1, 3) @ on_cpu.reshape(3, 1),
        lambda: F.linear(on_lazy.reshape(1, 3), on_cpu.reshape(1, 3)),
    ):
        with pytest.raises(RuntimeError, match="device"):
            operation()
    assert_device_works()


@pytest.mark.lazy_only
def test_wrong_arguments_to_the_package():
    import torch_lazyplug

    with pytest.raises((RuntimeError, TypeError)):
        torch_lazyplug.debug.get_tensors_text([torch.ones(2)])
    with pytest.raises((RuntimeError, TypeError)):
        torch_lazyplug.debug.get_tensors_text([3])
    assert torch_lazyplug.metrics.counter_value("no such counter") is None
    assert_device_works()


@pytest.mark.lazy_only
def test_an_error_behind_one_that_was_read_is_raised_by_who_waits():
    def failed(index):
        return torch.zeros(1000, device=DEVICE)[torch.full((600,), index, device=DEVICE)]

    stream = torch.lazy.Stream()
    with stream:
        first, second = failed(2001), failed(2002)
        with pytest.raises(IndexError, match="2001"):
            first.cpu()
    with pytest.raises(IndexError, match="2002"):
        stream.synchronize()
    stream.synchronize()
    with pytest.raises(IndexError, match="2002"):
        second.cpu()
