"""Reads source positions from the checkpoint directory of a stateless streaming query, and writes them to a new one.

Spark keeps `offsets/<batch>` (a version line, metadata, and per source one line, "-" for none) and a private log of each
source below `sources/<ordinal>`. With a new query id, batch 0 committed at given offsets, and the private logs, a query
continues exactly there with batch 1, even if the order of its sources has changed. If the offsets of batch 1 exist, too, Spark
assumes that this batch was interrupted, and repeats it exactly up to them.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from forkpoint.checkpoint.manifest import SourcePosition
from forkpoint.errors import ConfigError, SavepointCorrupt

_NO_OFFSET = "-"


def craft(directory: Path, positions: Sequence[SourcePosition | None], stops: Sequence[SourcePosition] = ()) -> int:
    """Makes `directory` a checkpoint from which a query continues at the positions of its sources, in order; None starts a
    source from its beginning. With `stops`, the first batch ends exactly there.

    Without any position, the directory stays empty, as for a new query. Returns the last batch written, or -1.
    """
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    begin = [position or SourcePosition(kind="spark") for position in positions]
    batches = [batch for batch in (begin, stops) if any(p.spark_offset is not None or p.spark_log for p in batch)]
    if not batches:
        return -1
    _write(directory / "metadata", json.dumps({"id": str(uuid.uuid4())}))
    if batches[0] is begin:
        _write(directory / "commits" / "0", "v1\n{}")
    for number, batch in enumerate(batches):
        _write_batch(directory, number, batch)
    return len(batches) - 1


def _write_batch(directory: Path, batch: int, positions: Sequence[SourcePosition]) -> None:
    """Writes the offsets at a batch's end, and the sources' logs up to them."""
    lines = ["v1", json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}})]
    for position in positions:
        if position.spark_offset is not None and "\n" in position.spark_offset:
            raise SavepointCorrupt(f"a Spark offset has a line break, which an offset log cannot hold: {position.spark_offset!r}")
        lines.append(_NO_OFFSET if position.spark_offset is None else position.spark_offset)
    _write(directory / "offsets" / str(batch), "\n".join(lines))
    for ordinal, position in enumerate(positions):
        for name, text in position.spark_log.items():
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                raise SavepointCorrupt(f"the log of a Spark source names a file outside of its directory: {name!r}")
            _write(directory / "sources" / str(ordinal) / name, text)


def check_follows(uid: str, position: SourcePosition | None, stop: SourcePosition) -> None:
    """Raises ConfigError if the files before `position` and `stop` differ: Spark numbers files in the order of arrival."""
    begin = None if position is None else file_log_end(position.spark_offset or "")
    if position is None or begin is None:
        return
    end = file_log_end(stop.spark_offset or "")
    if end is None or end < begin or _read_until(stop, begin) != _read_until(position, begin):
        raise ConfigError(
            f"source {uid!r} cannot be read from this run's start to the savepoint at which it must stop: the files before "
            "them differ. Start from a savepoint from which that savepoint's job was restored, or from nothing (-s none)"
        )


def _read_until(position: SourcePosition, entry: int) -> set[str]:
    """The files in a file source's log up to an entry."""
    texts = [text.split("\n")[1:] for text in position.spark_log.values()]
    files = [json.loads(line) for lines in texts for line in lines if line]
    return {file["path"] for file in files if file["batchId"] <= entry}


class CheckpointReader:
    """Reads the positions at a batch's end from a running query's directory. Reads each log file once, because it never
    changes."""

    def __init__(self, directory: Path, sources: int) -> None:
        self._directory = directory
        self._sources = sources
        self._texts: list[dict[str, tuple[int, str]]] = [{} for _ in range(sources)]

    def positions(self, batch: int) -> list[SourcePosition]:
        """The position of each source, in the plan's order, after a batch whose offsets Spark has logged."""
        path = self._directory / "offsets" / str(batch)
        version, _, *offsets = path.read_text(encoding="utf-8").split("\n")
        if version != "v1":
            raise ConfigError(
                f"Spark writes offset logs of version {version}, which forkpoint cannot read; unset "
                "spark.sql.streaming.offsetLog.formatVersion and "
                "spark.sql.streaming.queryEvolution.enableSourceEvolution"
            )
        if len(offsets) != self._sources:
            raise ConfigError(
                f"{path} lists {len(offsets)} sources, the job has {self._sources}; give each uid a stream of its own"
            )
        return [
            SourcePosition(
                kind="spark", spark_offset=None if offset == _NO_OFFSET else offset, spark_log=self._log(ordinal, offset)
            )
            for ordinal, offset in enumerate(offsets)
        ]

    def _log(self, ordinal: int, offset: str) -> dict[str, str]:
        root = self._directory / "sources" / str(ordinal)
        cached, current = self._texts[ordinal], dict[str, tuple[int, str]]()
        names = [path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()]
        for name in needed_log_files(names, file_log_end(offset)):
            size = (root / name).stat().st_size
            known = cached.get(name)
            current[name] = known if known is not None and known[0] == size else (size, _read(root / name))
        self._texts[ordinal] = current
        return {name: text for name, (_, text) in current.items()}


def file_log_end(offset: str) -> int | None:
    """The last log entry that a file source's offset covers; None for the offset of any other source."""
    try:
        value = json.loads(offset)
    except ValueError:
        return None
    end = value.get("logOffset") if isinstance(value, dict) and len(value) == 1 else None
    return end if isinstance(end, int) else None


def needed_log_files(names: Sequence[str], end: int | None) -> list[str]:
    """The files of a source's log that a restore needs.

    For a file source: the entries up to `end`, starting with the last compacted one, which includes all earlier entries.
    For other sources: all files that are not hidden or temporary.
    """
    visible = sorted(name for name in names if not _hidden(name))
    if end is None:
        return visible
    entries = {name: int(name.removesuffix(".compact")) for name in visible if name.removesuffix(".compact").isdigit()}
    begin = max((entry for name, entry in entries.items() if name.endswith(".compact") and entry <= end), default=-1)
    return [name for name, entry in entries.items() if begin < entry <= end or name == f"{begin}.compact"]


def _hidden(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return any(part.startswith((".", "_temporary")) for part in parts) or name.endswith((".crc", ".tmp"))


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"the private log of a Spark source, {path}, is not text ({error}); forkpoint cannot save its position"
        ) from error


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("utf-8"))
