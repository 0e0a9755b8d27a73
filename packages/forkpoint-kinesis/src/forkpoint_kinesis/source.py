"""Kinesis streams as a source."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Self, get_args

from forkpoint.connectors.formats.reading import OnParseError, side_outputs_of
from forkpoint.connectors.source_builder import SourceBuilder
from forkpoint.contract.format import DeserializationSchema
from forkpoint.contract.source import JSON, Source, SourceReader, SplitEnumerator
from forkpoint.errors import ConfigError
from forkpoint.functions import OutputTag, epoch_ms
from forkpoint.types import TypeInformation, type_of
from forkpoint.types.variables import T
from forkpoint_kinesis.client import AwsClient
from forkpoint_kinesis.enumerator import KinesisEnumerator
from forkpoint_kinesis.position import InitialPosition, Kind
from forkpoint_kinesis.put_sink import StreamBuilder, in_region_of
from forkpoint_kinesis.reader import KinesisReader
from forkpoint_kinesis.records import KinesisDeserializationSchema
from forkpoint_kinesis.requests import RECORDS
from forkpoint_kinesis.watcher import OnExpired, Watch

# The source's own properties, under Flink's names.
_START, _TIMESTAMP, _FORMAT = (
    "flink.stream.initpos",
    "flink.stream.initpos.timestamp",
    "flink.stream.initpos.timestamp.format",
)
POLL, BATCH, DISCOVERY = (
    "flink.shard.getrecords.intervalmillis",
    "flink.shard.getrecords.maxrecordcount",
    "flink.shard.discovery.intervalmillis",
)
_PUBLISHER = "flink.stream.recordpublisher"


@dataclass(frozen=True)
class KinesisSource(Source[T]):
    """Reads a stream of Kinesis Data Streams; created with ``KinesisSource.builder()``.

    A shard is a split. The order of its records is kept; after a split or merge, the children's records come after its own.
    Positions are in the manifest. The driver reads ahead and tasks read the planned records again, so every record is read
    twice.
    """

    watch: Watch
    schema: KinesisDeserializationSchema[T]
    on_parse_error: OnParseError = "fail"

    default_limit: ClassVar[int] = 100_000

    @staticmethod
    def builder() -> KinesisSourceBuilder[Any]:
        """A builder: set a stream and a schema, then ``build()``."""
        return KinesisSourceBuilder()

    def output_type(self) -> TypeInformation[T] | None:
        produced = self.schema.get_produced_type()
        return None if produced is None else type_of(produced)

    @property
    def side_outputs(self) -> Collection[OutputTag[Any]]:
        return side_outputs_of(self.on_parse_error)

    @property
    def bounded(self) -> bool:
        return False

    def create_enumerator(self, position: JSON | None) -> SplitEnumerator:
        return KinesisEnumerator(self.watch, position)

    def create_reader(self) -> SourceReader[T]:
        return KinesisReader(self.watch, self.schema, self.on_parse_error)


class KinesisSourceBuilder(StreamBuilder, SourceBuilder[T]):
    """Builds a KinesisSource. A stream and a schema are needed; by default, reading starts at the latest records."""

    _source = "KinesisSource"

    def __init__(self) -> None:
        super().__init__()
        self._start: InitialPosition | None = None
        self._schema: KinesisDeserializationSchema[Any] | None = None
        self._on_expired: OnExpired = "fail"

    def set_deserialization_schema(
        self, deserialization_schema: DeserializationSchema[Any] | KinesisDeserializationSchema[Any]
    ) -> Self:
        """Set how elements are made from records' data, or from records with their partition key and time."""
        if isinstance(deserialization_schema, DeserializationSchema):
            self._schema = KinesisDeserializationSchema.data_only(deserialization_schema)
        elif isinstance(deserialization_schema, KinesisDeserializationSchema):
            self._schema = deserialization_schema
        else:
            raise ConfigError(
                f"KinesisSource: {deserialization_schema!r} is neither a DeserializationSchema nor a KinesisDeserializationSchema"
            )
        return self

    def set_initial_position(self, position: Kind, timestamp: int | datetime | None = None) -> Self:
        """Set where to start if the job is not restored: ``"LATEST"``, ``"TRIM_HORIZON"`` (the oldest records), or
        ``"AT_TIMESTAMP"`` with a time (ms since 1970 or a datetime). Shards that appear later are read from their start."""
        if position not in get_args(Kind):
            raise ConfigError(
                f"KinesisSource: the initial position is {position!r}; give one of {', '.join(map(repr, get_args(Kind)))}"
            )
        if (position == "AT_TIMESTAMP") != (timestamp is not None):
            raise ConfigError("KinesisSource: give a timestamp with 'AT_TIMESTAMP', and only then")
        self._start = InitialPosition(position, None if timestamp is None else epoch_ms(timestamp))
        return self

    def set_on_expired(self, on_expired: OnExpired) -> Self:
        """Set what happens if records may have expired before they were read: ``"fail"``, or ``"skip"``: log that and continue
        with the remaining records."""
        if on_expired not in get_args(OnExpired):
            raise ConfigError(f"KinesisSource: on_expired is {on_expired!r}; give 'fail' or 'skip'")
        self._on_expired = on_expired
        return self

    def build(self) -> KinesisSource[Any]:
        """The source. Raises ConfigError if anything is missing."""
        properties = dict(self._properties)
        if self._stream is None:
            raise ConfigError("KinesisSource: no stream; call set_stream_name() or set_stream_arn()")
        if self._schema is None:
            raise ConfigError("KinesisSource: no schema; call set_deserialization_schema()")
        if properties.pop(_PUBLISHER, "POLLING").upper() != "POLLING":
            raise ConfigError(f"KinesisSource: enhanced fan-out is not supported; leave out {_PUBLISHER}")
        start = _start_of(properties)
        poll_ms, batch = self._take_number(properties, POLL, 300), self._take_number(properties, BATCH, RECORDS)
        discovery_ms = self._take_number(properties, DISCOVERY, 10_000)
        properties = {name: value for name, value in properties.items() if not name.startswith("flink.")}
        client = AwsClient(in_region_of(self._stream, properties))
        watch = Watch(
            client,
            self._stream,
            self._start or start or InitialPosition(),
            poll_ms / 1000,
            discovery_ms / 1000,
            batch=min(max(batch, 1), RECORDS),
            on_expired=self._on_expired,
        )
        return KinesisSource(watch, self._schema, self._on_parse_error)


class FlinkKinesisConsumer(KinesisSource[T]):
    """The source under PyFlink's older name; pass it to ``from_source``. ``config_props``: as for ``set_properties``."""

    def __init__(
        self,
        streams: str | list[str],
        deserializer: DeserializationSchema[T] | KinesisDeserializationSchema[T],
        config_props: Mapping[str, str],
    ) -> None:
        names = [streams] if isinstance(streams, str) else list(streams)
        if len(names) != 1:
            raise ConfigError(f"FlinkKinesisConsumer: {len(names)} streams; read each with its own source, and union() them")
        builder = KinesisSource.builder().set_stream_name(names[0]).set_deserialization_schema(deserializer)
        built = builder.set_properties(config_props).build()
        super().__init__(built.watch, built.schema, built.on_parse_error)


def _start_of(properties: dict[str, str]) -> InitialPosition | None:
    kind, text = properties.pop(_START, None), properties.pop(_TIMESTAMP, None)
    form = properties.pop(_FORMAT, None)
    if kind is None:
        return None
    if kind not in get_args(Kind):
        raise ConfigError(f"KinesisSource: {_START} is {kind!r}; give one of {', '.join(get_args(Kind))}")
    if kind != "AT_TIMESTAMP":
        return InitialPosition(kind)  # type: ignore[arg-type]
    if form is not None:
        raise ConfigError(f"KinesisSource: {_FORMAT} is for Java; give {_TIMESTAMP} in seconds since 1970 or as ISO 8601")
    try:
        return InitialPosition("AT_TIMESTAMP", timestamp_ms(text or ""))
    except ValueError:
        raise ConfigError(f"KinesisSource: {_TIMESTAMP} is {text!r}; give {TIMESTAMPS}") from None


TIMESTAMPS = f"seconds since 1970, or {time.strftime('%Y')}-01-31T12:00:00+00:00"


def timestamp_ms(text: str) -> int:
    """Parses a time in Flink's options: seconds since 1970 with a fraction, or ISO 8601 with an offset. Raises ValueError."""
    try:
        return int(float(text) * 1000)
    except ValueError:
        return epoch_ms(datetime.fromisoformat(text))
