"""The progress reports of an operation."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forkpoint.savepoint.format.tasks import Progress

OnStep = Callable[[str], None]


class Observer:
    """Receives an operation's progress. The base class ignores it; override the methods you need."""

    def progress(self, what: str, unit: str = "parts") -> AbstractContextManager[Progress]:
        """Entered when ``what`` starts; provides a function of (done, total), both in ``unit``."""
        return nullcontext(lambda done, total: None)

    def steps(self, what: str) -> AbstractContextManager[OnStep]:
        """Entered when ``what`` starts; provides a function that receives each step, in words."""
        return nullcontext(lambda step: None)

    def remark(self, text: str) -> None:
        """A warning or a hint."""


SILENT = Observer()
