"""Random programs do on the device what they do on the CPU. More of them: `make fuzz N=100000 SEED=1`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import DEVICE

from torch_lazyplug import config

TESTS = Path(__file__).resolve().parents[1]
# options, how many programs
CAMPAIGNS = {
    "normal": ([], 1000),
    "blocking": (["--blocking"], 1000),
    "scrambled": (["--schedule", "random", "--scramble"], 300),
    "training": (["--training", "--schedule", "random"], 100),
    "mix": (["--mix"], 100),
}


def fuzz(*options):
    command = [sys.executable, "-m", "fuzz", *map(str, options)]
    return subprocess.run(
        command, cwd=TESTS, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True
    )


@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_random_programs(campaign, tmp_path):
    """A process of its own, because the workers are forked before the device is used."""
    options, count = CAMPAIGNS[campaign]
    done = fuzz("--device", DEVICE, "--save", tmp_path, "-n", count, "--seed", 1, *options)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("kind", ([], ["--training"], ["--mix"]), ids=lambda options: "".join(options) or "short")
def test_programs_are_reproducible(kind):
    """A seed means the same program in every process, or a failure could not be found again."""
    texts = {fuzz("--show", "--seed", 7, *kind).stdout for _ in range(2)}
    assert len(texts) == 1
    assert len(texts.pop().splitlines()) > 5


# The judge -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def fuzzer(monkeypatch):
    """Can be imported. It changes flags of the device."""
    monkeypatch.syspath_prepend(str(TESTS))
    from fuzz.mode import Mode

    flags = {name: config.get(name) for name in vars(Mode())}
    yield
    for name, value in flags.items():
        config.set(name, value)


@pytest.fixture
def judge(fuzzer):
    """Runs the text of a training program, in which `wrong` is true on the device; returns the kind of mismatch."""
    from fuzz.mode import Mode
    from fuzz.training import execute
    from fuzz.training.program import TrainingProgram

    def run(body, **mode):
        lines = ["def program(device, note):", "wrong = device != 'cpu'", *body]
        program = TrainingProgram(0, None, (), None, None, mode=Mode(**mode), text="\n    ".join(lines))
        mismatch = execute.run(program, DEVICE)
        return mismatch and mismatch.kind

    return run


def hooks(first, second):
    return [
        "a, b = torch.ones(2, device=device), torch.ones(2, device=device)",
        f'notes = [({first}, a), ("hook of 2", {second} * b)]',
        "for name, value in reversed(notes) if wrong else notes:",
        "    note(name, value)",
    ]


@pytest.mark.lazy_only
def test_hooks_of_different_tensors_run_in_any_order(judge):
    assert judge(hooks('"hook of 1"', "2")) is None
    assert judge(hooks('"hook of 1"', "(3 if wrong else 2)")) == "values"
    assert judge(hooks('"hook of 2"', "2")) == "values", "of one tensor, they do not"
    assert judge(hooks('"read"', "2")) == "properties", "nor does what is no hook"


def sums(error):
    """Zero, but for rounding."""
    return [
        "torch.manual_seed(0); m0 = nn.Linear(50, 1).to(device)",
        "(weight, bias) = parameters_of(m0)",
        "h = weight.detach()[0]",
        f'note("zero", h.sum() - h.cumsum(0)[-1] + {error} * wrong)',
    ]


@pytest.mark.lazy_only
def test_what_rounding_can_do_is_allowed_and_no_more(judge):
    assert judge(sums(0)) is None
    assert judge(sums(3e-7)) is None
    assert judge(sums(1e-3)) == "values"


@pytest.mark.lazy_only
def test_what_rounding_does_rarely_is_allowed(judge):
    rare = "data((1,), 7).to(device).view(torch.int32).remainder(8).eq(0) * 1e-7"
    assert judge([f'note("zero", {rare} + 1e-7 * wrong)']) is None
    assert judge([f'note("zero", {rare} + 1e-4 * wrong)']) == "values"


@pytest.mark.lazy_only
def test_functions_of_its_own_may_round_otherwise(judge):
    function = 'note("zero", torch.zeros(2, device=device).sigmoid() - 0.5 + 6e-8 * wrong)'
    assert judge([function], fusion=3) is None
    assert judge([function]) == "values"
    assert judge([function], fusion=3, disabled_passes="fusion") == "values"
    assert judge(['note("zero", torch.zeros(2, device=device) + 6e-8 * wrong)'], fusion=3) == "values"


@pytest.mark.lazy_only
@pytest.mark.usefixtures("fuzzer")
@pytest.mark.parametrize("mode", [{}, {"launch_blocking": True}, {"schedule": "every:1"}], ids=str)
def test_of_two_errors_the_device_may_meet_the_later_one_first(mode):
    from fuzz import execute
    from fuzz.mode import Mode
    from fuzz.program import Program, Ref, Statement

    leaf = Statement("torch.ones(1, 1, device=device).requires_grad_()", results=("t0",))
    part = Statement("{0}.split(1, 1)[-1]", (Ref("t0"),), ("t1",))
    index = Statement("torch.tensor([-1, -1], device=device)", results=("t2",))
    code = "{0}.index_copy_({1}, {2}, {0}.index_select({1}, {2}.flip(0)))"
    write = Statement(code, (Ref("t1"), 1, Ref("t2")), writes=("t1",))
    wait = Statement("mark_step(device, wait=True)")
    mismatch = execute.run(Program(0, (leaf, part, index, write, wait), mode=Mode(**mode)), DEVICE)
    assert mismatch is None


@pytest.mark.lazy_only
@pytest.mark.usefixtures("fuzzer")
def test_versions_of_gradients_and_their_views_are_not_compared():
    from fuzz import execute
    from fuzz.mode import Mode
    from fuzz.program import Program, Ref, Statement

    leaf = Statement("torch.ones((), device=device).requires_grad_()", results=("t0",))
    write = Statement("({0} + 1).ge_({0})", (Ref("t0"),), ("t1",))
    backward = Statement("{0}.sum().backward()", (Ref("t1"),))
    gradient = Statement("{0}.grad", (Ref("t0"),), ("t2",))
    view = Statement("{0}.as_strided((), (), 0)", (Ref("t2"),), ("t3",))
    mismatch = execute.run(Program(0, (leaf, write, backward, gradient, view), mode=Mode(False)), DEVICE)
    assert mismatch is None
