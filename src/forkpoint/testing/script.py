"""The sentinels in a test's input, and how they divide it into sections.

An input's lists are scripts: elements, and sentinels for what happens between them. A section lies between two sentinels
that end an epoch; the splits of a source are read section by section, in step.
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
    """An epoch ends here, and processing time advances (timedelta, or int ms) before the next."""

    by: timedelta | int

    @property
    def ms(self) -> int:
        return to_ms(self.by, "Advance")


@dataclass(frozen=True)
class Abort:
    """The process dies here, once: uncommitted work is lost, and the job restarts from its last checkpoint.

    ``at``: how far the epoch that ends here gets. "computed": its tasks have run, nothing is committed; "written": the
    engine's own writers have run too; "committed": it is committed, but its output is not visible.
    """

    at: Step = "computed"


@dataclass(frozen=True)
class Eof:
    """The run stops here, once the epoch is committed. A later run over the same state root resumes after it.

    ``savepoint``: stop with a savepoint. ``drain``: and fire all timers first. At the end of a list, by contrast, the input
    ends, and with it event time.
    """

    savepoint: bool = False
    drain: bool = False


PAUSE = Pause()
ABORT = Abort()
EOF = Eof()

Ending = Pause | Advance | Eof


@dataclass
class Section:
    """Elements ``start`` to ``stop`` of a split, and the sentinel after them. ``aborts``: where the process dies."""

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
        """A section; those after the last one are empty."""
        end = len(self.elements)
        return self.sections[index] if index < len(self.sections) else Section(end, end)


def parse(items: Iterable[Any], cuts: Sequence[int] = ()) -> Script:
    """Separate elements from sentinels. ``cuts``: further numbers of elements after which an epoch ends."""
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
