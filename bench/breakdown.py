"""Where the time of steps goes: sums over the device's journal.

The program's thread records (with the user's Python code and PyTorch's autograd around it) whenever it does not wait;
while it waits, it may run graphs itself, or sleep. Workers run graphs, too. A run's time is that of its kernels, by
what they compute, and what lies around them. A group is told by the last of its ops.
"""

import collections
import re

import torch

# Kinds of kernels, with what their ops' names look like, without namespace and overload. The first that matches counts.
KINDS = {
    "optimizer": r"_foreach_|_fused_",
    "attention": r"_?scaled_dot_product|_flash_attention|_efficient_attention",
    "convolution": r".*conv",
    "recurrent": r".*(lstm|gru|rnn)",
    "product": r"(linear|mm|addmm|_?addmm_activation|bmm|baddbmm|mv|addmv|dot|matmul|mkldnn_linear.*)$",
    "row": r".*(norm|softmax|sum|mean|amax|amin|argmax|argmin|max|min|var|std|cumsum|nll_loss|pool)",
    "move": r".*(cat|stack|copy|clone|gather|scatter|index|embedding|pad|repeat|roll|flip|contiguous|tril|triu)",
    "new": r"(zeros|ones|full|empty|arange|rand|bernoulli|normal|uniform|fill|zero)",
}


def is_pointwise(name):
    """Of an op, as "aten::add.Tensor"."""
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), base, None)
    op = getattr(packet, overload or "default", None)
    return op is not None and torch.Tag.pointwise in op.tags


def kind_of(name):
    base = name.partition("::")[2].partition(".")[0]
    found = next((kind for kind, pattern in KINDS.items() if re.match(pattern, base)), None)
    return found or ("pointwise" if is_pointwise(name) else "other")


def _milliseconds(events):
    return sum(event["duration_ns"] for event in events) / 1e6


def of(events, program, seconds, steps):
    """Milliseconds and counts of a step.

    `events` are the journal's of `steps` steps, which took `seconds`; `program` is the number of the thread that ran
    them. Runs by other threads than the program's are the workers'.
    """
    by_kind = collections.defaultdict(list)
    for event in events:
        by_kind[event["kind"]].append(event)
    runs, compiles = by_kind["run"], by_kind["compile"]
    waits = [event for event in by_kind["wait"] if event["thread"] == program]
    own = [event for event in runs if event["thread"] == program]
    step, waiting, own_ms = seconds * 1e3, _milliseconds(waits), _milliseconds(own)
    kernels = collections.Counter()
    for run in runs:
        for name, _, op_seconds in run["ops"]:
            kernels[kind_of(name)] += op_seconds * 1e3
    around = _milliseconds(runs) - kernels.total()
    figures = {"recording": step - waiting, "own runs": own_ms, "asleep": waiting - own_ms, "around kernels": around}
    times = {"step": step, **figures, "compiling": _milliseconds(compiles), **kernels}
    times["workers"] = _milliseconds(runs) - own_ms
    counts = {"runs": len(runs), "waits": len(waits), "kernels": sum(len(run["ops"]) for run in runs)}
    return {name: value / steps for name, value in (times | counts).items()}
