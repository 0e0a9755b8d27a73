"""A list as a source: for tests, examples and small reference data."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from forkpoint.contract.source import JSON, Backlog, Source, SourceReader, SplitEnumerator, SplitRange
from forkpoint.errors import ConfigError, RestoreRefused
from forkpoint.types import TypeInformation, type_of
from forkpoint.types.variables import T


class CollectionSource(Source[T]):
    """The elements of a list, in order; bounded.

    The elements are part of the source and are shipped to the tasks once, with the program; positions are indices into the list.
    ``splits``: alternatively, a list per split, like a partitioned topic: order holds within a split, and an epoch reads
    first from the splits furthest behind. ``type``: a ``TypeInformation`` or annotation; without it, elements pass unchanged.
    """

    holds_elements = True

    def __init__(self, elements: Iterable[T] = (), type: Any = None, *, splits: Sequence[Iterable[T]] | None = None) -> None:
        head = list(elements)
        if splits is not None and head:
            raise ConfigError("CollectionSource: give either elements or splits=[[...], [...]], not both")
        self._type = None if type is None else type_of(type)
        self._splits: tuple[list[T], ...] = (head,) if splits is None else tuple(list(s) for s in splits)

    @property
    def elements(self) -> list[T]:
        """All elements, of the first split first."""
        return [element for split in self._splits for element in split]

    def output_type(self) -> TypeInformation[T] | None:
        return self._type

    @property
    def bounded(self) -> bool:
        return True

    def create_enumerator(self, position: JSON | None) -> SplitEnumerator:
        return _CollectionEnumerator([len(s) for s in self._splits], position)

    def create_reader(self) -> SourceReader[T]:
        return _CollectionReader(self._splits)


class _CollectionEnumerator(SplitEnumerator):
    """Position: ``{"0": n, "1": m, …}``, the number of elements planned of each split."""

    def __init__(self, sizes: list[int], position: JSON | None) -> None:
        self._sizes = sizes
        self._announced = position is not None
        self._next = [0] * len(sizes)
        for split, index in (position or {}).items():
            # A missing split may or may not have been read completely.
            if int(split) >= len(sizes) or index > sizes[int(split)]:
                raise RestoreRefused(
                    f"CollectionSource: the saved position is element {index} of split {split}, but the program's "
                    f"collection has splits of {sizes} elements. Give it at least the elements read before, or give the "
                    "source a new uid to start from its beginning"
                )
            self._next[int(split)] = index
        self._stops: list[int] | None = None
        self._paused: frozenset[str] = frozenset()

    def stop_at(self, position: JSON) -> None:
        stops = [int(position.get(str(split), 0)) for split in range(len(self._sizes))]
        for split, (stop, size, index) in enumerate(zip(stops, self._sizes, self._next, strict=True)):
            if not index <= stop <= size:
                raise ConfigError(
                    f"CollectionSource: cannot stop at element {stop} of split {split}: it is at element {index} of {size}"
                )
        self._stops = stops

    @property
    def at_stop(self) -> bool:
        return self._next == self._stops

    def plan(self, max_rows: int, parallelism_hint: int = 2) -> list[SplitRange]:
        ends = self._sizes if self._stops is None else self._stops
        left = [
            0 if str(split) in self._paused else end - index
            for split, (end, index) in enumerate(zip(ends, self._next, strict=True))
        ]
        shares = fair_shares(left, self._next, max_rows)
        active = sum(1 for s in shares if s)
        ranges: list[SplitRange] = []
        for split, share in enumerate(shares):
            # An empty range announces a split that has not been read yet, so that it holds the watermark back.
            if share or (self._sizes[split] and not self._announced):
                ranges += in_pieces(str(split), self._next[split], share, -(-parallelism_hint // max(active, 1)))
            self._next[split] += share
        self._announced = True
        return ranges

    def backlog(self) -> Backlog:
        return Backlog(sum(self._sizes if self._stops is None else self._stops) - sum(self._next))

    @property
    def position(self) -> JSON:
        return {str(split): index for split, index in enumerate(self._next)}

    @property
    def finished(self) -> bool:
        return self._next == self._sizes and self._stops is None

    @property
    def finished_splits(self) -> list[str]:
        ends = zip(self._next, self._sizes, strict=True)
        return [] if self._stops is not None else [str(split) for split, (n, size) in enumerate(ends) if n == size]

    def pause_splits(self, splits: Collection[str]) -> bool:
        self._paused = frozenset(splits)
        return True


class _CollectionReader(SourceReader[T]):
    def __init__(self, splits: tuple[list[T], ...]) -> None:
        self._splits = splits

    def read(self, range: SplitRange) -> Iterator[list[T]]:
        yield self._splits[int(range.split)][range.start : range.end]


def in_pieces(split: str, start: int, count: int, pieces: int) -> list[SplitRange]:
    """A range of a split, divided into up to ``pieces`` of similar size; at least one, which may be empty."""
    pieces = max(1, min(count, pieces))
    cuts = [start + count * i // pieces for i in range(pieces + 1)]
    return [SplitRange(split, piece, a, b, b - a) for piece, (a, b) in enumerate(pairwise(cuts))]


def fair_shares(left: list[int], done: list[int], budget: int) -> list[int]:
    """The part of ``budget`` elements to take from each split, so that the splits furthest behind catch up first."""
    shares = [0] * len(left)
    order = sorted(range(len(left)), key=lambda s: done[s])
    while budget > 0:
        open_splits = [s for s in order if shares[s] < left[s]]
        if not open_splits:
            break
        level = min(done[s] + shares[s] for s in open_splits)
        lowest = [s for s in open_splits if done[s] + shares[s] == level]
        # Raise the lowest to the next level, to the end of the shortest, or as far as the budget allows.
        above = [done[s] + shares[s] - level for s in open_splits if done[s] + shares[s] > level]
        step = min([left[s] - shares[s] for s in lowest] + above + [max(1, budget // len(lowest))])
        for s in lowest:
            take = min(step, budget)
            shares[s] += take
            budget -= take
    return shares
