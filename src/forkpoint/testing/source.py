"""A scripted source: lists of elements with sentinels between them, one list a split."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

from forkpoint.connectors import Source, SourceReader, SplitEnumerator, SplitRange
from forkpoint.connectors.base import JSON
from forkpoint.connectors.collection import fair_shares
from forkpoint.errors import ConfigError
from forkpoint.testing.clock import ManualClock
from forkpoint.testing.script import Abort, Advance, Eof, Script, Step, parse
from forkpoint.types import TypeInformation, type_of


class ProcessDied(BaseException):
    """Raised by ABORT in the driver: like a killed process, it is no failure that a restart strategy sees."""


class TestSource(Source[Any]):
    """A source for tests: ``TestSource([1, 2, PAUSE, 3])``, or several lists for as many splits.

    Sentinels between the elements: ``PAUSE`` (an epoch ends here), ``Advance(timedelta)`` (and processing time moves
    on), ``ABORT`` or ``Abort(at)`` (the process dies here, once), ``EOF`` or ``Eof(savepoint=True)`` (the run is stopped
    here). Epoch k reads the k-th section of every split, in one epoch or, under a limit of rows, in several.

    ``type``: a ``TypeInformation`` or annotation; untyped elements are passed on as they are. ``columnar``: elements
    travel as columns of the type, as from a file. ``batch_rows``: how many elements the reader gives at a time.
    Sentinels take effect with ``run_local``; elsewhere PAUSE alone does.
    """

    __test__ = False  # not a class of tests, whatever pytest makes of its name

    def __init__(
        self, *splits: Iterable[Any], type: Any = None, columnar: bool = False, batch_rows: int | None = None
    ) -> None:
        if columnar and type is None:
            raise ConfigError("TestSource(columnar=True) needs a type; give type=, of which the columns are made")
        self._splits = [list(split) for split in splits or ([],)]
        self._type = None if type is None else type_of(type)
        self._columnar = columnar
        self._batch_rows = batch_rows
        self.scripts = [parse(split) for split in self._splits]
        self.clock: ManualClock | None = None
        self.doom: tuple[tuple[int, int, int], Abort] | None = None
        self.stop: Eof | None = None
        self.died: set[tuple[int, int, int]] = set()
        self.advanced: set[int] = set()

    def output_type(self) -> TypeInformation | None:
        return self._type

    @property
    def bounded(self) -> bool:
        return True

    def cut(self, points: Sequence[int]) -> None:
        """End an epoch after so many elements of each split, too."""
        self.scripts = [parse(split, points) for split in self._splits]

    def create_enumerator(self, position: JSON | None) -> SplitEnumerator:
        return _Enumerator(self, position)

    def create_reader(self) -> SourceReader:
        return _Reader(self.scripts, self._type if self._columnar else None, self._batch_rows)

    def on_step(self, step: Step) -> None:
        """An epoch got this far; die if the script says so."""
        if self.doom is not None and self.doom[1].at == step:
            self.died.add(self.doom[0])
            self.doom = None
            raise ProcessDied(f"ABORT at {step!r}")

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "clock": None}


class _Enumerator(SplitEnumerator):
    """Position: ``{"section": k, "next": [n, …]}``, the section at hand and the elements planned of each split."""

    def __init__(self, source: TestSource, position: JSON | None) -> None:
        self._source = source
        self._scripts: list[Script] = source.scripts
        self._count = max(len(s.sections) for s in self._scripts)
        self._section: int = 0 if position is None else position["section"]
        self._next: list[int] = [0] * len(self._scripts) if position is None else list(position["next"])
        self._next += [0] * (len(self._scripts) - len(self._next))

    def plan(self, max_rows: int, parallelism_hint: int = 2) -> list[SplitRange]:
        source, at = self._source, self._section
        source.doom = source.stop = None
        if self.finished:
            return []
        self._advance_clock()
        sections = [script.section(at) for script in self._scripts]
        limits, dooms = [], []
        for split, section in enumerate(sections):
            pending = [
                (index, (split, at, n), abort)
                for n, (index, abort) in enumerate(section.aborts) if (split, at, n) not in source.died
            ]  # fmt: skip
            limits.append(pending[0][0] if pending else section.stop)
            dooms.append(pending[0] if pending else None)
        shares = fair_shares([limit - n for limit, n in zip(limits, self._next, strict=True)], self._next, max_rows)
        ranges = self._ranges(shares, parallelism_hint)
        for doom, place in zip(dooms, self._next, strict=True):
            if doom is not None and doom[0] == place and source.doom is None:
                source.doom = (doom[1], doom[2])
        if not any(dooms) and self._next == limits:
            self._section += 1
            source.stop = next((s.ending for s in sections if isinstance(s.ending, Eof)), None)
        return ranges

    def _ranges(self, shares: list[int], parallelism_hint: int) -> list[SplitRange]:
        active = sum(1 for s in shares if s)
        ranges: list[SplitRange] = []
        for split, share in enumerate(shares):
            start = self._next[split]
            pieces = max(1, min(share, -(-parallelism_hint // max(active, 1))))
            cuts = [start + share * i // pieces for i in range(pieces + 1)]
            # A split that has yet to begin takes part from the start: the watermark waits for it.
            if share or (start == 0 and self._scripts[split].elements) or not (active or ranges):
                ranges.extend(SplitRange(str(split), piece, a, b, b - a) for piece, (a, b) in enumerate(pairwise(cuts)))
            self._next[split] = start + share
        return ranges

    def _advance_clock(self) -> None:
        """At the beginning of a section: what the one before said of the clock."""
        at, source = self._section, self._source
        fresh = all(n == script.section(at).start for n, script in zip(self._next, self._scripts, strict=True))
        if at == 0 or not fresh or at in source.advanced or source.clock is None:
            return
        endings = [script.section(at - 1).ending for script in self._scripts]
        source.clock.advance(max((e.ms for e in endings if isinstance(e, Advance)), default=0))
        source.advanced.add(at)

    @property
    def position(self) -> JSON:
        return {"section": self._section, "next": list(self._next)}

    @property
    def finished(self) -> bool:
        return self._section >= self._count

    @property
    def finished_splits(self) -> list[str]:
        """Those whose script is at its end; one that ends in PAUSE goes on without elements for a section."""
        ends = zip(self._next, self._scripts, strict=True)
        return [
            str(split) for split, (n, script) in enumerate(ends)
            if n == len(script.elements) and self._section >= len(script.sections) - (script.sections[-1].start < n)
        ]  # fmt: skip


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
