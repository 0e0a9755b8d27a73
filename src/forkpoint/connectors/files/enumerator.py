"""The enumerator of the file source: plans what each epoch reads.

Files are read in order of (modification time, path), from start to end; a long file takes several epochs. Planning takes
portions of files until the epoch has enough records, then divides them into pieces with about the same number of records.
It does not parse records: line ends and Parquet footers suffice.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from itertools import islice
from typing import Any

from forkpoint.connectors.files.formats import FileFormat, FileIndex, WholeIndex, estimated_rows
from forkpoint.connectors.files.listing import SeenFiles
from forkpoint.connectors.files.places import MUST_BE_COMPLETE, FileEntry, FileListing, SourceFile, SourceFiles
from forkpoint.contract.source import JSON, Backlog, SplitEnumerator, SplitRange
from forkpoint.errors import ConfigError, InputLost, RestoreRefused, StorageError

SPLIT = "files"
MAX_PIECE_ROWS = 128 * 1024
MAX_PIECE_BYTES = 64 << 20
MAX_FILES_PER_EPOCH = 10_000
EXPECTED_FILES = 64

# A listing is reused for this multiple of its duration, so that not every epoch walks a large directory with a backlog.
_LISTING_REUSE = 20
_MARK_BYTES = 4096
_MAX_NAMES = 10  # in one warning

log = logging.getLogger("forkpoint")


@dataclass(frozen=True)
class Progress:
    """The current file, planned up to ``at``. ``line``: the number of the next line or row; ``header``: the column names, if the
    file has them; ``tag``: identifies its content. ``mark``: for partly read files without tags, a digest of the bytes before
    ``at``, or of the footer."""

    mtime_ns: int
    path: str
    size: int
    at: int
    line: int
    header: list[str] | None
    tag: str | None = None
    mark: str | None = None

    def to_json(self) -> JSON:
        """The fields, without a missing tag or mark, as in positions of older releases."""
        saved = asdict(self)
        return {name: value for name, value in saved.items() if value is not None or name not in ("tag", "mark")}


@dataclass(frozen=True)
class Portion:
    """The part of a file that an epoch reads."""

    file: Progress
    end: int
    rows: int
    index: FileIndex


@dataclass(frozen=True)
class Stop:
    """A position to stop at: the files that were started before it, and the offset in a partly read one."""

    files: int
    seen: SeenFiles
    path: str | None
    at: int

    @classmethod
    def of(cls, position: JSON) -> Stop:
        _check_version(position)
        seen = SeenFiles(0, None)  # never forgets
        seen.restore(position["seen"])
        current = position["current"] or {"path": None, "at": 0}
        return cls(position["files"], seen, current["path"], current["at"])

    def is_at(self, current: Progress | None) -> bool:
        return self.path is None if current is None else (current.path, current.at) == (self.path, self.at)


class FileEnumerator(SplitEnumerator):
    """Position::

        {"version": 1, "files": 12, "last": [mtime_ns, path], "current": Progress | None,
         "until": [mtime_ns, path] | None, "seen": {…}}

    ``files`` counts the started files. ``until`` is the last file of a bounded source, fixed at its first start (``[]`` without
    files); None for an unbounded source. ``seen`` is a ``SeenFiles``.
    """

    ignored = 0

    def __init__(
        self,
        files: SourceFiles,
        listing: FileListing,
        file_format: FileFormat,
        *,
        bounded: bool,
        seen: SeenFiles,
        position: JSON | None,
    ) -> None:
        self._listing = listing
        self._source = files
        self._base = files.location
        self._format = file_format
        self._bounded = bounded
        self._seen = seen
        self._pending: deque[FileEntry] = deque()
        self._pending_bytes = 0
        self._listed_at = float("-inf")
        self._listing_cost = 0.0
        self._files = 0
        self._last: list[Any] | None = None
        self._current: Progress | None = None
        self._until: list[Any] | None = None
        self._stop: Stop | None = None
        self._fresh = position is None
        if position is not None:
            _check_version(position)
            self._files = position["files"]
            self._last = position["last"]
            self._until = position["until"] if bounded else None
            self._seen.restore(position["seen"])
            if position["current"] is not None:
                self._current = Progress(**position["current"])
        if bounded:
            self._list()
            if self._until is None:
                self._until = [self._pending[-1].mtime_ns, self._pending[-1].path] if self._pending else []

    def stop_at(self, position: JSON) -> None:
        self._stop = stop = Stop.of(position)
        current = self._current
        if stop.files < self._files or (current is not None and current.path == stop.path and current.at > stop.at):
            raise ConfigError(
                f"file source {self._base}: cannot stop after {stop.files} files because it has read {self._files}; "
                "give a later position"
            )
        self._set_pending(self._before_stop(self._pending))

    def _set_pending(self, files: list[FileEntry]) -> None:
        self._pending = deque(files)
        self._pending_bytes = sum(entry.size for entry in files)

    @property
    def at_stop(self) -> bool:
        stop = self._stop
        if stop is None or self._pending or (self._listed_at < 0 and self._files < stop.files):
            return False
        if not stop.is_at(self._current):
            return False
        if self._files < stop.files:
            raise StorageError(
                f"file source {self._base}: {stop.files - self._files} of the {stop.files} files that were read before the "
                "position to stop at are gone; restore them, or give --until a time"
            )
        return True

    def _before_stop(self, found: Iterable[FileEntry]) -> list[FileEntry]:
        """The files that were read before the stop; a partly read one comes last, whatever its time is."""
        stop = self._stop
        if stop is None:
            return list(found)
        return sorted((e for e in found if not stop.seen.is_new(e)), key=lambda e: (e.path == stop.path, e))

    def plan(self, max_rows: int, parallelism_hint: int = 2) -> list[SplitRange]:
        due = not self._pending or time.monotonic() - self._listed_at > self._listing_cost * _LISTING_REUSE
        if due and not self._bounded:
            self._list()
        portions = self._take(max_rows)
        self._seen.forget(self._pending[0].mtime_ns if self._pending else None)
        return _ranges(portions, parallelism_hint, self._format)

    def backlog(self) -> Backlog:
        """Includes the rest of a partly read file if its offsets are in bytes."""
        current = self._current
        rest = current.size - current.at if current is not None and self._format.unit != "row" else 0
        files = len(self._pending) + (current is not None)
        return Backlog(self._pending_bytes + max(0, rest), "bytes", files)

    @property
    def position(self) -> JSON:
        return {
            "version": 1,
            "files": self._files,
            "last": self._last,
            "current": None if self._current is None else self._current.to_json(),
            "until": self._until,
            "seen": self._seen.to_json(),
        }

    @property
    def finished(self) -> bool:
        return self._bounded and self._current is None and not self._pending and self._stop is None

    def _list(self) -> None:
        started = time.monotonic()
        appeared = self._listing.appeared()
        self._warn(appeared, first=self._listed_at < 0)
        pending = {e.path: e for e in self._pending}  # a new file replaces a pending one of the same path
        found = sorted({**pending, **{e.path: e for e in appeared if self._seen.is_new(e)}}.values())
        if self._until is not None:  # files that appeared after the first start are not part of a bounded source
            found = [e for e in found if [e.mtime_ns, e.path] <= self._until]
        self._set_pending(self._before_stop(found))
        self._listed_at = time.monotonic()
        self._listing_cost = self._listed_at - started

    def _warn(self, appeared: list[FileEntry], *, first: bool) -> None:
        """Warn of files that will not be read. At the start, only the number of unread old files is known."""
        if first and self._fresh and not appeared and (self._bounded or self._listing.pattern is not None):
            missing = "no file" if self._listing.pattern is None else f"no file that matches {self._listing.pattern!r}"
            log.warning("file source: there is %s in %s", missing, self._base)
        late = [e.path for e in appeared if self._seen.is_too_late(e)]
        count = max(0, len(late) - (self._files - self._seen.remembered)) if first else len(late)
        self.ignored += count
        if not count:
            return
        names = f"of {len(late)} old files" if first else ", ".join(sorted(late)[:_MAX_NAMES] + ["…"] * (count > _MAX_NAMES))
        log.warning(
            "file source %s: %d late files are not read because they are older than all files that it remembers (%s); to read "
            "them, copy them in under new names; for the future, raise max_remembered_files or max_file_age",
            self._base,
            count,
            names,
        )

    def _take(self, budget: int) -> list[Portion]:
        portions: list[Portion] = []
        started = expected = 0
        while budget > 0:
            if self._current is None:
                if not self._pending or started == MAX_FILES_PER_EPOCH:
                    break
                if not expected:
                    expected = self._expect(budget)
                started, expected = started + 1, expected - 1
                entry = self._pending.popleft()
                self._pending_bytes -= entry.size
                if not self._start(entry):
                    continue
            if self._current is not None and self._stop is not None and self._stop.is_at(self._current):
                break
            portion = self._take_from_current(budget)
            if portion is not None:
                portions.append(portion)
                budget -= portion.rows
        return portions

    def _expect(self, budget: int) -> int:
        """Prefetch the files that the epoch will probably reach, judging by their sizes. Returns their number, at least one."""
        files: list[FileEntry] = []
        for entry in islice(self._pending, EXPECTED_FILES):
            files.append(entry)
            budget -= estimated_rows(entry.size)
            if budget <= 0:
                break
        self._source.expect(files)
        return len(files)

    def _start(self, entry: FileEntry) -> bool:
        file = self._source.file(entry.path, entry.size, None)
        try:
            size, tag = file.stat()
            start = self._format.start(file, size)
        except FileNotFoundError:  # none of it was read, so treat it as if it had never existed
            self._listing.forget(entry.path)
            return False
        self._seen.add(entry)
        self._files += 1
        self._last = [entry.mtime_ns, entry.path]
        self._current = Progress(entry.mtime_ns, entry.path, size, start.at, start.line, start.header, tag)
        return True

    def _take_from_current(self, budget: int) -> Portion | None:
        file = self._current
        assert file is not None
        opened = self._source.file(file.path, file.size, file.tag)
        opened.check(file.size, exact=self._format.unit == "row")
        if file.mark is not None and self._mark(opened, file) != file.mark:
            raise InputLost(
                f"{opened}: has other content than when the job read its beginning: it was overwritten, or replaced by another "
                f"file of its name. Restore the file; to read the new content, copy it in under a new name; {MUST_BE_COMPLETE}"
            )
        stop = None if self._stop is None or self._stop.path != file.path else self._stop.at
        if stop is not None and self._format.unit == "row":
            budget = min(budget, stop - file.at)
        index = self._format.index(opened, file.at, file.size if stop is None or self._format.unit == "row" else stop)
        end, rows = index.take(budget)
        if end >= index.end and stop is None:
            self._current = None
        else:
            begun = replace(file, at=end, line=file.line + rows)
            self._current = begun if file.tag is not None else replace(begun, mark=self._mark(opened, begun))
        return Portion(file, end, rows, index) if rows else None

    def _mark(self, opened: SourceFile, file: Progress) -> str:
        """A digest that distinguishes a file from another of its name and size: of the bytes before the current offset, so that
        appending is allowed, or of Parquet's footer."""
        end = file.size if self._format.unit == "row" else file.at
        start = max(0, end - _MARK_BYTES)
        with opened.opened() as read:
            return blake2b(read(start, end - start), digest_size=8).hexdigest()


def _check_version(position: JSON) -> None:
    if position.get("version") != 1:
        raise RestoreRefused(
            f"file source: the saved position has version {position.get('version')!r}, but this release reads version 1; use "
            "the forkpoint release that wrote it, or give the source a new uid to start afresh"
        )


def _ranges(portions: list[Portion], parallelism_hint: int, file_format: FileFormat) -> list[SplitRange]:
    """Divide portions into pieces with about the same number of records, in order."""
    total = sum(p.rows for p in portions)
    size = sum(p.end - p.file.at for p in portions) if file_format.unit == "line" else 0
    pieces = max(-(-total // MAX_PIECE_ROWS), -(-size // MAX_PIECE_BYTES), 1)
    hint = max(1, parallelism_hint)
    pieces = min(-(-pieces // hint) * hint, max(total, 1))  # a multiple of the hint balances the tasks
    ranges: list[SplitRange] = []
    segments: list[dict[str, Any]] = []
    rows = done = 0
    cut = 1
    for portion in portions:
        row = 0
        while row < portion.rows:
            while (target := total * cut // pieces) <= done:  # an indivisible file may span several pieces
                cut += 1
            count = portion.rows - row if isinstance(portion.index, WholeIndex) else min(portion.rows - row, target - done)
            segments.append(_segment(portion, row, row + count))
            row, rows, done = row + count, rows + count, done + count
            if done >= target:  # true at the last record
                first, last = segments[0], segments[-1]
                start = [first["mtime_ns"], first["path"], first["at"]]
                end = [last["mtime_ns"], last["path"], last["end"]]
                ranges.append(SplitRange(SPLIT, len(ranges), start, end, rows, {"files": segments}))
                segments, rows = [], 0
    return ranges


def _segment(portion: Portion, row: int, stop: int) -> dict[str, Any]:
    file = portion.file
    tag = {} if file.tag is None else {"tag": file.tag}
    return {
        "path": file.path,
        "mtime_ns": file.mtime_ns,
        "size": file.size,
        "at": portion.index.offset(row),
        "end": portion.index.offset(stop),
        "line": file.line + row,
        "header": file.header,
        **tag,
    }
