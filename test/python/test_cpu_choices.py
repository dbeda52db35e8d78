"""What PyTorch's Python code chooses by a device's name is chosen as for the CPU."""

import pytest
import torch
import torch.nn.functional as F
from helpers import DEVICE, work

pytestmark = pytest.mark.lazy_only


def chunked_loss(device, dtype, reduction):
    torch.manual_seed(0)
    rows, features, classes = 17, 40, 300
    leaves = [torch.randn(n, features).to(device, dtype).requires_grad_() for n in (rows, classes)]
    target = torch.randint(0, classes, (rows,)).to(device)
    options = torch.nn.LinearCrossEntropyOptions()
    loss = F.linear_cross_entropy(*leaves, target, reduction=reduction, options=options)
    loss.float().sin().sum().backward()
    return loss.detach(), *(leaf.grad for leaf in leaves)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_chunked_loss_accumulates_as_on_the_cpu(dtype, reduction):
    expected = chunked_loss("cpu", dtype, reduction)
    with work() as done:
        actual = [result.cpu() for result in chunked_loss(DEVICE, dtype, reduction)]
    assert done.fallbacks == 0
    for wanted, got in zip(expected, actual, strict=True):
        assert torch.equal(got, wanted)


def test_options_for_other_devices_are_what_they_were():
    options = torch.nn.LinearCrossEntropyOptions()
    sizes = {"num_batches": 16, "in_features": 40, "num_classes": 300, "dtype": torch.float16}
    assert options._adjust(**sizes, device=torch.device(DEVICE)) == options._adjust(**sizes, device=torch.device("cpu"))
    assert options._adjust(**sizes, device=torch.device("meta")) == options._adjust(*sizes.values(), None)


@pytest.mark.parametrize("device_ids", [None, [0]])
@pytest.mark.parametrize("device", ["cpu", DEVICE])
def test_data_parallel_leaves_the_module_where_it_is(device, device_ids):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2).to(device)
    x = torch.randn(4, 3).to(device)
    parallel = torch.nn.DataParallel(model, device_ids)
    result = parallel(x)
    result.sum().backward()
    assert parallel.module is model and result.device == model.weight.grad.device == x.device
    assert torch.equal(result, model(x))


def test_averages_of_counts_are_taken_as_on_the_cpu():
    def averages(device):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3)).to(device)
        average = torch.optim.swa_utils.AveragedModel(model, use_buffers=True)
        for _ in range(3):
            model(torch.randn(4, 3).to(device))
            average.update_parameters(model)
        return [value.cpu() for value in average.state_dict().values()]

    for actual, expected in zip(averages(DEVICE), averages("cpu"), strict=True):
        assert torch.equal(actual, expected)
