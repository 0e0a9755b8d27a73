"""The logs of a Structured Streaming query's checkpoint, of Spark 3 or 4: committed batches and source positions.

    metadata            {"id": …}
    offsets/<batch>     written before a batch runs: a version line, metadata (watermark, settings), a line per source;
                        v1 by position, "-" if it has no offset yet; v2 "<name>:<offset>"
    commits/<batch>     written after it: a version line, and the watermark of the next batch
    sources/<name>/     the private log of a source

Pure apart from reading through ``Files``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from forkpoint.checkpoint.manifest import SourcePosition
from forkpoint.errors import ConfigError, NotFound, SavepointCorrupt
from forkpoint.spark.stream_checkpoint import file_log_end, needed_log_files

_OFFSET_VERSIONS = ("v1", "v2")
_COMMIT_VERSIONS = ("v1", "v2", "v3")
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_HDFS_PROVIDER = "HDFSBackedStateStoreProvider"


class Files(Protocol):
    """The files of a checkpoint; implemented by ``Storage``."""

    @property
    def url(self) -> str: ...
    def list(self, prefix: str = "") -> Sequence[str]: ...
    def read(self, path: str) -> bytes: ...


@dataclass(frozen=True)
class QuerySource:
    """A source of the query by its index in the plan. ``name``: the name of its private log, also used in v2 logs. ``offset``:
    Spark's JSON; None if the source has no offset yet."""

    index: int
    name: str
    offset: str | None


@dataclass(frozen=True)
class QueryLog:
    """A query's progress when ``batch`` was committed.

    ``watermark_ms``: the watermark within the batch, up to which state was dropped and timers fired; ``next_watermark_ms``: the
    next batch's watermark. 0 means none. ``unfinished``: a later batch that was started but not committed. ``state_format``: the
    format of the state stores' files; 2 if the files have their own ids.
    """

    url: str
    query: str
    batch: int
    watermark_ms: int
    next_watermark_ms: int
    started_ms: int
    version: str
    settings: Mapping[str, str]
    sources: tuple[QuerySource, ...]
    unfinished: int | None
    state_format: int

    @property
    def provider(self) -> str:
        """The class name of its state stores, without the package."""
        return self.settings.get(_PROVIDER, _HDFS_PROVIDER).rpartition(".")[2]


def read_log(files: Files, batch: int | None = None) -> QueryLog:
    """The log up to a batch, by default the last committed one.

    Raises ConfigError if this is not a checkpoint, and for an unknown batch or log version; SavepointCorrupt for unreadable
    files.
    """
    commits, offsets = committed(files), _numbers(files, "offsets")
    if not offsets:
        raise ConfigError(
            f"{files.url} is not a checkpoint of a Structured Streaming query: it has no offsets/; give the query's "
            "checkpointLocation"
        )
    if not commits:
        raise ConfigError(
            f"{files.url}: the query has committed no batch yet (commits/ is empty), so there is nothing to import; let it "
            "finish its first batch, or start the new job without a savepoint"
        )
    chosen = commits[-1] if batch is None else batch
    both = sorted(set(commits) & set(offsets))
    if chosen not in both:
        raise ConfigError(
            f"{files.url}: batch {chosen} has {'no entry in offsets/' if chosen in commits else 'not been committed'}; "
            f"available are {both[0]} to {both[-1]}"
            if both
            else f"{files.url}: no batch is in both offsets/ and commits/; files have been removed"
        )
    version, metadata, lines = _entry(files, f"offsets/{chosen}", _OFFSET_VERSIONS)
    commit_version, commit, _ = _entry(files, f"commits/{chosen}", _COMMIT_VERSIONS)
    return QueryLog(
        url=files.url,
        query=query_id(files),
        batch=chosen,
        watermark_ms=int(metadata.get("batchWatermarkMs", 0)),
        next_watermark_ms=int(commit.get("nextBatchWatermarkMs", metadata.get("batchWatermarkMs", 0))),
        started_ms=int(metadata.get("batchTimestampMs", 0)),
        version=version,
        settings=dict(metadata.get("conf", {})),
        sources=_sources(files, chosen, version, lines, offsets),
        unfinished=max((number for number in offsets if number > commits[-1]), default=None) if batch is None else None,
        state_format=1 if commit_version == "v1" or not commit.get("stateUniqueIds") else 2,
    )


def committed(files: Files) -> list[int]:
    """The committed batches that are still in the log."""
    return _numbers(files, "commits")


def query_id(files: Files) -> str:
    """The query's id; empty if the file is missing."""
    try:
        return str(_json(_text(files, "metadata"), f"{files.url}/metadata").get("id", ""))
    except NotFound:
        return ""


def positions(files: Files, log: QueryLog, splits: Sequence[str], names: Mapping[int, str]) -> dict[str, SourcePosition]:
    """The positions of sources by uid. ``names``: uids by the sources' index. ``splits``: names of the splits that get the
    query's watermark."""
    # Spark closes a window that ends at t when the watermark is t, Flink when it is t - 1, the window's last millisecond.
    marks = {
        split: {"watermark_ms": log.next_watermark_ms - 1, "last_active_ms": log.started_ms, "count": 0}
        for split in splits
        if log.next_watermark_ms > 0
    }
    return {
        names[source.index]: SourcePosition.from_content(
            {"kind": "spark", "spark_offset": source.offset, "spark_log": _log(files, source), "splits": marks}
        )
        for source in log.sources
        if source.index in names
    }


def _log(files: Files, source: QuerySource) -> dict[str, str]:
    root = f"sources/{source.name}"
    names = [name.removeprefix(f"{root}/") for name in files.list(root)]
    wanted = needed_log_files(names, None if source.offset is None else file_log_end(source.offset))
    return {name: _text(files, f"{root}/{name}") for name in wanted}


def _sources(files: Files, batch: int, version: str, lines: Sequence[str], offsets: Sequence[int]) -> tuple[QuerySource, ...]:
    if version == "v1":
        return tuple(
            QuerySource(index, str(index), None if line == "-" else line)
            for index, line in enumerate(lines)
            if line or index < len(lines) - 1
        )
    found = _named_offsets(lines, f"{files.url}/offsets/{batch}")
    if batch - 1 in offsets:  # a paused or removed source stays known while one of the last two batches has it
        earlier_version, _, earlier = _entry(files, f"offsets/{batch - 1}", _OFFSET_VERSIONS)
        if earlier_version == "v2":
            found = {**_named_offsets(earlier, f"{files.url}/offsets/{batch - 1}"), **found}
    return tuple(QuerySource(index, name, offset) for index, (name, offset) in enumerate(found.items()))


def _named_offsets(lines: Sequence[str], where: str) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for line in filter(None, lines):
        name, colon, offset = line.partition(":")
        if not colon:
            raise SavepointCorrupt(f"{where}: the line {line!r} is not of the form NAME:OFFSET")
        found[name] = None if offset == "-" else offset
    return found


def _entry(files: Files, path: str, versions: Sequence[str]) -> tuple[str, dict[str, Any], list[str]]:
    """The version, metadata and remaining lines of a log entry."""
    where = f"{files.url}/{path}"
    version, *lines = _text(files, path).split("\n")
    if version not in versions:
        raise ConfigError(
            f"{where} has version {version!r}; forkpoint reads {', '.join(versions)}. Run a batch with a Spark version "
            "that forkpoint supports, or upgrade forkpoint"
        )
    return version, _json(lines[0], where) if lines else {}, lines[1:]


def _json(text: str, where: str) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError as error:
        raise SavepointCorrupt(f"{where} is damaged or truncated: {text[:80]!r} is not JSON ({error})") from error
    if not isinstance(found, dict):
        raise SavepointCorrupt(f"{where} is damaged: {text[:80]!r} is not a JSON object")
    return found


def _text(files: Files, path: str) -> str:
    try:
        return files.read(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise SavepointCorrupt(f"{files.url}/{path} is not text ({error}); forkpoint cannot save it") from error


def _numbers(files: Files, directory: str) -> list[int]:
    names = (path.rpartition("/")[2] for path in files.list(directory))
    return sorted(int(name) for name in names if name.isdigit())
