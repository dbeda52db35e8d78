"""``python -m torch_lazyplug.report [-o FILE] script.py args...``: runs a script, and writes the page about it.

The script runs with the setting ``debug``, as if it had been started by itself: its arguments, exceptions and exit code
are kept. The page is written when it ends, also if it fails. ``-m`` before the script's name means a module.
"""

import argparse
import contextlib
import os
import runpy
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from torch_lazyplug import config
from torch_lazyplug.report import report
from torch_lazyplug.sync import wait_device_ops


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m torch_lazyplug.report", description="Writes a page about a script."
    )
    parser.add_argument("-o", "--output", default="report.html", metavar="FILE", help="where (report.html)")
    parser.add_argument("-m", dest="module", action="store_true", help="the script is the name of a module")
    parser.add_argument("script")
    parser.add_argument("args", nargs=argparse.REMAINDER)
    arguments = parser.parse_args(argv)
    # The script may change the directory.
    arguments.output = os.path.abspath(arguments.output)
    if not os.path.isdir(os.path.dirname(arguments.output)):
        parser.error(f"there is no directory {os.path.dirname(arguments.output)}")
    if not arguments.module and not os.path.exists(arguments.script):
        parser.error(f"there is no file {arguments.script}")
    return arguments


def _run(arguments: argparse.Namespace) -> dict[str, Any]:
    sys.argv = [arguments.script, *arguments.args]
    if arguments.module:
        sys.path[0] = os.getcwd()
        return runpy.run_module(arguments.script, run_name="__main__", alter_sys=True)
    sys.path[0] = os.path.dirname(os.path.abspath(arguments.script))
    return runpy.run_path(arguments.script, run_name="__main__")


@contextlib.contextmanager
def _reported(output: str) -> Iterator[None]:
    """Children that the script forks do not write the page."""
    process = os.getpid()
    config.set_debug(True)
    try:
        yield
    finally:
        if os.getpid() == process:
            report(output)
            print(f"wrote {output}", file=sys.stderr)


def main(argv: Sequence[str] | None = None) -> None:
    arguments = _arguments(argv)
    with _reported(arguments.output):
        _variables = _run(arguments)  # alive while the page is written: what they keep is part of the picture
        # Errors that the script has not waited for are not its errors.
        with contextlib.suppress(Exception):
            wait_device_ops()


if __name__ == "__main__":
    main()
