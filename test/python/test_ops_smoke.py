"""A few ops of each family through the cases of `make conformance`, which runs all of them."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from conformance import distributions, worker
from conformance.cases import ops

OPS = (
    "add",
    "sub",
    "mul",
    "div.no_rounding_mode",
    "exp",
    "sigmoid",
    "clamp",
    "where",
    "sum",
    "mean",
    "var",
    "amax",
    "cumsum",
    "matmul",
    "addmm",
    "bmm",
    "cat",
    "index_select",
    "gather",
    "scatter_add",
    "lerp",
    "index_add",
    "transpose",
    "permute",
    "tril",
    "sort",
    "softmax",
    "nn.functional.relu",
    "nn.functional.layer_norm",
    "nn.functional.linear",
    "nn.functional.cross_entropy",
    "nn.functional.embedding",
)
VARIANTS = ("forward", "backward", "inplace", "inplace_view", "out", "out_resize")

pytestmark = [pytest.mark.lazy_only, pytest.mark.filterwarnings("ignore")]


def variants_of(op):
    """Those of the variants that PyTorch's database has for the op."""
    exists = {
        "forward": True,
        "backward": torch.float32 in op.supported_backward_dtypes("cpu"),
        "inplace": op.get_inplace() is not None,
        "inplace_view": op.get_inplace() is not None,
        "out": op.supports_out,
        "out_resize": op.supports_out,
    }
    return {variant for variant in VARIANTS if exists[variant]}


@pytest.mark.parametrize("op", OPS)
def test_op_is_the_same_as_on_the_cpu(op):
    results = [worker.run_cell(worker.Cell(op, variant, "float32"), limit=2) for variant in VARIANTS]
    assert [failure for result in results for failure in result.failures] == []
    assert {name for result in results for name in result.fallbacks} == set()
    assert {result.variant for result in results if result.cases > 0} == variants_of(ops()[op])
    assert {result.status for result in results} <= {"passed", "none"}


def test_random_results_are_judged():
    """The CPU's own draws pass, and numbers that it would not draw do not."""
    torch.manual_seed(0)
    kept = torch.nn.functional.dropout(torch.ones(9, 50), 0.5).double()
    again = torch.nn.functional.dropout(torch.ones(9, 50), 0.5).double()
    assert distributions.problems(again, kept) == []
    normal, other = torch.randn(2, 9, 50).double()
    assert distributions.problems(other, normal) == []
    faults = {
        "scale": (again * 0.99, kept, "do not occur on the CPU"),
        "fraction": (torch.nn.functional.dropout(torch.ones(9, 50), 0.3).double() * 1.4, kept, "another distribution"),
        "range": (other * 5, normal, "range"),
        "variance": (other * 2.5, normal, "another distribution"),
        "mean": (other + 0.6, normal, "another distribution"),
        "nan": (other.where(other < 1, torch.nan), normal, "range"),
    }
    for fault, (actual, expected, message) in faults.items():
        assert any(message in problem for problem in distributions.problems(actual, expected)), fault
