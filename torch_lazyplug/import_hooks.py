"""Work that must wait until a module is imported, because importing it ourselves would cost every user its time."""

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

Callback = Callable[[ModuleType], None]


def after_import(name: str, callback: Callback) -> None:
    """Calls ``callback`` with the module once it is imported: now, if it already is; never, if nobody imports it."""
    if name in sys.modules:
        callback(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, callback))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module, once, the way the other finders do, and has its loader call back."""

    def __init__(self, name: str, callback: Callback) -> None:
        self._name = name
        self._callback = callback

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            _call_after_execution(spec.loader, self._callback)
        return spec


def _call_after_execution(loader: importlib.abc.Loader, callback: Callback) -> None:
    execute = loader.exec_module

    def execute_and_call(module: ModuleType) -> None:
        execute(module)
        callback(module)

    loader.exec_module = execute_and_call  # type: ignore[method-assign]
