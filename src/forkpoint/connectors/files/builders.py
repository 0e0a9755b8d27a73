"""PyFlink's builders of file sources and sinks, and their settings.

FileSink.for_row_format("out/", Encoder.simple_string_encoder()).with_rolling_policy(…).build()
FileSource.for_record_stream_format(StreamFormat.text_line_format(), "in/").build()
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn
from zoneinfo import ZoneInfo

from forkpoint.connectors.files.formats import FileFormat, TextFormat
from forkpoint.errors import ConfigError
from forkpoint.types import TypeInformation, Types

if TYPE_CHECKING:
    from forkpoint.connectors.files.sink import FileSink
    from forkpoint.connectors.files.source import FileSource


def check_delimiter(what: str, delimiter: Any) -> None:
    """Raise ConfigError unless a CSV delimiter is one character without another meaning in CSV."""
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '\r\n"':
        raise ConfigError(f"{what}: delimiter is {delimiter!r}; give one character, other than a quote or a line end")


@dataclass(frozen=True)
class Encoder:
    """Encodes the elements of a file sink: ``Encoder.simple_string_encoder()``."""

    charset_name: str

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> Encoder:
        """``str(element)`` on a line, in this encoding."""
        try:
            return Encoder(codecs.lookup(charset_name).name)
        except LookupError:
            raise ConfigError(f"Encoder: unknown charset {charset_name!r}; 'UTF-8' is the default") from None


@dataclass(frozen=True)
class StreamFormat:
    """The format of a file source's records: ``StreamFormat.text_line_format()``."""

    format: FileFormat = field(default_factory=TextFormat)
    type: TypeInformation | None = field(default_factory=Types.STRING)

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> StreamFormat:
        """Lines of text, without their line ends. ConfigError for a charset other than UTF-8."""
        try:
            known = codecs.lookup(charset_name).name
        except LookupError:
            known = ""
        if known not in ("utf-8", "ascii"):
            raise ConfigError(f"StreamFormat: lines are read as UTF-8, not {charset_name}; convert the files first")
        return StreamFormat()


@dataclass(frozen=True)
class BulkWriterFactory:
    """The format of a file sink's records: a kind of file, the records' type, if any, and options."""

    kind: str
    type: TypeInformation | None
    options: Mapping[str, Any]


@dataclass(frozen=True)
class OutputFileConfig:
    """The prefix and suffix of a file sink's names: ``prefix-<epoch>-<subtask>-<attempt>suffix``."""

    part_prefix: str
    part_suffix: str

    @staticmethod
    def builder() -> OutputFileConfig.OutputFileConfigBuilder:
        """A builder: set prefix and suffix, then ``build()``."""
        return OutputFileConfig.OutputFileConfigBuilder()

    class OutputFileConfigBuilder:
        """Builds an OutputFileConfig. By default, the prefix is "part" and the suffix empty."""

        def __init__(self) -> None:
            self._config = OutputFileConfig("part", "")

        def with_part_prefix(self, prefix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            """Set the prefix."""
            self._config = replace(self._config, part_prefix=prefix)
            return self

        def with_part_suffix(self, suffix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            """Set the suffix, including any dot."""
            self._config = replace(self._config, part_suffix=suffix)
            return self

        def build(self) -> OutputFileConfig:
            """The configuration."""
            return self._config


class RollingPolicy:
    """Decides when a file sink starts a new file. Accepted for PyFlink programs without effect: files end with their epoch."""

    def __init__(self, *policies: object) -> None: ...

    @staticmethod
    def default_rolling_policy(
        part_size: int = 128 << 20, rollover_interval: timedelta | int = 60_000, inactivity_interval: timedelta | int = 60_000
    ) -> RollingPolicy:
        """By size and time in Flink; here the same as ``on_checkpoint_rolling_policy``."""
        return RollingPolicy()

    @staticmethod
    def on_checkpoint_rolling_policy() -> RollingPolicy:
        """A new file for each checkpoint, which is an epoch."""
        return RollingPolicy()


@dataclass(frozen=True)
class BucketAssigner:
    """Chooses an element's subdirectory. ``bucket`` maps an element to it; None for no subdirectories."""

    bucket: Callable[[Any], str] | None

    @staticmethod
    def base_path_bucket_assigner() -> BucketAssigner:
        """No subdirectories."""
        return BucketAssigner(None)

    @staticmethod
    def date_time_bucket_assigner(format_str: str = "yyyy-MM-dd--HH", timezone_id: str | None = None) -> BucketAssigner:
        """By wall-clock time when the element is written, with Java's pattern letters yyyy MM dd HH mm ss."""
        try:
            zone = None if timezone_id is None else ZoneInfo(timezone_id)
        except (KeyError, ValueError) as error:
            raise ConfigError(f"BucketAssigner: unknown time zone {timezone_id!r}; give one such as 'Europe/Zurich'") from error
        return BucketAssigner(_ByClock(_strftime(format_str), zone))


@dataclass(frozen=True)
class _ByClock:
    format: str
    zone: ZoneInfo | None

    def __call__(self, element: Any) -> str:
        return datetime.now(self.zone).strftime(self.format)


_LETTERS = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_PATTERN = re.compile(r"'(?P<quoted>[^']*)'|(?P<letters>(?P<letter>[A-Za-z])(?P=letter)*)|(?P<other>[^A-Za-z'])")


def _strftime(java: str) -> str:
    """Java's time pattern as a strftime format."""

    def translated(part: re.Match[str]) -> str:
        letters = part["letters"]
        if letters is None:
            return (part["quoted"] or part["other"] or "").replace("%", "%%")
        if letters not in _LETTERS:
            raise ConfigError(f"BucketAssigner: {letters!r} in {java!r} is not one of {', '.join(_LETTERS)}")
        return _LETTERS[letters]

    return _PATTERN.sub(translated, java)


class FileSourceBuilder:
    """Builds a FileSource, by default of the files that exist at the first start."""

    def __init__(self, make: Callable[[bool], FileSource]) -> None:
        self._make = make
        self._bounded = True

    def monitor_continuously(self, discovery_interval: timedelta | int) -> FileSourceBuilder:
        """Read files as they appear. Each epoch stats for them, so the interval has no effect."""
        self._bounded = False
        return self

    def process_static_file_set(self) -> FileSourceBuilder:
        """Read the files that exist at the first start, then finish; the default."""
        self._bounded = True
        return self

    def build(self) -> FileSource:
        """The source."""
        return self._make(self._bounded)


class FileSinkBuilder:
    """Builds a FileSink, by default with one directory per hour, like PyFlink's."""

    def __init__(self, make: Callable[[BucketAssigner, OutputFileConfig], FileSink]) -> None:
        self._make = make
        self._assigner = BucketAssigner.date_time_bucket_assigner()
        self._files = OutputFileConfig.builder().build()

    def with_bucket_assigner(self, bucket_assigner: BucketAssigner) -> FileSinkBuilder:
        """Set the subdirectories."""
        self._assigner = bucket_assigner
        return self

    def with_output_file_config(self, output_file_config: OutputFileConfig) -> FileSinkBuilder:
        """Set the prefix and suffix of file names."""
        self._files = output_file_config
        return self

    def with_rolling_policy(self, rolling_policy: RollingPolicy) -> FileSinkBuilder:
        """Accepted for PyFlink programs without effect: files end with their epoch."""
        return self

    def with_bucket_check_interval(self, interval: int) -> FileSinkBuilder:
        """Accepted for PyFlink programs without effect: files end with their epoch."""
        return self

    def enable_compact(self, strategy: Any, compactor: Any) -> NoReturn:
        """Not supported: raises ConfigError."""
        raise ConfigError("FileSink: files are final once their epoch is committed; leave enable_compact() out")

    def disable_compact(self) -> FileSinkBuilder:
        """Accepted for PyFlink programs without effect: files are never compacted."""
        return self

    def build(self) -> FileSink:
        """The sink."""
        return self._make(self._assigner, self._files)


def local_path(path: str) -> str:
    """The path of a ``file:`` URL; anything else unchanged."""
    return re.sub(r"^file:(//)?(?=/)", "", path)
