"""A few ops of each family through the cases of `make conformance`, which runs all of them."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from conformance import worker

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


@pytest.mark.parametrize("op", OPS)
def test_op_is_the_same_as_on_the_cpu(op):
    results = [worker.run_cell(worker.Cell(op, variant, "float32"), limit=2) for variant in VARIANTS]
    assert [failure for result in results for failure in result.failures] == []
    assert {name for result in results for name in result.fallbacks} == set()
    assert results[0].cases > 0
