"""What a bisection has found."""

import dataclasses

from torch_lazyplug.bisection.differences import Difference

__all__ = ["Finding"]

_HEADLINES = {
    "equal": "The devices agree",
    "op": "{op} computes something else than on the CPU",
    "error": "{op} fails on one device only",
    "pass": "Each op alone is right; without {pass_name} the program is, too",
    "schedule": "Each op alone is right; with {pass_name} the program is, too",
    "unexplained": "The devices part, and nothing that was tried explains it",
}


@dataclasses.dataclass(frozen=True)
class Finding:
    """Where a program on the lazy device parts from the CPU's. False if it does not.

    ``kind`` is

    - ``"equal"``: it does not part;
    - ``"op"``: ``op``, called at ``location`` with ``operands``, computes something else: ``difference`` says what;
    - ``"error"``: an error is raised on one device only, by ``op`` at ``location`` if these are known;
    - ``"pass"``: each op alone is right, and so is the program without the pass ``pass_name``;
    - ``"schedule"``: each op alone is right, and so is the program with the setting ``pass_name``, which decides when
      ops run, or, if it is empty, sometimes;
    - ``"unexplained"``: nothing of this explains ``difference``.

    ``mended_by`` lists all changes of settings that make the program right, each as ``"name=value"``. ``detail`` says
    in words what else is known.
    """

    kind: str
    op: str = ""
    location: str = ""
    operands: tuple[str, ...] = ()
    difference: Difference | None = None
    pass_name: str = ""
    mended_by: tuple[str, ...] = ()
    detail: str = ""

    def __bool__(self) -> bool:
        return self.kind != "equal"

    def __str__(self) -> str:
        headline = _HEADLINES[self.kind].format(op=self.op or "The program", pass_name=self.pass_name or "luck")
        parts = {
            "at": self.location,
            "operands": "\n             ".join(self.operands),
            "difference": self.difference,
            "mended by": ", ".join(self.mended_by),
            "detail": self.detail,
        }
        return headline + "".join(f"\n  {name:<10} {text}" for name, text in parts.items() if text)
