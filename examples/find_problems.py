"""Debugging: what has been recorded, where a program waits, what ran on the CPU, and at which line an error arose.

python examples/find_problems.py
"""

import warnings

import torch

from torch_lazyplug import config, debug, metrics


def show_graph():
    x = torch.ones(2, 3, device="lazy")
    y = (x * 2 + 1).sum()
    print("recorded, but not yet run:")
    print(debug.get_tensors_text([y]))
    print(f"result: {y.item()}\n")


def find_reads():
    torch.lazy.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loss = torch.ones(3, device="lazy").sum()
        if loss.item() > 2:  # the program must wait here
            loss = loss * 2
        print("values read:", *(warning.message for warning in caught), sep="\n  ")
    torch.lazy.set_sync_debug_mode("default")
    print()


def find_fallbacks():
    metrics.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.tensor([3, 1, 3], device="lazy").unique()  # how many values there are depends on the data
    print("ran on the CPU at once:", *metrics.executed_fallback_ops(), "\n")


def find_line():
    table, index = torch.ones(3, device="lazy"), torch.tensor([7], device="lazy")
    config.set_debug(True)
    picked = table[index]  # wrong, but not known before it runs
    try:
        picked.tolist()
    except IndexError as error:
        print("late error:", str(error).splitlines()[0])
    config.set_debug(False)

    config.set_launch_blocking(True)  # or LAZYPLUG_LAUNCH_BLOCKING=1
    try:
        table[index]
        raise AssertionError("the index was accepted")
    except IndexError as error:
        print("at once, at its own line:", str(error).splitlines()[0])
    config.set_launch_blocking(False)


if __name__ == "__main__":
    show_graph()
    find_reads()
    find_fallbacks()
    find_line()
