from collections.abc import Callable
from typing import Any

def _make_run_backward(
    run_backward: Callable[..., Any], cpu_runs_here: Callable[[], bool], /
) -> Callable[..., Any]: ...
def _note_saved_tensors_hooks(begin: bool, /) -> None: ...
