"""Tables of SQL with ``'connector' = 'kinesis'``, by the options of Flink's connector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.contract.format import DeserializationSchema, Deserialized
from forkpoint.contract.sink import SinkBatch
from forkpoint.relational.changes import Longs
from forkpoint.relational.types import INTEGERS
from forkpoint.sql.statements import MetadataColumn
from forkpoint.table.connectors.formats import changes_by_format, deserialization, has_changes, serialization
from forkpoint.table.connectors.metadata import Metadata
from forkpoint.table.connectors.options import TableOptions
from forkpoint.table.connectors.registry import Connector
from forkpoint.types import Row
from forkpoint.types.kinds.records import RecordType
from forkpoint.wording import parse_duration_ms
from forkpoint_kinesis.client import KNOWN, PROVIDER
from forkpoint_kinesis.position import Kind
from forkpoint_kinesis.put_sink import StreamBuilder
from forkpoint_kinesis.records import KinesisDeserializationSchema, KinesisRecord
from forkpoint_kinesis.sink import KEY_LENGTH, KinesisSink, PartitionKeyGenerator
from forkpoint_kinesis.source import BATCH, DISCOVERY, POLL, TIMESTAMPS, KinesisSource, timestamp_ms

_METADATA = {"timestamp": ("TIMESTAMP_LTZ", "TIMESTAMP"), "shard-id": ("STRING",), "sequence-number": ("STRING",)}
_DELIMITER = "sink.partitioner-field-delimiter"
_START, _START_TIME = "source.init.position", "source.init.timestamp"
_INTERVALS = {"source.shard.discovery.interval": DISCOVERY, "source.reader.empty-records-fetch-interval": POLL}
_COUNT = "source.shard.get-records.max-record-count"
_OF_SOURCES = (_START, _START_TIME, "source.reader.type", *_INTERVALS, _COUNT)
_EPOCHS = "records are put epoch by epoch; 'execution.checkpointing.interval' says how often"
_UNNEEDED = {
    **dict.fromkeys(("sink.requests.max-buffered", "sink.flush-buffer.size", "sink.flush-buffer.timeout"), _EPOCHS),
    "sink.batch.max-size": "a request has up to 500 records",
    "sink.requests.max-inflight": "a subtask sends one request at a time",
}
_ORDER = (
    "changes of a row must be in one shard, in order: add PARTITIONED BY (…) with columns such as its key, or "
    "'sink.partitioner' = 'fixed'"
)
_OF_SINKS = ("sink.partitioner", _DELIMITER, "sink.fail-on-error", *_UNNEEDED)


def _source(options: TableOptions) -> KinesisSource[Any]:
    options.ignore(*_OF_SINKS)
    options.choice("source.reader.type", ("POLLING",), "POLLING")
    rows = deserialization(options, options.table.schema)
    schema = RowsOfRecords(rows, Metadata.of(options, rows.get_produced_type(), _METADATA))
    builder = KinesisSource.builder().set_deserialization_schema(schema).set_properties(_properties(options))
    _set_stream(options, builder)
    position: Kind = options.choice(_START, get_args(Kind), "LATEST")  # type: ignore[assignment]
    builder.set_initial_position(position, _start_ms(options, position))
    for option, name in _INTERVALS.items():
        if (interval := options.get(option)) is not None:
            builder.set_property(name, str(parse_duration_ms(option, interval)))
    if (count := options.number(_COUNT)) is not None:
        builder.set_property(BATCH, str(count))
    return builder.build()


def _start_ms(options: TableOptions, position: Kind) -> int | None:
    given = options.get(_START_TIME)
    if position != "AT_TIMESTAMP":
        return None
    try:
        return timestamp_ms(given or "")
    except ValueError:
        raise options.error(_START, f"'{_START}' = '{position}' needs '{_START_TIME}': {TIMESTAMPS}") from None


def _sink(options: TableOptions) -> KinesisSink[Any]:
    options.ignore(*_OF_SOURCES)
    options.unneeded(_UNNEEDED)
    builder = KinesisSink.builder().set_serialization_schema(serialization(options, options.table.schema))
    _set_stream(options, builder)
    builder.set_kinesis_client_properties(_properties(options)).set_partition_key_generator(_keys(options))
    return builder.set_fail_on_error(options.flag("sink.fail-on-error")).build()


def _set_stream(options: TableOptions, builder: StreamBuilder) -> None:
    name, arn = options.required("stream.arn", "stream"), options.get("stream.arn")
    if arn is None:
        builder.set_stream_name(name)
    else:
        builder.set_stream_arn(arn)


def _properties(options: TableOptions) -> dict[str, str]:
    """Those of the client. As in Flink, names of tables' options leave out that credentials are of a provider."""
    given = {name: options.get(name.replace(f"{PROVIDER}.", "aws.credentials.")) for name in KNOWN}
    return {name: value for name, value in given.items() if value is not None}


def _keys(options: TableOptions) -> PartitionKeyGenerator:
    partitions, delimiter = options.table.partitions, options.get(_DELIMITER, "|") or ""
    if not partitions:
        kind = options.choice("sink.partitioner", ("fixed", "random"), "random")
        if kind == "random" and has_changes(options):
            raise options.error("sink.partitioner", _ORDER)
        return PartitionKeyGenerator(kind)
    if options.get("sink.partitioner") is not None:
        raise options.error("sink.partitioner", "the columns of PARTITIONED BY are the partition key; leave one of the two out")
    for field in options.table.schema:
        if field.name in partitions and field.type.name not in ("STRING", "BOOLEAN", *INTEGERS):
            problem = f"column {field.name!r} is {field.type.label}; partition keys are of STRING, BOOLEAN and integers"
            raise options.error("", problem)
    return KeysOfColumns("columns", partitions, delimiter)


@dataclass(frozen=True)
class KeysOfColumns(PartitionKeyGenerator):
    """Partition keys that are columns of rows, as Flink writes them."""

    columns: tuple[str, ...]
    delimiter: str

    def keys(self, batch: SinkBatch[Any], subtask: int) -> pa.StringArray:
        assert batch.type is not None
        found = batch.type.to_columns(batch.values) if batch.table is None else batch.table.columns
        columns = dict(zip(batch.type.column_names, found, strict=True))
        texts = [pc.fill_null(columns[name].cast(pa.string()), "null") for name in self.columns]
        keys = pc.utf8_slice_codeunits(pc.binary_join_element_wise(*texts, self.delimiter), 0, KEY_LENGTH)
        return pc.if_else(pc.equal(keys, ""), "|", keys)  # Kinesis has no empty keys


@dataclass(frozen=True)
class RowsOfRecords(KinesisDeserializationSchema[Row]):
    """Rows of records' data, with columns about the records."""

    rows: DeserializationSchema[Any]
    metadata: Metadata

    def get_produced_type(self) -> RecordType:
        return self.metadata.row

    def deserialize(self, record: KinesisRecord) -> Row:
        raise AssertionError("records are deserialized as columns")

    def deserialize_batch(self, records: Sequence[KinesisRecord]) -> Deserialized[Row]:
        found = self.rows.deserialize_batch(pa.array([record.data for record in records], pa.binary()))

        def about(column: MetadataColumn, places: Longs) -> pa.Array:
            of, chosen = column.type.arrow_type, [records[at] for at in places.tolist()]
            if column.key == "timestamp":
                return pa.array([record.arrival_ms for record in chosen], pa.timestamp("ms")).cast(of)
            name = "shard_id" if column.key == "shard-id" else "sequence_number"
            return pa.array([getattr(record, name) for record in chosen], of)

        return self.metadata.added_to(found, len(records), about)


CONNECTOR = Connector(
    _source,
    _sink,
    changes_by_format,
    changes_by_format,
    has_metadata=True,
    has_partitions=True,
    keys=lambda options: options.table.partitions,
)
