"""What may stand between the elements of a test's input, and how an input with it is cut into sections.

The inputs' lists are a script: elements, and sentinels that say what happens between them. A section is what lies
between two sentinels that end an epoch; the splits of a source go through their sections in step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from forkpoint.functions import to_ms

Step = Literal["planned", "computed", "written", "committed", "published"]


@dataclass(frozen=True)
class Pause:
    """An epoch ends here."""


@dataclass(frozen=True)
class Advance:
    """An epoch ends here, and processing time moves on (timedelta, or int ms) before the next."""

    by: timedelta | int

    @property
    def ms(self) -> int:
        return to_ms(self.by, "Advance")


@dataclass(frozen=True)
class Abort:
    """The process dies here, once: what was not committed is lost, and the job starts again from its last checkpoint.

    ``at`` is how far the epoch that ends here still gets. "computed": its tasks have run, nothing is committed;
    "written": the engine's own writers have run too; "committed": it is committed, but its output was not made visible.
    """

    at: Step = "computed"


@dataclass(frozen=True)
class Eof:
    """The run is stopped here, once the epoch is committed. A later run over the same state root goes on behind it.

    ``savepoint``: stop with a savepoint. ``drain``: and fire all timers first. The end of a list is another thing: there
    the input ends, and with it event time.
    """

    savepoint: bool = False
    drain: bool = False


PAUSE = Pause()
ABORT = Abort()
EOF = Eof()

Ending = Pause | Advance | Eof


@dataclass
class Section:
    """Elements ``start`` to ``stop`` of a split. ``aborts``: where the process dies. ``ending`` stands behind them."""

    start: int
    stop: int
    aborts: list[tuple[int, Abort]] = field(default_factory=list)
    ending: Ending | None = None


@dataclass
class Script:
    """One split of a test's input."""

    elements: list[Any]
    sections: list[Section]

    def section(self, index: int) -> Section:
        """A section; behind the last one there is nothing but empty ones."""
        end = len(self.elements)
        return self.sections[index] if index < len(self.sections) else Section(end, end)


def parse(items: Iterable[Any], cuts: Sequence[int] = ()) -> Script:
    """Part elements from sentinels. ``cuts``: further places (numbers of elements) where an epoch ends."""
    elements: list[Any] = []
    sections = [Section(0, 0)]

    def end(ending: Ending) -> None:
        sections[-1].stop, sections[-1].ending = len(elements), ending
        sections.append(Section(len(elements), len(elements)))

    places = set(cuts)
    for item in items:
        match item:
            case Pause() | Advance() | Eof():
                end(item)
            case Abort():
                sections[-1].aborts.append((len(elements), item))
            case _:
                if len(elements) in places and len(elements) > sections[-1].start:
                    end(PAUSE)
                elements.append(item)
    sections[-1].stop = len(elements)
    return Script(elements, sections)
