"""How an operation tells what it is doing, while it is doing it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from forkpoint.savepoint.tasks import Progress, no_progress

OnStep = Callable[[str], None]


class Observer:
    """Hears how an operation is getting on. This one ignores it; override what you care about."""

    def progress(self, what: str) -> AbstractContextManager[Progress]:
        """Entered when ``what`` begins; gives the function that takes (done, total)."""
        return nullcontext(no_progress)

    def steps(self, what: str) -> AbstractContextManager[OnStep]:
        """Entered when ``what`` begins; gives the function that takes each step in words."""
        return nullcontext(lambda step: None)

    def remark(self, text: str) -> None:
        """A warning or a hint."""


SILENT = Observer()
