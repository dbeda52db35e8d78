"""python -m conformance: see --help."""

import argparse
import fnmatch
import json
import os
import sys
import time


def _arguments():
    parser = argparse.ArgumentParser(prog="conformance", description="Every op of PyTorch's database, as on the CPU.")
    parser.add_argument("--ops", default="*", help="globs, separated by commas")
    parser.add_argument("--dtypes", default="all", help="as in float32,int64")
    parser.add_argument("--variants", default="all", help="as in forward,out")
    parser.add_argument("--samples", type=int, default=6, help="of each op, variant and dtype")
    parser.add_argument("--full", action="store_true", help="all samples")
    parser.add_argument("--jobs", type=int, default=2, help="worker processes")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for one op, variant and dtype")
    parser.add_argument("--json", help="write the results as JSON lines")
    parser.add_argument("--report", help="print the report on results written before, and run nothing")
    parser.add_argument("--blocking", action="store_true", help="run each op when it is recorded")
    parser.add_argument(
        "--infer", choices=("cpu", "meta"), default="cpu", help="who is asked how the results of small calls lie"
    )
    return parser.parse_args()


def _names(text, known):
    chosen = list(known) if text == "all" else text.split(",")
    unknown = set(chosen) - set(known)
    if unknown:
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    return chosen


def _cells(arguments):
    from .cases import DTYPES, VARIANTS, ops
    from .worker import Cell

    dtypes, variants = _names(arguments.dtypes, DTYPES), _names(arguments.variants, VARIANTS)
    for name, op in ops().items():
        if any(fnmatch.fnmatchcase(name, glob) for glob in arguments.ops.split(",")):
            supported = [dtype for dtype in dtypes if DTYPES[dtype] in op.supported_dtypes("cpu")]
            cells = [Cell(name, variant, dtype) for dtype in supported for variant in variants]
            if cells:
                yield cells


def _run(arguments):
    from . import runner

    limit = None if arguments.full else arguments.samples
    with open(arguments.json or os.devnull, "w") as file:

        def emit(result):
            print(json.dumps(result), file=file, flush=True)

        return runner.run(list(_cells(arguments)), arguments.jobs, limit, arguments.timeout, emit)


def _load(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def main():
    arguments = _arguments()
    # Read when the plugin is loaded.
    os.environ["LAZYPLUG_LAUNCH_BLOCKING"] = str(int(arguments.blocking))
    if arguments.infer == "meta":
        os.environ["LAZYPLUG_SMALL_CALL"] = "0"
    os.environ.setdefault("LAZYPLUG_VERIFY_IR", "1")
    os.environ.setdefault("LAZYPLUG_MAX_UNUSED_GRAPHS", "0")  # or most would run at once
    os.environ.setdefault("LAZYPLUG_COMPILE", "always")  # likewise, without being compiled
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    start = time.monotonic()
    results = _load(arguments.report) if arguments.report else _run(arguments)

    from . import report

    print(report.text(results))
    print(f"{time.monotonic() - start:.0f} s")
    return any(result["status"] in ("failed", "crashed", "timeout") for result in results)


if __name__ == "__main__":
    sys.exit(main())
