"""Files as a sink: each result is in a visible file exactly once.

On a file system, a writer stages its output in the final directory, under a hidden name,
``.part-<epoch>-<subtask>-<attempt>.g<generation>.<owner>.inprogress``; for other systems, see their modules. Once the epoch's
manifest names it, the commit renames it to ``part-<epoch>-<subtask>-<start of the attempt>.<ext>``, so that jobs, forks and
repeated runs can share a directory. ``owner`` identifies (job, uid of the sink), so that jobs that share a directory clean up
only their own files. ``generation`` identifies the run, so that an older run never touches a newer run's files.

All staged files must exist before the manifest is written. Then the first driver to publish a file renames it, in the order of
the manifest. So a missing file was published, by a killed run or another driver, and then removed by a reader; but if an
earlier file is still staged, the missing one is lost.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self, cast

from forkpoint.checkpoint.paths import escape
from forkpoint.connectors.files.builders import (
    BucketAssigner,
    BulkWriterFactory,
    Encoder,
    FileSinkBuilder,
    OutputFileConfig,
    check_delimiter,
    local_path,
)
from forkpoint.connectors.files.places import FileName, Location, SinkFiles, remote_url, sink_files
from forkpoint.connectors.files.writer import BucketedWriter
from forkpoint.connectors.formats.jsonable import TimestampFormat
from forkpoint.contract.sink import Sink, SinkContext, SinkWriter
from forkpoint.contract.source import JSON
from forkpoint.errors import ConfigError, NotFound, OutputLost, one_of
from forkpoint.types import TypeInformation, type_of
from forkpoint.types.variables import T

Format = Literal["parquet", "orc", "json", "csv", "text", "avro", "csv-layout"]
Bucket = Callable[[Any], str] | Sequence[str] | None
State = Literal["staged", "visible", "missing"]

ORC_COMPRESSIONS = ("zstd", "snappy", "zlib", "lz4", "none")
COMPRESSIONS = ("zstd", "snappy", "gzip", "brotli", "lz4", "none")
_JOB = "{job}"
_MAX_NAMES = 3  # in a message
_ENDINGS = {
    **{each: f".{each}" for each in ("parquet", "orc", "csv", "avro")},
    "json": ".jsonl",
    "text": ".txt",
    "csv-layout": ".csv",
}


@dataclass(frozen=True, eq=False)
class FileSink(Sink):
    """Writes one file for each epoch, subtask and bucket.

    Created by ``FileSink.parquet``, ``orc``, ``json``, ``csv`` or ``text``.

    ``path``: a directory of a local or shared file system, or a URL (``s3://``, ``gs://``, ``az://``, ``hdfs://``) with
    credentials from the environment; created when needed. The job's name replaces ``{job}``, so that a fork has its own
    directory.
    ``type``: the elements' type, which defines the columns; by default the stream's, or inferred from the first elements of
    each writer.
    ``bucket``: subdirectories. A function from an element to a relative path (``lambda e: f"{e.time:%Y-%m-%d}"``), or
    field names, for ``room=3/kind=motion/`` (the fields stay in the file as well).
    ``prefix`` of file names. Jobs that share a directory need different prefixes.
    ``suffix`` of file names; None for the format's.

    After a crash, the next start removes staged files that no manifest names (they are hidden), and completes an interrupted
    commit.

    Raises ``ConfigError`` at the start if another job under the same state root writes to this directory with this prefix,
    in the task if a file of this name already exists, and before an epoch is committed if the driver does not see a staged
    file; ``OutputLost`` at a commit if a staged file is lost.
    """

    path: Location
    format: Format
    type: TypeInformation | None = None
    bucket: Bucket = None
    prefix: str = "part"
    options: dict[str, Any] = field(default_factory=dict)
    suffix: str | None = None

    @classmethod
    def parquet(
        cls, path: str | Path, type: Any = None, *, bucket: Bucket = None, prefix: str = "part", compression: str = "zstd"
    ) -> Self:
        """Parquet files. Columns are written without being converted to Python objects."""
        codec = one_of("FileSink.parquet: compression", compression and str(compression).lower(), COMPRESSIONS)
        return cls._make(path, "parquet", type, bucket, prefix, compression=codec)

    @classmethod
    def orc(
        cls, path: str | Path, type: Any = None, *, bucket: Bucket = None, prefix: str = "part", compression: str = "zstd"
    ) -> Self:
        """ORC files. ORC has no times of day and durations, and times from 1677 to 2262."""
        codec = one_of("FileSink.orc: compression", compression and str(compression).lower(), ORC_COMPRESSIONS)
        return cls._make(path, "orc", type, bucket, prefix, compression="uncompressed" if codec == "none" else codec)

    @classmethod
    def json(
        cls,
        path: str | Path,
        type: Any = None,
        *,
        bucket: Bucket = None,
        prefix: str = "part",
        timestamp_format: TimestampFormat = "ISO-8601",
    ) -> Self:
        """JSON lines. Records become objects; times ISO 8601, bytes base64, Decimal and UUID strings, NaN null.
        ``timestamp_format``: "SQL" writes timestamps as tables do, with a space."""
        return cls._make(path, "json", type, bucket, prefix, timestamp_format=timestamp_format)

    @classmethod
    def csv(
        cls,
        path: str | Path,
        type: Any = None,
        *,
        bucket: Bucket = None,
        prefix: str = "part",
        delimiter: str = ",",
        header: bool = True,
    ) -> Self:
        """CSV, with ``header`` after a line of column names. Only records of plain fields."""
        check_delimiter("FileSink.csv", delimiter)
        return cls._make(path, "csv", type, bucket, prefix, delimiter=delimiter, header=header)

    @classmethod
    def text(cls, path: str | Path, type: Any = None, *, bucket: Bucket = None, prefix: str = "part") -> Self:
        """``str(element)`` on a line."""
        return cls._make(path, "text", type, bucket, prefix)

    @classmethod
    def for_row_format(cls, base_path: str, encoder: Encoder) -> FileSinkBuilder:
        """PyFlink's way: a builder of a sink that writes each element as a line."""
        if not isinstance(encoder, Encoder):
            raise ConfigError(f"FileSink.for_row_format takes an Encoder, not {encoder!r}; use Encoder.simple_string_encoder()")
        return cls._builder(base_path, BulkWriterFactory("text", None, {"charset": encoder.charset_name}))

    @classmethod
    def for_bulk_format(cls, base_path: str, writer_factory: BulkWriterFactory) -> FileSinkBuilder:
        """PyFlink's way: a builder of a sink that writes files of a format, such as ``CsvBulkWriters.for_schema(schema)``."""
        if not isinstance(writer_factory, BulkWriterFactory):
            raise ConfigError(
                f"FileSink.for_bulk_format takes a factory from CsvBulkWriters or AvroBulkWriters, not {writer_factory!r}; for "
                "other formats use FileSink.parquet or json"
            )
        return cls._builder(base_path, writer_factory)

    @classmethod
    def _builder(cls, base_path: str, writer: BulkWriterFactory) -> FileSinkBuilder:
        def make(assigner: BucketAssigner, files: OutputFileConfig) -> FileSink:
            path, kind, bucket = local_path(str(base_path)), cast("Format", writer.kind), assigner.bucket
            sink = cls._make(path, kind, writer.type, bucket, files.part_prefix, **writer.options)
            return replace(sink, suffix=files.part_suffix)

        return FileSinkBuilder(make)

    @classmethod
    def _make(cls, path: str | Path, kind: Format, type: Any, bucket: Bucket, prefix: str, **options: Any) -> Self:
        if not isinstance(prefix, str):
            raise ConfigError(f"FileSink: prefix is {prefix!r}; give a text, such as 'part'")
        if not (bucket is None or callable(bucket) or isinstance(bucket, str | Sequence)):
            raise ConfigError(f"FileSink: bucket is {bucket!r}; give a function of an element, or names of fields")
        if not prefix or "/" in prefix or prefix.startswith((".", "_")):
            raise ConfigError(f"FileSink: prefix {prefix!r} makes hidden files or directories; start with a letter")
        if isinstance(bucket, str):
            bucket = (bucket,)
        # Tasks may have another working directory.
        location = remote_url(path, "FileSink") or Path(os.path.abspath(path))
        return cls(location, kind, None if type is None else type_of(type), bucket, prefix, options)

    def for_job(self, job: str) -> Self:
        if _JOB not in str(self.path):
            return self
        path = str(self.path).replace(_JOB, escape(job))
        return replace(self, path=path if isinstance(self.path, str) else Path(path))

    @property
    def place(self) -> str | None:
        return f"{self.path}/{self.prefix}-*"

    @property
    def shared_directory(self) -> str | None:
        return None if isinstance(self.path, str) else str(self.path)

    def create_writer(self, context: SinkContext) -> SinkWriter:
        name = FileName(
            stem=f"{self.prefix}-{context.epoch:012d}-{context.subtask}",
            attempt=context.attempt,
            generation=context.generation,
            owner=_owner(context.uid, context.job),
            ending=_ENDINGS[self.format] if self.suffix is None else self.suffix,
        )
        return BucketedWriter(self.path, name, self.format, self.type, self.bucket, self.options)

    def check(self, committables: list[JSON]) -> None:
        files = sink_files(self.path)
        files.each(files.check, committables)

    def commit(self, committables: list[JSON], epoch: int) -> None:
        if not committables:
            return
        files = sink_files(self.path)
        states = _states(files, committables)
        if lost := _lost(files, committables, states, epoch):
            raise OutputLost(
                f"epoch {epoch} is committed, but {len(lost)} of its {len(committables)} files were removed before they were "
                f"published: {_names(files, lost)}. No more of the epoch is published until they exist: restore them, or create "
                "empty ones to continue without that output; or restart from an earlier savepoint to compute it again"
            )
        if "staged" in states:
            files.begin(committables, epoch)
        missing: list[JSON] = []
        published: list[JSON] = []
        for portion in _portions(files, list(zip(committables, states, strict=True))):
            missing += [committable for committable, state in portion if state == "missing"]
            staged = [committable for committable, state in portion if state == "staged"]
            for committable, outcome in zip(staged, files.each(lambda c: files.publish(c, epoch), staged), strict=True):
                if outcome == "published":
                    published.append(committable)
                elif outcome == "missing":
                    missing.append(committable)
        files.published_all(published)
        if missing:
            raise NotFound(
                f"{len(missing)} of the {len(committables)} files of epoch {epoch} are neither staged nor published: "
                f"{_names(files, missing)}"
            )

    def cleanup(self, uid: str, job: str, generation: int) -> None:
        sink_files(self.path).cleanup(_owner(uid, job), generation)


def _states(files: SinkFiles, committables: Sequence[JSON]) -> list[State]:
    """The state of each file. Checks the last file first."""

    def state(committable: JSON) -> State:
        if files.is_staged(committable):
            return "staged"
        return "visible" if files.is_visible(committable) else "missing"

    portions = [files.each(state, portion) for portion in reversed(_portions(files, committables))]
    return [state for portion in reversed(portions) for state in portion]


def _lost(files: SinkFiles, committables: Sequence[JSON], states: Sequence[State], epoch: int) -> list[JSON]:
    """Missing files that cannot have been published: publishing had not begun, or an earlier file was still staged when it was
    checked, after them."""
    missing = [number for number, state in enumerate(states) if state == "missing"]
    if missing and not files.begun(committables, epoch):
        return [committables[number] for number in missing]
    first = states.index("staged") // files.at_once if "staged" in states else len(states)
    return [committables[number] for number in missing if number // files.at_once > first]


def _portions(files: SinkFiles, committables: Sequence[T]) -> list[Sequence[T]]:
    """The files that are published concurrently, in order."""
    return [committables[start : start + files.at_once] for start in range(0, len(committables), files.at_once)]


def _names(files: SinkFiles, committables: Sequence[JSON]) -> str:
    names = ", ".join(files.name(committable) for committable in committables[:_MAX_NAMES])
    return names if len(committables) <= _MAX_NAMES else f"{names} and {len(committables) - _MAX_NAMES} more"


def _owner(uid: str, job: str) -> str:
    return format(zlib.crc32(f"{job}\n{uid}".encode()), "08x")
