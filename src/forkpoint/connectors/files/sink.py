"""Files as a sink: each result is in a visible file exactly once.

A writer stages its output under a hidden name, ``.part-<epoch>-<subtask>-<attempt>.g<generation>.<owner>.inprogress``,
in its final directory. Once the epoch's manifest names it, the commit renames it to
``part-<epoch>-<subtask>-<start of the attempt>.<ext>``: jobs, forks and repeated runs can share a directory.
``owner`` identifies (job, uid of the sink), so that jobs that share a directory clean up only their own files; ``generation``
identifies the run, so that an older one leaves a newer one's files alone.

Before the manifest is written, all staged files must exist. From then on each is renamed once, by the first to publish it, in
the order of the manifest. So a missing file was published, by a killed run or another driver, and then removed by a reader;
unless an earlier one is still staged: then it is lost.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

from forkpoint.checkpoint.paths import escape
from forkpoint.connectors.base import JSON, Sink, SinkContext, SinkWriter
from forkpoint.connectors.files.builders import BucketAssigner, Encoder, OutputFileConfig, RowFormatBuilder, local_path
from forkpoint.connectors.files.writing import BucketedWriter
from forkpoint.errors import ConfigError, NotFound, OutputLost, StorageError
from forkpoint.storage.base import sync_directory
from forkpoint.types import TypeInformation, type_of

Format = Literal["parquet", "json", "csv", "text"]
Bucket = Callable[[Any], str] | Sequence[str] | None

_JOB = "{job}"
_SHOWN = 3  # files in a message
_ENDINGS = {"parquet": ".parquet", "json": ".jsonl", "csv": ".csv", "text": ".txt"}
_STAGED = re.compile(r"\..*-\d{12}-\d+-[^/]*?(?:\.g(\d+))?\.([0-9a-f]{8})\.inprogress")  # once without generation


@dataclass(frozen=True, eq=False)
class FileSink(Sink):
    """Writes one file for each epoch, subtask and bucket.

    Created by ``FileSink.parquet``, ``json``, ``csv`` or ``text``.

    ``path``: a directory of the local file system, or one that is mounted everywhere; created when needed. ``{job}`` in it
    stands for the job's name, so that a fork has its own directory.
    ``type``: the elements' type, which defines the columns; by default the stream's, else one inferred from the first
    elements of each writer.
    ``bucket``: subdirectories. A function from an element to a relative path (``lambda e: f"{e.time:%Y-%m-%d}"``), or
    field names, for ``room=3/kind=motion/`` (the fields stay in the file as well).
    ``prefix``: of file names. Jobs that share a directory need different ones.
    ``suffix``: of file names; None for the format's.

    After a crash, the next start removes staged files that no manifest names (they are hidden), and completes an interrupted
    commit.

    Raises ``ConfigError`` at the start if another job under the same state root writes to this directory with this prefix,
    in the task if a file of this name already exists, and before an epoch is committed if the driver does not see a staged
    file; ``OutputLost`` at a commit if a staged file is lost.
    """

    path: Path
    format: Format
    type: TypeInformation | None = None
    bucket: Bucket = None
    prefix: str = "part"
    options: dict[str, Any] = field(default_factory=dict)
    suffix: str | None = None

    @classmethod
    def parquet(
        cls,
        path: str | Path,
        type: Any = None,
        *,
        bucket: Bucket = None,
        prefix: str = "part",
        compression: str = "zstd",
    ) -> Self:
        """Parquet files. Columns are written without being converted to Python objects."""
        return cls._make(path, "parquet", type, bucket, prefix, compression=compression)

    @classmethod
    def json(cls, path: str | Path, type: Any = None, *, bucket: Bucket = None, prefix: str = "part") -> Self:
        """JSON lines. Records become objects; times ISO 8601, bytes base64, Decimal and UUID strings, NaN null."""
        return cls._make(path, "json", type, bucket, prefix)

    @classmethod
    def csv(
        cls, path: str | Path, type: Any = None, *, bucket: Bucket = None, prefix: str = "part", delimiter: str = ","
    ) -> Self:
        """CSV with a line of column names. Only records of plain fields."""
        return cls._make(path, "csv", type, bucket, prefix, delimiter=delimiter)

    @classmethod
    def text(cls, path: str | Path, type: Any = None, *, bucket: Bucket = None, prefix: str = "part") -> Self:
        """``str(element)`` on a line."""
        return cls._make(path, "text", type, bucket, prefix)

    @classmethod
    def for_row_format(cls, base_path: str, encoder: Encoder) -> RowFormatBuilder:
        """PyFlink's way: a builder of a sink that writes each element as a line."""
        if not isinstance(encoder, Encoder):
            raise ConfigError(
                f"FileSink.for_row_format takes an Encoder, not {encoder!r}; use Encoder.simple_string_encoder()"
            )

        def make(assigner: BucketAssigner, files: OutputFileConfig) -> FileSink:
            path, prefix = local_path(str(base_path)), files.part_prefix
            sink = cls._make(path, "text", None, assigner.bucket, prefix, charset=encoder.charset_name)
            return replace(sink, suffix=files.part_suffix)

        return RowFormatBuilder(make)

    @classmethod
    def _make(cls, path: str | Path, kind: Format, type: Any, bucket: Bucket, prefix: str, **options: Any) -> Self:
        if "://" in str(path):
            raise ConfigError(
                f"FileSink: {path} is a URL; give a directory of the local file system, or use a DataFrameSink "
                "for object stores"
            )
        if not prefix or "/" in prefix or prefix.startswith((".", "_")):
            raise ConfigError(f"FileSink: prefix {prefix!r} makes hidden files or directories; start with a letter")
        if isinstance(bucket, str):
            bucket = (bucket,)
        absolute = Path(os.path.abspath(path))  # tasks may have another working directory
        return cls(absolute, kind, None if type is None else type_of(type), bucket, prefix, options)

    def for_job(self, job: str) -> Self:
        path = str(self.path)
        return replace(self, path=Path(path.replace(_JOB, escape(job)))) if _JOB in path else self

    @property
    def place(self) -> str:
        return f"{self.path}/{self.prefix}-*"

    @property
    def shared_directory(self) -> str:
        return str(self.path)

    def create_writer(self, context: SinkContext) -> SinkWriter:
        owner = _owner(context.uid, context.job)
        stem = f"{self.prefix}-{context.epoch:012d}-{context.subtask}"
        ending = _ENDINGS[self.format] if self.suffix is None else self.suffix
        return BucketedWriter(
            self.path,
            staged_name=f".{stem}-{context.attempt}.g{context.generation}.{owner}.inprogress",
            final_name=f"{stem}-{context.attempt[:8]}{ending}",
            kind=self.format,
            type=self.type,
            bucket=self.bucket,
            options=self.options,
        )

    def check(self, committables: list[JSON]) -> None:
        for committable in committables:
            staged = Path(committable["staged"])
            if not staged.exists():
                raise ConfigError(
                    f"FileSink: a task has written {staged}, but the driver, which publishes it, does not see it. "
                    f"{self.path} must be the same directory for the driver and all executors: give one that is mounted "
                    "on every machine, or use a DataFrameSink for an object store. The epoch was not committed: nothing is lost"
                )

    def commit(self, committables: list[JSON], epoch: int) -> None:
        files = [(Path(committable["staged"]), Path(committable["final"])) for committable in committables]
        if lost := _lost(files):
            raise OutputLost(
                f"epoch {epoch} is committed, but {len(lost)} of its {len(files)} files were removed before they were "
                f"published: {_names(lost)}. Nothing more of it is published until they exist: restore them, or create empty "
                "ones to continue without that output; or restart from an earlier savepoint to compute it again"
            )
        missing: list[Path] = []
        directories = set()
        for staged, final in files:
            match _publish(staged, final, epoch):
                case "published":
                    directories.add(final.parent)
                case "missing":
                    missing.append(final)
        for directory in directories:
            sync_directory(directory)
        if missing:
            raise NotFound(
                f"{len(missing)} of the {len(files)} files of epoch {epoch} are neither staged nor published: {_names(missing)}"
            )

    def cleanup(self, uid: str, job: str, generation: int) -> None:
        owner = _owner(uid, job)
        for directory, _, names in os.walk(self.path):
            for name in names:
                match = _STAGED.fullmatch(name)
                if match and match[2] == owner and int(match[1] or 0) <= generation:
                    Path(directory, name).unlink(missing_ok=True)


def _lost(files: Sequence[tuple[Path, Path]]) -> list[Path]:
    """Missing files that cannot have been published, as an earlier one was seen staged after they were seen missing. Hence the
    order, from last to first."""
    missing: list[Path] = []
    lost: list[Path] = []
    for staged, final in reversed(files):
        if staged.exists():
            lost, missing = lost + missing, []
        elif not final.exists():
            missing.append(final)
    return lost[::-1]


def _names(files: Sequence[Path]) -> str:
    shown = ", ".join(map(str, files[:_SHOWN]))
    return shown if len(files) <= _SHOWN else f"{shown} and {len(files) - _SHOWN} more"


def _publish(staged: Path, final: Path, epoch: int) -> Literal["published", "done", "missing"]:
    """Rename a file, unless that was done before."""
    if final.exists():
        if not staged.exists():
            return "done"
        raise StorageError(
            f"{final} already exists, so {staged.name} of epoch {epoch} cannot be renamed to it. Another job or another "
            "history of this job writes here: move its files away and start again, and give each job its own directory "
            "or prefix="
        )
    try:
        staged.rename(final)
    except FileNotFoundError:  # also if another driver has just published it
        return "done" if final.exists() else "missing"
    return "published"


def _owner(uid: str, job: str) -> str:
    return format(zlib.crc32(f"{job}\n{uid}".encode()), "08x")
