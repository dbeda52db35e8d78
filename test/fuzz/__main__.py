"""python -m fuzz: see --help."""

import argparse
import os
import sys
import time
import warnings


def _arguments():
    parser = argparse.ArgumentParser(prog="fuzz", description="Random programs, on the lazy device and on the CPU.")
    parser.add_argument("-n", type=int, default=10000, help="how many programs")
    parser.add_argument("--seed", type=int, default=1, help="of the first program")
    parser.add_argument("--jobs", type=int, default=2, help="worker processes")
    parser.add_argument("--mix", action="store_true", help="short and training programs, each in a mode of its own")
    parser.add_argument("--training", action="store_true", help="training programs instead of short ones")
    parser.add_argument("--blocking", action="store_true", help="run each op when it is recorded")
    parser.add_argument("--schedule", default="", help="never, every:<n> or random: where traces are cut")
    parser.add_argument("--scramble", action="store_true", help="give kernels' results other strides")
    parser.add_argument("--infer", choices=("cpu", "meta"), default="cpu", help="who is asked how results lie")
    parser.add_argument("--device", default="lazy", help="compared with the CPU; `cpu` tests the fuzzer")
    parser.add_argument("--timeout", type=float, default=20, help="seconds for one program")
    parser.add_argument("--shrink", type=int, default=1, help="how many failures of a kind to make small")
    parser.add_argument("--save", default="build/fuzz", help="where scripts of failures go")
    parser.add_argument("--ignore", default="", help="kinds of mismatches, separated by commas")
    parser.add_argument("--show", action="store_true", help="print the program of --seed, and run nothing")
    return parser.parse_args()


def _campaign(arguments):
    from .mode import Campaign

    kind = "mix" if arguments.mix else "training" if arguments.training else "short"
    return Campaign(kind, arguments.blocking, arguments.schedule, arguments.scramble, arguments.infer)


def _shrink_all(driver, arguments):
    from .driver import choose, save, shrink
    from .programs import text

    for failure in choose(driver.failures, arguments.shrink):
        program, smallest = shrink(failure, arguments.device, driver.campaign)
        note = "" if smallest else " (only after other programs)"
        smallest = smallest and {**smallest, "seed": failure["seed"]}
        save(arguments.save, program, smallest or failure)
        print(f"\n---- seed {failure['seed']}: {failure['kind']}{note}: {(smallest or failure)['detail'][:400]}")
        print(text(program) if smallest else failure["code"], flush=True)


def main():
    arguments = _arguments()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("LAZYPLUG_MAX_UNUSED_GRAPHS", "0")  # or most would run at once
    os.environ.setdefault("LAZYPLUG_DEVICE_COUNT", "2")
    warnings.simplefilter("ignore")
    from . import compare
    from .driver import Driver, warm_up
    from .programs import make, text

    campaign = _campaign(arguments)
    if arguments.show:
        print(text(make(arguments.seed, campaign)))
        return 0
    compare.IGNORED.update(filter(None, arguments.ignore.split(",")))
    warm_up()
    start = time.monotonic()
    last = arguments.seed + arguments.n
    driver = Driver(arguments.seed, last, campaign, arguments.device, arguments.jobs, arguments.timeout)
    failures = driver.run()
    seconds = time.monotonic() - start
    done = driver.done()
    print(f"{done} programs in {seconds:.0f} s ({done / seconds:.0f}/s): {len(failures)} failed", flush=True)
    _shrink_all(driver, arguments)
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
