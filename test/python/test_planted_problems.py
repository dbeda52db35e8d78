"""Problems as users have them: what the tools say names the right line of each.

Each program marks the line that is to be found with the comment ``# here``.
"""

import re
import subprocess
import sys
import textwrap
import threading

import pytest
import torch
from helpers import finish_everything, run_fresh
from torch._subclasses import FakeTensorMode

import torch_lazyplug
from torch_lazyplug import config, debug, explain, ir_cache

pytestmark = [pytest.mark.lazy_only, pytest.mark.own_schedule("asserts what cuts a trace")]


class Program:
    """Code in a file of its own, and the line that is marked in it."""

    def __init__(self, folder, code):
        self.path = folder / "program.py"
        self.path.write_text(textwrap.dedent(code))
        (number,) = [i for i, line in enumerate(self.path.read_text().splitlines(), 1) if "# here" in line]
        self.here = f"{self.path}:{number}"

    def run(self):
        scope = {"__name__": "program", "torch": torch}
        exec(compile(self.path.read_text(), str(self.path), "exec"), scope)
        return scope


@pytest.fixture
def program(tmp_path, debugging, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # for reproducers
    finish_everything()
    ir_cache.reset()
    return lambda code: Program(tmp_path, code)


# Programs begin with this.
TRAINING = """
    width = {width}
    model = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, 1)).to("lazy")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.randn({rows}, width).to("lazy")
"""


def training(body, width=64, rows=70):
    return textwrap.dedent(TRAINING.format(width=width, rows=rows)) + textwrap.dedent(body)


def heavy_training(body):
    """The forward pass takes longer than recording a step does, on any machine."""
    return training(body, width=2048, rows=512)


def problems():
    return {advice.location: advice for advice in debug.advice()}


LOGGING = """
    history = []
    for step in range(4):
        loss = model(data).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())  # here
"""

CONDITION = """
    for step in range(4):
        loss = model(data).square().mean()
        if loss > 1000:  # here
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

PRINTING = """
    for step in range(4):
        loss = model(data).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("loss", loss)  # here
"""

READS = {
    "logging": (LOGGING, "item", "every n-th step"),
    "condition": (CONDITION, "item", "torch.where"),
    "printing": (PRINTING, "copy to CPU", "print every n-th step"),
}


@pytest.mark.parametrize("name", READS)
def test_reads(program, name, capsys):
    code, cause, remedy = READS[name]
    planted = program(heavy_training(code))
    planted.run()
    report = debug.explain_sync()
    assert planted.here in report and cause in report, report
    found = problems()[planted.here]
    assert cause in found.problem and remedy in found.remedy and found.seconds > 0
    assert str(found).startswith(planted.here)


def test_reads_of_what_is_there_cost_nothing(program):
    planted = program("""
        x = torch.ones(2).to("lazy") + 1
        x.tolist()
        torch.lazy.synchronize()
        import torch_lazyplug
        torch_lazyplug.debug.clear_events()
        for _ in range(200):
            x.tolist()  # here
    """)
    planted.run()
    report = debug.explain_sync()
    assert "waited" in report and planted.here in report.partition("cost nothing")[2]
    assert planted.here not in problems()


def test_a_last_batch_that_is_smaller(program):
    planted = program(
        training("""
        loader = torch.utils.data.DataLoader(data.cpu(), batch_size=32)
        for batch in loader:
            batch = batch.to("lazy")  # here
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            loss.item()
    """)
    )
    planted.run()
    (detail,) = [e["detail"] for e in debug.events("compile") if e["cause"] == "shape"][:1]
    assert "Float[6, 64]" in detail and "Float[32, 64]" in detail
    assert detail.count(f"made at {planted.here}") == 2, detail
    assert "leave out or pad a last, smaller batch" in detail
    assert any(a.location == planted.here and "compiled again" in a.problem for a in debug.advice())


def test_a_size_that_grows(program):
    planted = program("""
        past = torch.zeros(1, 8).to("lazy")
        for step in range(3):
            past = torch.cat([past, torch.ones(1, 8, device="lazy")])  # here
            past.sum().item()
    """)
    planted.run()
    explanation = debug.explain_recompile()
    assert "Float[3, 8]" in explanation and "Float[2, 8]" in explanation
    assert f"made at {planted.here}" in explanation and "allocate what grows at its full size" in explanation


def test_a_number_of_another_type(program):
    planted = program("""
        x = torch.ones(8).to("lazy")
        for scale in (0.5, 0.25, 1):
            (x * scale).sum().item()  # here
    """)
    planted.run()
    explanation = debug.explain_recompile()
    assert "Int" in explanation or "Long" in explanation, explanation
    assert planted.here in explanation.partition("now:")[2].partition("before:")[0], explanation


def test_a_forced_fallback(program):
    config.set_force_fallback("aten::relu")
    try:
        planted = program("""
            x = torch.ones(8).to("lazy")
            y = x.relu()  # here
        """)
        planted.run()
    finally:
        config.set_force_fallback("")
    found = problems()[planted.here]
    assert "aten::relu" in found.problem and "set_force_fallback('')" in found.remedy


def test_an_op_whose_size_depends_on_data(program):
    planted = program("""
        x = torch.arange(8.0).to("lazy")
        y = (x * 2)[x > 3]  # here
    """)
    planted.run()
    assert "torch.where" in problems()[planted.here].remedy
    with pytest.raises(NotImplementedError, match=f"at {planted.here}"), debug.no_fallback():
        planted.run()


def test_an_index_out_of_range(program):
    planted = program("""
        x = torch.ones(4, 3).to("lazy") * 2
        y = x.index_select(0, torch.tensor([0, 9]).to("lazy"))  # here
        z = (y + 1).sum()
        z.item()
    """)
    with pytest.raises(IndexError) as raised:
        planted.run()
    message = str(raised.value)
    assert f"recorded at {planted.here}" in message
    assert "aten::index_select(Float[4, 3] strides=[3, 1], Long[2] strides=[1])" in message
    finish_everything()
    (reproducer,) = re.findall(r"tried, and raises the same on the CPU: python (.*\.py)", message)
    done = subprocess.run([sys.executable, reproducer], capture_output=True, text=True, timeout=120)
    assert done.returncode != 0 and done.stderr.rstrip().endswith("IndexError: " + message.splitlines()[0])


def test_no_memory(program):
    planted = program("""
        x = torch.ones(8).to("lazy")
        y = x.expand(1 << 45, 8).add(1)  # here
        y.sum().item()
    """)
    with pytest.raises(RuntimeError) as raised:
        planted.run()
    assert planted.here in str(raised.value) or f"line {planted.here.rpartition(':')[2]}" in raised.exconly()
    del raised
    finish_everything()


def test_a_slow_kernel(program):
    planted = program("""
        x = torch.randn(300, 300).to("lazy")
        y = x + 1
        z = torch.linalg.svdvals(y)  # here
        ((z * 2).exp().sum() + y.relu().mean()).item()
    """)
    planted.run()
    found = problems()[planted.here]
    assert "svd" in found.problem and "of the time" in found.problem


def test_losses_that_are_kept(program):
    planted = program(
        training("""
        losses = []
        for step in range(15):
            loss = model(data[:32]).square().mean()  # here
            losses.append(loss)
            optimizer.zero_grad()
            loss.backward(retain_graph=True)
            optimizer.step()
            torch.lazy.synchronize()
    """)
    )
    scope = planted.run()
    with FakeTensorMode():
        fake = torch.empty(3, device="lazy")  # says that it is lazy
    found = [advice for advice in debug.advice() if "memory grows" in advice.problem]
    del fake
    assert [advice.location for advice in found] == [planted.here]
    assert "tensors made here are alive" in found[0].problem and "detach()" in found[0].remedy
    assert len(scope["losses"]) == 15


def test_a_thread_that_reads(program):
    planted = program("""
        import threading, torch_lazyplug
        x = torch.randn(900, 900).to("lazy")
        def watch(y):
            y.sum().item()  # here
        for step in range(3):
            y = x @ x
            thread = threading.Thread(target=watch, args=(y,))
            thread.start()
            thread.join()
            torch_lazyplug.mark_step()
    """)
    planted.run()
    report = debug.explain_sync()
    place = report.index(planted.here)
    assert "in thread" in report[place:], report
    assert str(threading.get_native_id()) not in report[place:]


def test_an_op_that_makes_nan(program):
    planted = program("""
        import torch_lazyplug
        x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
        with torch_lazyplug.debug.no_nan():
            y = x.to("lazy") - 2
            z = (y * 3).clamp(max=5) + 1
            w = y.log()  # here
            (w + z).sum().item()
    """)
    with pytest.raises(FloatingPointError, match=r"aten.log.default at .* float32\[3\] from -1 to 1") as raised:
        planted.run()
    assert planted.here in str(raised.value)


def test_nan_that_is_written_and_of_a_backward_pass(device):
    x = torch.tensor([0.0, 1.0], device=device)
    with debug.no_nan(), pytest.raises(FloatingPointError, match=r"aten.div_.Tensor .*float32\[2\] from 0 to 1"):
        x.div_(x)
    y = torch.zeros(2, device=device, requires_grad=True)
    with debug.no_nan(), pytest.raises(FloatingPointError):
        (y.sqrt() * 0).sum().backward()
    with debug.no_nan():  # what was there before is nobody's fault here
        assert (torch.full((2,), float("nan")).to(device) + 1).isnan().all()


# Contexts ------------------------------------------------------------------------------------------------------------


def test_no_sync():
    x = torch.ones(3).to("lazy") + 1
    with debug.no_sync():
        y = x * 2
        with pytest.raises(RuntimeError, match="called a synchronizing LAZY operation: reading a value .at .*planted"):
            y.sum().item()
        torch.lazy.synchronize()
    assert y.tolist() == [4, 4, 4]


def step(size):
    return (torch.ones(size, device="lazy") + 1).exp().sum()


def test_no_recompile(debugging):
    ir_cache.reset()
    config.set("debug", False)
    with pytest.raises(debug.RecompileError, match="1 new graph"), debug.no_recompile():
        kept = [step(4)]
    with debug.no_recompile():
        kept.append(step(4))
    with pytest.raises(debug.RecompileError, match="differs in its") as raised, debug.no_recompile():
        kept.append(step(5))
    assert "test_planted_problems.py:" in str(raised.value)
    assert config.get("debug") is False
    with pytest.raises(KeyError), debug.no_recompile():  # what the program raises goes first
        kept.append(step(6))
        raise KeyError
    torch_lazyplug.wait_device_ops()


def test_settings_come_back():
    before = config.get("sync_debug"), config.get("fallback"), config.get("debug")
    for context in (debug.no_sync, debug.no_fallback, debug.no_recompile):
        with pytest.raises(KeyError), context():
            raise KeyError
    assert (config.get("sync_debug"), config.get("fallback"), config.get("debug")) == before


def test_memory_that_only_warms_up_is_no_leak():
    grown = explain._growth
    assert grown([0, 8, 8, 8, 8, 8]) == grown([9, 1, 2, 9, 1, 2]) == grown([1, 2, 3, 4, 5]) == 0
    assert grown([1, 3, 2, 5, 6, 9]) == (6 - 3) / 4


# What is known without debugging -------------------------------------------------------------------------------------


def test_without_events_there_is_nothing_to_say():
    debug.clear_events()
    assert "LAZYPLUG_DEBUG=1" in debug.explain_sync()
    assert debug.advice() == []


def test_steps_are_known_when_the_environment_asks_for_debugging():
    code = """
        parameter = torch.ones(2, device="lazy", requires_grad=True)
        optimizer = torch.optim.SGD([parameter])
        parameter.sum().backward()
        optimizer.step()
        print([event["cause"] for event in torch_lazyplug.debug.events("step")])
    """
    assert run_fresh(code, LAZYPLUG_DEBUG="1") == "['SGD.step']\n"
    assert run_fresh(code) == "[]\n"


def test_the_last_step_is_told(debugging):
    finish_everything()
    debug.clear_events()
    for _ in range(3):
        (torch.ones(3, device="lazy") + 1).sum().item()
        torch_lazyplug.mark_step()
    assert len(debug.events("step")) == 3
    assert "(item)" in debug.explain_sync()  # once, not three times
