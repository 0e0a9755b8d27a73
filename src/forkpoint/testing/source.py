"""A scripted source: a list per split, of elements and of sentinels for events between them.

A section ends with a sentinel that ends an epoch; the source reads all splits section by section, in step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa

from forkpoint.connectors.collection import fair_shares
from forkpoint.contract.source import JSON, Source, SourceReader, SplitEnumerator, SplitRange
from forkpoint.errors import ConfigError
from forkpoint.functions import to_ms
from forkpoint.protocol.messages import Phase
from forkpoint.testing.clock import ManualClock
from forkpoint.types import TypeInformation, type_of


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

    ``at``: the progress of the epoch that ends here. "computed": its tasks have run, nothing is committed; "written": the
    engine's own writers have run too; "committed": it is committed, but its output is not visible.
    """

    at: Phase = "computed"


@dataclass(frozen=True)
class Eof:
    """The run stops here, once the epoch is committed. A later run with the same state root resumes after it.

    ``savepoint``: stop with a savepoint. ``drain``: fire all timers before the savepoint. At the end of a list, by contrast,
    the input and event time end.
    """

    savepoint: bool = False
    drain: bool = False


@dataclass(frozen=True)
class Rescale:
    """An epoch ends here. The job prepares the stores during the next epoch and rescales after it; without a next epoch, it
    keeps its parallelism."""

    parallelism: int


PAUSE = Pause()
ABORT = Abort()
EOF = Eof()

EpochEnd = Pause | Advance | Rescale | Eof


@dataclass
class Section:
    """Elements ``start`` to ``stop`` of a split, and the sentinel after them. ``aborts``: the elements before which the process
    dies."""

    start: int
    stop: int
    aborts: list[tuple[int, Abort]] = field(default_factory=list)
    end: EpochEnd | None = None


@dataclass
class Script:
    """A split of a test's input."""

    elements: list[Any]
    sections: list[Section]

    def section(self, index: int) -> Section:
        """A section; empty after the last."""
        end = len(self.elements)
        return self.sections[index] if index < len(self.sections) else Section(end, end)


def parse(items: Iterable[Any], cuts: Sequence[int] = ()) -> Script:
    """Separate elements from sentinels. ``cuts``: additional numbers of elements after which an epoch ends."""
    elements: list[Any] = []
    sections = [Section(0, 0)]

    def end_section(sentinel: EpochEnd) -> None:
        sections[-1].stop, sections[-1].end = len(elements), sentinel
        sections.append(Section(len(elements), len(elements)))

    for item in items:
        match item:
            case Pause() | Advance() | Rescale() | Eof():
                end_section(item)
            case Abort():
                sections[-1].aborts.append((len(elements), item))
            case _:
                if len(elements) in cuts and len(elements) > sections[-1].start:
                    end_section(PAUSE)
                elements.append(item)
    sections[-1].stop = len(elements)
    return Script(elements, sections)


class ProcessDied(BaseException):
    """ABORT raises it in the driver; like a killed process, it is invisible to the restart strategy."""


class TestSource(Source[Any]):
    """A source for tests: ``TestSource([1, 2, PAUSE, 3])``, or a list per split.

    Sentinels between the elements: ``PAUSE`` (an epoch ends here), ``Advance(timedelta)`` (and processing time advances),
    ``ABORT`` or ``Abort(at)`` (the process dies here, once), ``Rescale(parallelism)`` (the job rescales after the next epoch),
    ``EOF`` or ``Eof(savepoint=True)`` (the run stops here). The source reads section k of all splits together, in one epoch or,
    under a limit of rows, in several.

    ``type``: a ``TypeInformation`` or annotation; untyped elements are passed unchanged. ``columnar``: pass elements as
    columns of the type, as from a file. ``batch_rows``: the number of elements that the reader returns at a time. Sentinels
    take effect with ``run_local``; elsewhere only PAUSE does.
    """

    __test__ = False  # not collected by pytest, despite its name

    def __init__(self, *splits: Iterable[Any], type: Any = None, columnar: bool = False, batch_rows: int | None = None) -> None:
        if columnar and type is None:
            raise ConfigError("TestSource(columnar=True) needs a type for its columns; pass type=")
        self._splits = [list(split) for split in splits or ([],)]
        self._type = None if type is None else type_of(type)
        self._columnar = columnar
        self._batch_rows = batch_rows
        self.scripts = [parse(split) for split in self._splits]
        self.clock: ManualClock | None = None
        self.next_abort: tuple[tuple[int, int, int], Abort] | None = None
        self.stop: Eof | None = None
        self.rescale: Rescale | None = None
        self.aborted: set[tuple[int, int, int]] = set()
        self.advanced: set[int] = set()

    def output_type(self) -> TypeInformation | None:
        return self._type

    @property
    def bounded(self) -> bool:
        return True

    def cut(self, points: Sequence[int]) -> None:
        """End an epoch also after these numbers of elements of each split."""
        self.scripts = [parse(split, points) for split in self._splits]

    def create_enumerator(self, position: JSON | None) -> SplitEnumerator:
        return _Enumerator(self, position)

    def create_reader(self) -> SourceReader:
        return _Reader(self.scripts, self._type if self._columnar else None, self._batch_rows)

    def on_step(self, step: str) -> None:
        """Handle a step of an epoch; dies if the script says so."""
        if self.next_abort is not None and self.next_abort[1].at == step:
            self.aborted.add(self.next_abort[0])
            self.next_abort = None
            raise ProcessDied(f"ABORT at {step!r}")

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "clock": None}


class _Enumerator(SplitEnumerator):
    """Position: ``{"section": k, "next": [n, …]}``, the current section and the number of planned elements per split."""

    def __init__(self, source: TestSource, position: JSON | None) -> None:
        self._source = source
        self._scripts: list[Script] = source.scripts
        self._count = max(len(s.sections) for s in self._scripts)
        self._section: int = 0 if position is None else position["section"]
        self._next: list[int] = [0] * len(self._scripts) if position is None else list(position["next"])
        self._next += [0] * (len(self._scripts) - len(self._next))

    def plan(self, max_rows: int, parallelism_hint: int = 2) -> list[SplitRange]:
        source, at = self._source, self._section
        source.next_abort = source.stop = source.rescale = None
        if self.finished:
            return []
        self._advance_clock()
        sections = [script.section(at) for script in self._scripts]
        limits, aborts = [], []
        for split, section in enumerate(sections):
            pending = [
                (index, (split, at, n), abort)
                for n, (index, abort) in enumerate(section.aborts)
                if (split, at, n) not in source.aborted
            ]
            limits.append(pending[0][0] if pending else section.stop)
            aborts.append(pending[0] if pending else None)
        shares = fair_shares([limit - n for limit, n in zip(limits, self._next, strict=True)], self._next, max_rows)
        ranges = self._ranges(shares, parallelism_hint)
        for abort, planned in zip(aborts, self._next, strict=True):
            if abort is not None and abort[0] == planned and source.next_abort is None:
                source.next_abort = (abort[1], abort[2])
        if not any(aborts) and self._next == limits:
            self._section += 1
            source.stop = next((s.end for s in sections if isinstance(s.end, Eof)), None)
            source.rescale = next((s.end for s in sections if isinstance(s.end, Rescale)), None)
        return ranges

    def _ranges(self, shares: list[int], parallelism_hint: int) -> list[SplitRange]:
        active = sum(1 for s in shares if s)
        ranges: list[SplitRange] = []
        for split, share in enumerate(shares):
            start = self._next[split]
            pieces = max(1, min(share, -(-parallelism_hint // max(active, 1))))
            cuts = [start + share * i // pieces for i in range(pieces + 1)]
            # A split without elements read so far takes part too: it holds the watermark back.
            if share or (start == 0 and self._scripts[split].elements) or not (active or ranges):
                ranges.extend(SplitRange(str(split), piece, a, b, b - a) for piece, (a, b) in enumerate(pairwise(cuts)))
            self._next[split] = start + share
        return ranges

    def _advance_clock(self) -> None:
        """At the start of a section, advance the clock as the previous section's sentinel says."""
        at, source = self._section, self._source
        fresh = all(n == script.section(at).start for n, script in zip(self._next, self._scripts, strict=True))
        if at == 0 or not fresh or at in source.advanced or source.clock is None:
            return
        ends = [script.section(at - 1).end for script in self._scripts]
        source.clock.advance(max((end.ms for end in ends if isinstance(end, Advance)), default=0))
        source.advanced.add(at)

    @property
    def position(self) -> JSON:
        return {"section": self._section, "next": list(self._next)}

    @property
    def finished(self) -> bool:
        return self._section >= self._count

    @property
    def finished_splits(self) -> list[str]:
        """Splits whose script has ended; after a final PAUSE, a split has another section without elements."""
        ends = zip(self._next, self._scripts, strict=True)
        return [
            str(split)
            for split, (n, script) in enumerate(ends)
            if n == len(script.elements) and self._section >= len(script.sections) - (script.sections[-1].start < n)
        ]


class _Reader(SourceReader):
    def __init__(self, scripts: list[Script], columns: TypeInformation | None, batch_rows: int | None) -> None:
        self._scripts = scripts
        self._columns = columns
        self._batch_rows = batch_rows

    def read(self, range: SplitRange) -> Iterator[pa.RecordBatch | list[Any]]:
        elements = self._scripts[int(range.split)].elements[range.start : range.end]
        step = self._batch_rows or max(1, len(elements))
        while elements:
            run, elements = elements[:step], elements[step:]
            if self._columns is None:
                yield run
            else:
                arrays = self._columns.to_columns(run)
                yield pa.RecordBatch.from_arrays(arrays, schema=self._columns.arrow_schema)
