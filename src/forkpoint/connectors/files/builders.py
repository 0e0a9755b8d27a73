"""PyFlink's way to describe file sources and sinks: builders, and the settings they take.

FileSink.for_row_format("out/", Encoder.simple_string_encoder()).with_rolling_policy(…).build()
FileSource.for_record_stream_format(StreamFormat.text_line_format(), "in/").build()
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from forkpoint.errors import ConfigError

if TYPE_CHECKING:
    from forkpoint.connectors.files.sink import FileSink
    from forkpoint.connectors.files.source import FileSource


@dataclass(frozen=True)
class Encoder:
    """How a file sink writes an element: ``Encoder.simple_string_encoder()``."""

    charset_name: str

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> Encoder:
        """``str(element)`` on a line of its own, in this encoding."""
        try:
            return Encoder(codecs.lookup(charset_name).name)
        except LookupError:
            raise ConfigError(f"Encoder: there is no charset {charset_name!r}; 'UTF-8' is the default") from None


@dataclass(frozen=True)
class StreamFormat:
    """How a file source reads records: ``StreamFormat.text_line_format()``."""

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> StreamFormat:
        """Lines of text, without their line ends. ConfigError for another charset than UTF-8."""
        if codecs.lookup(charset_name).name not in ("utf-8", "ascii"):
            raise ConfigError(f"StreamFormat: lines are read as UTF-8, not as {charset_name}; convert the files first")
        return StreamFormat()


@dataclass(frozen=True)
class OutputFileConfig:
    """How a file sink's names begin and end: ``prefix-<epoch>-<subtask>-<attempt>suffix``."""

    part_prefix: str
    part_suffix: str

    @staticmethod
    def builder() -> OutputFileConfig.OutputFileConfigBuilder:
        """Say what names begin and end with, then ``build()``."""
        return OutputFileConfig.OutputFileConfigBuilder()

    class OutputFileConfigBuilder:
        """Makes an OutputFileConfig. Without a word, names begin with "part" and end with nothing."""

        def __init__(self) -> None:
            self._config = OutputFileConfig("part", "")

        def with_part_prefix(self, prefix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            """What names begin with."""
            self._config = replace(self._config, part_prefix=prefix)
            return self

        def with_part_suffix(self, suffix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            """What names end with, a dot included where there is to be one."""
            self._config = replace(self._config, part_suffix=suffix)
            return self

        def build(self) -> OutputFileConfig:
            """The configuration."""
            return self._config


class RollingPolicy:
    """When a file sink begins a new file. Accepted for PyFlink programs: files always end with their epoch."""

    @staticmethod
    def default_rolling_policy(
        part_size: int = 128 << 20,
        rollover_interval: timedelta | int = 60_000,
        inactivity_interval: timedelta | int = 60_000,
    ) -> RollingPolicy:
        """Flink's by size and time; here as ``on_checkpoint_rolling_policy``."""
        return RollingPolicy()

    @staticmethod
    def on_checkpoint_rolling_policy() -> RollingPolicy:
        """A new file for each checkpoint, which is each epoch."""
        return RollingPolicy()


@dataclass(frozen=True)
class BucketAssigner:
    """The subdirectory of an element. ``bucket`` takes the element; None puts all files into the sink's own directory."""

    bucket: Callable[[Any], str] | None

    @staticmethod
    def base_path_bucket_assigner() -> BucketAssigner:
        """No subdirectories."""
        return BucketAssigner(None)

    @staticmethod
    def date_time_bucket_assigner(format_str: str = "yyyy-MM-dd--HH", timezone_id: str | None = None) -> BucketAssigner:
        """By the wall clock when the element is written, in Java's letters: yyyy MM dd HH mm ss."""
        try:
            zone = None if timezone_id is None else ZoneInfo(timezone_id)
        except (KeyError, ValueError) as error:
            raise ConfigError(
                f"BucketAssigner: there is no time zone {timezone_id!r}; give one as 'Europe/Zurich'"
            ) from error
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
    """Java's pattern of a time as Python's."""

    def translated(part: re.Match[str]) -> str:
        letters = part["letters"]
        if letters is None:
            return (part["quoted"] or part["other"] or "").replace("%", "%%")
        if letters not in _LETTERS:
            raise ConfigError(f"BucketAssigner: {letters!r} in {java!r} is none of {', '.join(_LETTERS)}")
        return _LETTERS[letters]

    return _PATTERN.sub(translated, java)


class FileSourceBuilder:
    """Makes a FileSource of lines; what is there at the first start, unless told otherwise."""

    def __init__(self, make: Callable[[bool], FileSource]) -> None:
        self._make = make
        self._bounded = True

    def monitor_continuously(self, discovery_interval: timedelta | int) -> FileSourceBuilder:
        """Pick up files as they appear. Each epoch looks, so the interval is accepted without effect."""
        self._bounded = False
        return self

    def process_static_file_set(self) -> FileSourceBuilder:
        """Read what is there at the first start, then finish; so it is by default."""
        self._bounded = True
        return self

    def build(self) -> FileSource:
        """The source."""
        return self._make(self._bounded)


class RowFormatBuilder:
    """Makes a FileSink of lines, by default in a directory for each hour, as PyFlink's does."""

    def __init__(self, make: Callable[[BucketAssigner, OutputFileConfig], FileSink]) -> None:
        self._make = make
        self._assigner = BucketAssigner.date_time_bucket_assigner()
        self._files = OutputFileConfig.builder().build()

    def with_bucket_assigner(self, bucket_assigner: BucketAssigner) -> RowFormatBuilder:
        """The subdirectories."""
        self._assigner = bucket_assigner
        return self

    def with_output_file_config(self, output_file_config: OutputFileConfig) -> RowFormatBuilder:
        """How names begin and end."""
        self._files = output_file_config
        return self

    def with_rolling_policy(self, rolling_policy: RollingPolicy) -> RowFormatBuilder:
        """Accepted for PyFlink programs without effect: files end with their epoch."""
        return self

    def with_bucket_check_interval(self, interval: int) -> RowFormatBuilder:
        """Accepted for PyFlink programs without effect: files end with their epoch."""
        return self

    def disable_compact(self) -> RowFormatBuilder:
        """Accepted for PyFlink programs without effect: files are not made into larger ones."""
        return self

    def build(self) -> FileSink:
        """The sink."""
        return self._make(self._assigner, self._files)


def local_path(path: str) -> str:
    """The path of a ``file:`` URL; anything else as it is."""
    return re.sub(r"^file:(//)?(?=/)", "", path)
