"""Files in a directory, or on an object store or HDFS, as a source: existing ones, or new ones as they appear."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Self, TypedDict, Unpack, overload

from forkpoint.connectors.files.builders import FileSourceBuilder, StreamFormat, check_delimiter, local_path
from forkpoint.connectors.files.enumerator import FileEnumerator
from forkpoint.connectors.files.formats import CsvFormat, FileFormat, JsonFormat, ParquetFormat, TextFormat
from forkpoint.connectors.files.listing import Listing, SeenFiles, glob_matcher, split_glob, split_url_glob
from forkpoint.connectors.files.orc import OrcFormat
from forkpoint.connectors.files.places import FileListing, Location, remote_url, source_files
from forkpoint.connectors.files.reader import FileReader
from forkpoint.connectors.formats.reading import OnParseError, check_on_parse_error, side_outputs_of
from forkpoint.contract.source import JSON, Source, SourceReader, SplitEnumerator
from forkpoint.errors import ConfigError
from forkpoint.functions import OutputTag
from forkpoint.types import TypeInformation, TypeLike, Types, type_of
from forkpoint.types.kinds.records import RecordType
from forkpoint.types.variables import R, T


class _Options(TypedDict, total=False):
    bounded: bool
    pattern: str | None
    max_file_age: timedelta | None
    max_remembered_files: int
    on_parse_error: OnParseError


class _CsvOptions(_Options, total=False):
    delimiter: str
    header: bool
    newlines_in_values: bool


@dataclass(frozen=True)
class FileSource(Source[T]):
    """Reads the files below a directory; created by ``FileSource.json``, ``csv``, ``parquet``, ``orc`` or ``text``.

    All files are one split: their records are ordered by (modification time, path, offset in the file).

    ``path``: a directory (with all its subdirectories), a file, or a glob (``*``, ``?``, ``[…]``, ``**`` across
    directories); existing names with such characters are literal. Or a URL of these (``s3://``, ``gs://``, ``az://``,
    ``hdfs://``), with credentials from the environment. Files and directories whose names start with ``.`` or ``_`` are hidden.
    ``type``: the elements' type, usually a record; columns match by name. Without a type, elements are dicts as
    in the file (CSV: of str).
    ``bounded``: read the files that exist at the first start, then finish. Otherwise read files as they appear.
    ``pattern`` matches file names (``"*.json"``), or paths below the directory (``"*/part-*.csv"``).
    ``max_file_age``: ignore late files, modified longer than this before the newest file that was read.
    ``max_remembered_files``: the number of recent file names that the position keeps to know which files were read, at about 15
    bytes per file in every checkpoint; late files that are older than all of these are ignored, too. Ignored files are logged as
    warnings, and counted in the run's status.
    ``on_parse_error``: ``"fail"``; ``"skip"`` to log and skip a record that cannot be read; or an
    ``OutputTag("…", DeadLetter)`` to send it to that side output, which ``get_side_output`` reads.

    A file must be complete when it appears and must not change: write it under a hidden name, then rename it. Its path
    identifies it: content that is appended or overwritten later is not read. A file must stay until the epoch
    that reads its end is committed.

    After a crash, reading resumes at the exact byte or row, because the manifest contains positions.

    Errors: ``ConfigError`` for a missing path, ``RecordParseError`` with file, line and record, ``StorageError`` for a file
    that vanished or shrank before it was read completely.
    """

    base: Location
    format: FileFormat
    type: TypeInformation[T] | None
    pattern: str | None = None
    is_bounded: bool = False
    max_file_age: timedelta | None = None
    max_remembered_files: int = 2048
    on_parse_error: OnParseError = "fail"

    def __post_init__(self) -> None:
        if not isinstance(self.base, Path | str) or not isinstance(self.format, FileFormat):
            raise ConfigError("create a FileSource with FileSource.json(), csv(), parquet(), orc() or text()")

    @overload
    @classmethod
    def json(cls, path: str | Path, type: TypeLike[R], **options: Unpack[_Options]) -> FileSource[R]: ...
    @overload
    @classmethod
    def json(cls, path: str | Path, type: None = None, **options: Unpack[_Options]) -> FileSource[dict[str, Any]]: ...
    @overload
    @classmethod
    def json(cls, path: str | Path, type: Any, **options: Unpack[_Options]) -> FileSource[Any]: ...
    @classmethod
    def json(
        cls,
        path: str | Path,
        type: Any = None,
        *,
        bounded: bool = False,
        pattern: str | None = None,
        max_file_age: timedelta | None = None,
        max_remembered_files: int = 2048,
        on_parse_error: OnParseError = "fail",
    ) -> FileSource[Any]:
        """JSON lines. Keys that the type lacks are ignored; missing ones get the field's default."""
        return cls._make(path, JsonFormat(), type, pattern, bounded, max_file_age, max_remembered_files, on_parse_error)

    @overload
    @classmethod
    def csv(cls, path: str | Path, type: TypeLike[R], **options: Unpack[_CsvOptions]) -> FileSource[R]: ...
    @overload
    @classmethod
    def csv(cls, path: str | Path, type: None = None, **options: Unpack[_CsvOptions]) -> FileSource[dict[str, Any]]: ...
    @overload
    @classmethod
    def csv(cls, path: str | Path, type: Any, **options: Unpack[_CsvOptions]) -> FileSource[Any]: ...
    @classmethod
    def csv(
        cls,
        path: str | Path,
        type: Any = None,
        *,
        bounded: bool = False,
        pattern: str | None = None,
        delimiter: str = ",",
        header: bool = True,
        newlines_in_values: bool = False,
        max_file_age: timedelta | None = None,
        max_remembered_files: int = 2048,
        on_parse_error: OnParseError = "fail",
    ) -> FileSource[Any]:
        """CSV. ``header``: the first line names the columns; otherwise the columns are the type's fields in order.

        An empty value is None if the field may be None (and is not a str). ``newlines_in_values`` allows line ends in quoted
        values, but then one task reads a whole file.
        """
        check_delimiter("FileSource.csv", delimiter)
        if not header and type is None:
            raise ConfigError("FileSource.csv: header=False needs a type, which names the columns")
        file_format = CsvFormat(delimiter, header, newlines_in_values)
        return cls._make(path, file_format, type, pattern, bounded, max_file_age, max_remembered_files, on_parse_error)

    @overload
    @classmethod
    def parquet(cls, path: str | Path, type: TypeLike[R], **options: Unpack[_Options]) -> FileSource[R]: ...
    @overload
    @classmethod
    def parquet(cls, path: str | Path, type: None = None, **options: Unpack[_Options]) -> FileSource[dict[str, Any]]: ...
    @overload
    @classmethod
    def parquet(cls, path: str | Path, type: Any, **options: Unpack[_Options]) -> FileSource[Any]: ...
    @classmethod
    def parquet(
        cls,
        path: str | Path,
        type: Any = None,
        *,
        bounded: bool = False,
        pattern: str | None = None,
        max_file_age: timedelta | None = None,
        max_remembered_files: int = 2048,
        on_parse_error: OnParseError = "fail",
    ) -> FileSource[Any]:
        """Parquet. Reads only the type's columns, and casts them if that is lossless."""
        return cls._make(path, ParquetFormat(), type, pattern, bounded, max_file_age, max_remembered_files, on_parse_error)

    @classmethod
    def orc(
        cls,
        path: str | Path,
        type: Any = None,
        *,
        bounded: bool = False,
        pattern: str | None = None,
        max_file_age: timedelta | None = None,
        max_remembered_files: int = 2048,
        on_parse_error: OnParseError = "fail",
    ) -> FileSource[Any]:
        """ORC. Reads only the type's columns, and casts them if that is lossless; one task reads a whole file."""
        return cls._make(path, OrcFormat(), type, pattern, bounded, max_file_age, max_remembered_files, on_parse_error)

    @classmethod
    def text(
        cls,
        path: str | Path,
        *,
        bounded: bool = False,
        pattern: str | None = None,
        max_file_age: timedelta | None = None,
        max_remembered_files: int = 2048,
        on_parse_error: OnParseError = "fail",
    ) -> FileSource[str]:
        """Lines of UTF-8 text as str, without their line ends; includes empty lines."""
        return cls._make(path, TextFormat(), Types.STRING(), pattern, bounded, max_file_age, max_remembered_files, on_parse_error)

    @classmethod
    def for_record_stream_format(cls, stream_format: StreamFormat, *paths: str) -> FileSourceBuilder:
        """PyFlink's way: a builder of a source in this format. ConfigError for more than one path."""
        if not isinstance(stream_format, StreamFormat):
            raise ConfigError(
                f"FileSource.for_record_stream_format takes StreamFormat.text_line_format(), not {stream_format!r}; for other "
                "formats use FileSource.json, csv or parquet"
            )
        if len(paths) != 1:
            raise ConfigError(
                f"FileSource.for_record_stream_format: {len(paths)} paths; give one file, directory or glob, or use one source "
                "per path and union their streams"
            )
        path, file_format, type = local_path(str(paths[0])), stream_format.format, stream_format.type
        return FileSourceBuilder(lambda bounded: cls._make(path, file_format, type, None, bounded, None, 2048, "fail"))

    @classmethod
    def for_bulk_file_format(cls, bulk_format: StreamFormat, *paths: str) -> FileSourceBuilder:
        """Like ``for_record_stream_format``, for PyFlink's columnar formats."""
        return cls.for_record_stream_format(bulk_format, *paths)

    @classmethod
    def _make(
        cls,
        path: str | Path,
        file_format: FileFormat,
        type: Any,
        pattern: str | None,
        bounded: bool,
        max_file_age: timedelta | None,
        max_remembered_files: int,
        on_parse_error: OnParseError,
    ) -> FileSource[Any]:
        check_on_parse_error("FileSource", on_parse_error)
        if max_file_age is not None and not (isinstance(max_file_age, timedelta) and max_file_age > timedelta()):
            raise ConfigError(f"FileSource: max_file_age is {max_file_age!r}; give a timedelta above 0, or None")
        if max_remembered_files < 1:
            raise ConfigError(f"FileSource: max_remembered_files is {max_remembered_files}; give at least 1")
        url = remote_url(path, "FileSource")
        base, glob = split_glob(str(path)) if url is None else split_url_glob(url)
        if glob is not None and pattern is not None:
            raise ConfigError(f"FileSource: {path} is a glob already; leave out pattern={pattern!r}")
        if glob is not None and "/" not in glob:
            glob = "./" + glob  # only in this directory, as in a shell
        pattern = glob or pattern
        if pattern is not None:
            glob_matcher(pattern)
        declared = None if type is None else type_of(type)
        return cls(base, file_format, declared, pattern, bounded, max_file_age, max_remembered_files, on_parse_error)

    def as_bounded(self) -> Self:
        """The same source, bounded: it reads the files that exist at the first start, then finishes."""
        return replace(self, is_bounded=True)

    def output_type(self) -> TypeInformation[T] | None:
        return self.type

    def projected(self, type: RecordType) -> FileSource[Any] | None:
        by_name = not isinstance(self.format, CsvFormat) or (self.format.header and self.format.layout is None)
        return replace(self, type=type) if by_name and self.on_parse_error == "fail" else None

    @property
    def side_outputs(self) -> Collection[OutputTag[Any]]:
        return side_outputs_of(self.on_parse_error)

    @property
    def bounded(self) -> bool:
        return self.is_bounded

    def create_enumerator(self, position: JSON | None) -> SplitEnumerator:
        listing: FileListing
        if isinstance(self.base, str):
            from forkpoint.connectors.files.remote import RemoteListing

            always_full = self.max_file_age is not None
            listing = RemoteListing(self.base, self.pattern, always_full, files_between=self.max_remembered_files // 2)
        elif self.base.exists():
            listing = Listing(self.base, self.pattern)
        else:
            raise ConfigError(f"FileSource: {self.base} does not exist; create the directory, or correct the path")
        age = self.max_file_age
        return FileEnumerator(
            source_files(self.base),
            listing,
            self.format,
            bounded=self.is_bounded,
            seen=SeenFiles(self.max_remembered_files, None if age is None else age // timedelta(microseconds=1) * 1000),
            position=position,
        )

    def create_reader(self) -> SourceReader[T]:
        return FileReader(self.base, self.format, self.type, self.on_parse_error)
