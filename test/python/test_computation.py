"""Graphs as functions: what they start from, what identifies them, running them again."""

import pytest
import torch
from helpers import finish_pending, work

import torch_lazyplug
from torch_lazyplug import computation, config, debug, ir_cache

pytestmark = [pytest.mark.lazy_only, pytest.mark.own_schedule("looks at a graph that is pending as a whole")]

FUNCTIONS = {
    "get_tensor_id": torch_lazyplug.get_tensor_id,
    "get_graph_hash": lambda t: computation.get_graph_hash([t]),
    "get_tensors_ts_device_data_node": lambda t: computation.get_tensors_ts_device_data_node([t]),
    "sync_multi": lambda t: torch_lazyplug.sync_multi([t], []),
    **{f"dump_{form}": lambda t, form=form: debug.dump_ir([t], form) for form in ("text", "dot", "backend")},
}


@pytest.fixture
def cache_size():
    before = config.get("cache_size")
    yield lambda size: config.set("cache_size", size)
    config.set("cache_size", before)


def lazy(*values):
    return torch.tensor(values, dtype=torch.float32, device="lazy")


def program(x, y):
    return x * 2 + y


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("tensor", [torch.ones(2), torch.ones(2, device="meta"), torch.ones(2).to_sparse()])
def test_tensors_that_are_not_lazy_are_refused(name, tensor):
    with pytest.raises(RuntimeError, match="expected a lazy tensor, got one on (cpu|meta)"):
        FUNCTIONS[name](tensor)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_no_tensor_is_refused(name):
    with pytest.raises(TypeError):
        FUNCTIONS[name]("text")


@pytest.mark.smoke
def test_a_cached_graph_runs_on_other_inputs():
    x, y = lazy(1, 2), lazy(3, 4)
    z = program(x, y)
    ids, values = computation.get_tensors_ts_device_data_node([z])
    by_id = dict(zip(ids, values, strict=True))
    assert by_id[torch_lazyplug.get_tensor_id(x)].tolist() == [1, 2]
    assert by_id[torch_lazyplug.get_tensor_id(y)].tolist() == [3, 4]
    given = {torch_lazyplug.get_tensor_id(x): [5.0, 6.0], torch_lazyplug.get_tensor_id(y): [7.0, 8.0]}
    inputs = [torch.tensor(given[i]) if i in given else value for i, value in zip(ids, values, strict=True)]
    key = computation.get_graph_hash([z])
    torch_lazyplug.sync_multi([z], [])
    with work() as done:
        (result,) = computation.run_cached_graph(key, inputs)
    assert result.device.type == "cpu"
    assert result.tolist() == [17, 20]
    assert (done.compiles, done.recorded) == (0, 0)
    assert z.tolist() == [5, 8]


def test_device_data_is_listed_once():
    x = lazy(1, 2)
    ids, values = computation.get_tensors_ts_device_data_node([x * x.flip(0), x - x, x, x[1:]])
    assert ids.count(torch_lazyplug.get_tensor_id(x)) == 1
    assert sum(isinstance(v, torch.Tensor) for v in values) == 1


def test_scalars_are_listed():
    x, cpu_scalar = lazy(1, 2), torch.tensor(3.0)
    ids, values = computation.get_tensors_ts_device_data_node([torch.addcmul(x, x, x, value=5) * cpu_scalar])
    assert ids[0] == torch_lazyplug.get_tensor_id(x)
    assert set(ids[1:]) == {-1}
    assert {float(v) for v in values[1:]} >= {5.0, 3.0}


def test_where_views_begin_is_an_input():
    x = lazy(1, 2, 3, 4)
    y = x[1:3].neg()
    key = computation.get_graph_hash([y])
    ids, values = computation.get_tensors_ts_device_data_node([y])
    assert ids == [torch_lazyplug.get_tensor_id(x), -1] and values[1:] == [1]
    (result,) = computation.run_cached_graph(key, [values[0], 2])
    assert result.tolist() == [-3, -4]
    for offset in (-1, 3):
        with pytest.raises(IndexError, match=f"a view at {offset} leaves its storage"):
            computation.run_cached_graph(key, [values[0], offset])


def test_device_data_is_that_from_before_a_write():
    x = lazy(1, 2)
    before = torch_lazyplug.get_tensor_id(x)
    x.add_(1)
    ids, values = computation.get_tensors_ts_device_data_node([x])
    assert ids[0] == before == torch_lazyplug.get_tensor_id(x)
    assert values[0].tolist() == [1, 2]


def test_looking_runs_nothing_and_changes_nothing():
    x = lazy(1, 2)
    y = program(x, x)
    with work() as done:
        z = program(y, x)
        for look in FUNCTIONS.values():
            if look is not FUNCTIONS["sync_multi"]:
                look(z)
    assert done.flushes == 0 and done.recorded == 2
    assert z.tolist() == [7, 14]


def test_the_hash_knows_the_graph_and_not_its_data_or_surroundings():
    def key(x, y, extra=False):
        if extra:
            unrelated = torch.ones(7, device="lazy") * 3  # noqa: F841  (alive while the hash is taken)
        return computation.get_graph_hash([program(x, y)])

    same = {key(lazy(1, 2), lazy(3, 4)), key(lazy(5, 6), lazy(7, 8)), key(lazy(1, 2), lazy(3, 4), extra=True)}
    assert len(same) == 1
    x = lazy(1, 2)
    others = {
        computation.get_graph_hash([x * 2 - x]),
        key(x, x),
        key(lazy(1, 2, 3), lazy(1, 2, 3)),
        computation.get_graph_hash([x]),
        computation.get_graph_hash([x[1:]]),
        computation.get_graph_hash([]),
    }
    assert len(others | same) == 7
    assert all(isinstance(h, bytes) and len(h) == 16 for h in others)


def test_the_hash_of_all_there_is_is_the_one_it_is_run_by():
    x, y = lazy(1, 2, 3, 4, 5), lazy(1, 2, 3, 4, 5)
    finish_pending()
    z = program(x, y)
    computation.get_graph_hash([z])
    with work() as done:
        pass
    assert (done.compiles, z.tolist()) == (0, [3, 6, 9, 12, 15])


def test_views_and_duplicates_are_results():
    x = lazy(1, 2, 3, 4)
    y = x + 1
    tensors = [y.view(2, 2).t(), y[2:], y, y.view(4), x]
    key = computation.get_graph_hash(tensors)
    _, inputs = computation.get_tensors_ts_device_data_node(tensors)
    results = computation.run_cached_graph(key, inputs)
    _, inputs = computation.get_tensors_ts_device_data_node([y, y])
    assert len(computation.run_cached_graph(computation.get_graph_hash([y, y]), inputs)) == 1
    assert [r.tolist() for r in results] == [t.tolist() for t in tensors]
    assert [r.stride() for r in results] == [t.stride() for t in tensors]
    assert len({r.untyped_storage().data_ptr() for r in results[:4]}) == 1


def test_running_writes_no_input():
    x = lazy(1, 2)
    x.mul_(3)
    key = computation.get_graph_hash([x])
    ids, values = computation.get_tensors_ts_device_data_node([x])
    given = torch.tensor([5.0, 6.0])
    (result,) = computation.run_cached_graph(key, [given, *values[1:]])
    assert (given.tolist(), result.tolist()) == ([5, 6], [15, 18])


@pytest.mark.parametrize(
    "given",
    [
        lambda: torch.tensor([[1.0, 2.0], [3.0, 4.0]], device="lazy") * 1,
        lambda: torch.tensor([[1.0, 3.0], [2.0, 4.0]]).t(),
        lambda: torch.tensor([[9.0, 9.0], [1.0, 2.0], [3.0, 4.0]])[1:],
    ],
)
@pytest.mark.parametrize("function", [lambda x: x.t().mul(x[0]), lambda x: x[1].flip(0), lambda x: x.t().mul_(3)])
def test_inputs_may_be_lazy_strided_or_offset_and_are_read_as_they_are(function, given):
    x = torch.tensor([[8.0, 8.0], [8.0, 9.0]], device="lazy")
    y = function(x)
    ids, inputs = computation.get_tensors_ts_device_data_node([x, y])
    key = computation.get_graph_hash([x, y])
    inputs[ids.index(torch_lazyplug.get_tensor_id(x))] = given()
    expected_x = given().cpu().clone()
    expected_y = function(expected_x)
    result_x, result_y = computation.run_cached_graph(key, inputs)
    assert (result_x.tolist(), result_y.tolist()) == (expected_x.tolist(), expected_y.tolist())


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        ([], RuntimeError, "the graph takes 2 inputs, got 0"),
        ([torch.ones(3), 1], RuntimeError, r"input 0 of the graph must be Float\[2\].*, got Float\[3\]"),
        ([torch.ones(2, dtype=torch.float64), 1], RuntimeError, r"got Double\[2\]"),
        ([1, 1], TypeError, "input 0 of the graph must be a tensor, got Int"),
        ([torch.ones(2), torch.ones(2)], TypeError, "input 1 of the graph must be a number, got Tensor"),
        ([torch.ones(2), "text"], TypeError, "a graph takes tensors, numbers and lists of numbers, got .*str"),
    ],
)
def test_wrong_inputs_are_named(inputs, error, message):
    x = lazy(1, 2)
    key = computation.get_graph_hash([x.clamp(min=0.5)])
    with pytest.raises(error, match=message):
        computation.run_cached_graph(key, inputs)


def test_lists_of_numbers_are_inputs():
    x, y = lazy(1, 2), lazy(3, 4)
    results = torch._foreach_mul([x, y], [3.0, 2])
    key = computation.get_graph_hash(results)
    _, inputs = computation.get_tensors_ts_device_data_node(results)
    assert inputs[2:] == [[3.0, 2]]
    again = computation.run_cached_graph(key, inputs)
    assert [result.tolist() for result in again] == [[3, 6], [6, 8]]
    others = computation.run_cached_graph(key, [*inputs[:2], [1.5, 10]])
    assert [result.tolist() for result in others] == [[1.5, 3], [30, 40]]
    for wrong, got in (([1.0], "one of 1"), (1.0, "Double")):
        with pytest.raises(TypeError, match=f"input 2 of the graph must be a list of 2 numbers, got {got}"):
            computation.run_cached_graph(key, [*inputs[:2], wrong])
    with pytest.raises(TypeError, match="lists of numbers, got one with a Tensor"):
        computation.run_cached_graph(key, [*inputs[:2], [1.0, torch.ones(1)]])


def test_errors_of_ops_reach_the_caller():
    x, index = lazy(1, 2), torch.tensor([0, 1], device="lazy")
    y = x.index_select(0, index)
    key = computation.get_graph_hash([y])
    ids, values = computation.get_tensors_ts_device_data_node([y])
    values[ids.index(torch_lazyplug.get_tensor_id(index))] = torch.tensor([0, 7])
    with pytest.raises(IndexError, match="out of range"):
        computation.run_cached_graph(key, values)
    assert y.tolist() == [1, 2]


@pytest.mark.parametrize("forget", ["evict", "reset"])
def test_graphs_that_have_left_the_cache_cannot_be_run(cache_size, forget):
    x = lazy(1, 2)
    key = computation.get_graph_hash([x + 1])
    if forget == "evict":
        cache_size(1)
        (x * 3).tolist()
    else:
        ir_cache.reset()
    with pytest.raises(RuntimeError, match="it has been evicted"):
        computation.run_cached_graph(key, [torch.ones(2), 1])
    assert (x + 1).tolist() == [2, 3]


def test_wrong_hashes_are_refused():
    with pytest.raises(ValueError, match="a graph hash has 16 bytes, got 3"):
        computation.run_cached_graph(b"abc", [])
    with pytest.raises(RuntimeError, match="no computation with the hash 0+ is cached"):
        computation.run_cached_graph(bytes(16), [])


def test_tensors_of_one_device_only():
    if torch_lazyplug.lazy.device_count() > 1:
        with pytest.raises(RuntimeError, match="expected tensors of one device"):
            computation.get_graph_hash([lazy(1), torch.ones(1, device="lazy:1")])


def test_failed_tensors_raise_their_error():
    x = lazy(1, 2).index_select(0, torch.tensor([5], device="lazy"))
    with pytest.raises(IndexError):
        torch_lazyplug.mark_step(wait=True)
    with pytest.raises(IndexError):
        computation.get_graph_hash([x])


# Dumps ---------------------------------------------------------------------------------------------------------------


def test_dumps_of_pending_and_available_tensors():
    x = lazy(1, 2)
    y = x.dot(x)  # in no group, whatever the flags
    assert "aten::dot(%0, %0)" in debug.dump_ir([y], "text")
    assert debug.dump_ir([x], "text") == "%0 = device_data(0)  # Float[2] strides=[1]\nreturn %0\n"
    dot = debug.render_ir_graph([y])
    assert dot.startswith("digraph G {") and "n0 -> n1" in dot
    assert dot == debug.get_tensors_dot([y]) == debug.dump_ir([y], "dot")
    backend = debug.dump_ir([y], "backend")
    assert "aten::dot[origin=1, work=2.](%0, %0)" in backend and backend.startswith("graph(")
    assert backend == debug.get_tensors_backend([y])
    assert debug.dump_ir([], "text") == ""


def test_dumps_name_lines_when_debugging():
    config.set_debug(True)
    try:
        y = lazy(1, 2) * 2
    finally:
        config.set_debug(False)
    for form in ("text", "dot"):
        assert "test_computation.py:" in debug.dump_ir([y], form)


def test_equal_constants_of_a_graph_are_one():
    x = lazy(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    finish_pending()
    for i in range(6):
        x[i] += i + 1
    constants = [
        line.split(" : ")[1] for line in debug.dump_ir([x], "backend").splitlines() if "prim::Constant" in line
    ]
    assert len(constants) == len(set(constants))
    assert any(line.startswith("bool") for line in constants) and any(line.startswith("int") for line in constants)
    assert x.tolist() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("error", [ValueError, RuntimeError])
def test_unknown_formats_are_refused(error):
    with pytest.raises(error, match="Unrecognized IR format"):
        debug.dump_ir([lazy(1)], "png")


def test_the_latest_graph_is_shown():
    (lazy(1, 2).sigmoid() * 2).tolist()
    graph = torch_lazyplug._C._lazy_ts_backend._get_latest_computation_graph()
    assert "aten::sigmoid" in graph
    ir_cache.reset()
    with pytest.raises(RuntimeError, match="no graph is cached"):
        torch_lazyplug._C._lazy_ts_backend._get_latest_computation_graph()


def test_the_cache_is_dumped(tmp_path):
    ir_cache.reset()
    (lazy(1, 2) * 2).tolist()
    (lazy(1, 2) - 2).tolist()
    ir_cache.dump(tmp_path / "graphs.dot")
    text = (tmp_path / "graphs.dot").read_text()
    assert text.count("// graph ") == text.count("digraph G {") == 2
    assert text.index("aten::sub") < text.index("aten::mul")
    with pytest.raises(RuntimeError, match="cannot write"):
        ir_cache.dump(str(tmp_path / "none" / "graphs.dot"))
