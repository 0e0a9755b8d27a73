"""Kinesis streams as a sink, built as in PyFlink."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from forkpoint.connectors.base import JSON, SinkBatch, SinkContext, SinkWriter
from forkpoint.connectors.committing import Committer, CommitterContext, CommittingSink
from forkpoint.connectors.formats.base import SerializationSchema, messages_with_values
from forkpoint.connectors.kinesis.client import REGION, AwsClient, Stream, connected, require_client
from forkpoint.connectors.kinesis.committer import PutCommitter, Refusal, refusals
from forkpoint.connectors.kinesis.errors import field
from forkpoint.connectors.kinesis.outgoing import SCHEMA
from forkpoint.connectors.kinesis.putting import Limits, Outgoing
from forkpoint.connectors.kinesis.writer import StagingWriter, checked
from forkpoint.errors import ConfigError
from forkpoint.types.variables import T_contra

RECORDS, BYTES = 500, 5 << 20  # the most that a request may have
RECORD_BYTES = 1 << 20
KEY_LENGTH = 256
ID_SEPARATOR = "#"

KeyOf = Callable[[Any], str]


@dataclass(frozen=True)
class PartitionKeyGenerator:
    """Makes partition keys; ``PartitionKeyGenerator.fixed()`` and ``random()``, as PyFlink's."""

    kind: str

    @staticmethod
    def fixed() -> PartitionKeyGenerator:
        """One key for each subtask: all that it writes goes to one shard, in order."""
        return PartitionKeyGenerator("fixed")

    @staticmethod
    def random() -> PartitionKeyGenerator:
        """A random key for each record, which spreads them evenly, in no order."""
        return PartitionKeyGenerator("random")


@dataclass(frozen=True)
class StreamTarget:
    client: AwsClient
    stream: Stream
    limits: Limits
    ordered: bool = True
    fails_on_error: bool = False
    with_ids: bool = False

    @property
    def what(self) -> str:
        return f"KinesisSink: stream {self.stream.name!r}"

    @property
    def place(self) -> str:
        return self.client.place

    @property
    def remedy(self) -> str:
        return "create it, or correct set_stream_name()"

    def check(self) -> None:
        connected(self.client, "kinesis", self.what).describe_stream_summary(**self.stream.named)

    def put(self, records: Sequence[Outgoing]) -> Mapping[int, Refusal]:
        client = connected(self.client, "kinesis", self.what)
        answer = client.put_records(Records=[_request(r) for r in records], **self.stream.named)
        return refusals(field(answer, "Records"), len(records))

    def outgoing(self, key: str | None, data: bytes, id: str) -> Outgoing:
        assert key is not None
        if not self.with_ids:
            return Outgoing(key, data)
        # The shard is still that of the key.
        hash_key = int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest(), "big")
        return Outgoing(f"{key}{ID_SEPARATOR}{id}", data, str(hash_key))


def _request(record: Outgoing) -> dict[str, Any]:
    request = {"PartitionKey": record.key, "Data": record.data}
    return request if record.hash_key is None else {**request, "ExplicitHashKey": record.hash_key}


class KinesisSink(CommittingSink[T_contra]):
    """Writes to a stream of Kinesis Data Streams, at least once. ``KinesisSink.builder()`` makes one.

    Output is staged with its epoch, and put by tasks after the epoch's commit. After a failure in the middle of that, the epoch's
    records are put once more. Records of one partition key are in the order of the stream.
    """

    def __init__(
        self, target: StreamTarget, schema: SerializationSchema[T_contra], key: PartitionKeyGenerator | KeyOf,
        max_record_bytes: int,
    ) -> None:  # fmt: skip
        self._target = target
        self._schema = schema
        self._key = key
        self._max_record_bytes = max_record_bytes
        self._checked = False

    @staticmethod
    def builder() -> KinesisSinkBuilder:
        """A builder, as PyFlink's."""
        return KinesisSinkBuilder()

    def create_writer(self, context: SinkContext) -> SinkWriter[T_contra]:
        def records(batch: SinkBatch[T_contra]) -> pa.RecordBatch:
            data = messages_with_values(self._schema, batch, "KinesisSink")
            keys = pa.array(self._keys(batch, context.subtask), pa.string())
            return pa.RecordBatch.from_arrays([keys, data], schema=SCHEMA)

        key_length = KEY_LENGTH // 2 if self._target.with_ids else KEY_LENGTH
        return StagingWriter(context, records, self._target.what, self._max_record_bytes, key_length)

    def _keys(self, batch: SinkBatch[T_contra], subtask: int) -> list[str]:
        if not isinstance(self._key, PartitionKeyGenerator):
            return list(map(self._key, batch.values))
        count = len(batch.values) if batch.table is None else len(batch.table)
        return [str(subtask)] * count if self._key.kind == "fixed" else [uuid.uuid4().hex for _ in range(count)]

    def check(self, committables: list[JSON]) -> None:
        if not self._checked and committables:
            checked(self._target)
            self._checked = True

    def create_committer(self, context: CommitterContext) -> Committer:
        return PutCommitter(context, self._target)

    def group(self, committable: JSON) -> str:
        return str(committable["subtask"])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_checked": False}


class KinesisSinkBuilder:
    """Builds a KinesisSink. A stream, a schema and partition keys are needed."""

    def __init__(self) -> None:
        self._stream: Stream | None = None
        self._schema: SerializationSchema[Any] | None = None
        self._key: PartitionKeyGenerator | KeyOf | None = None
        self._properties: dict[str, str] = {}
        self._records, self._bytes, self._record_bytes = RECORDS, BYTES, RECORD_BYTES
        self._fails_on_error = False
        self._ordered = True
        self._with_ids = False

    def set_stream_name(self, stream_name: str) -> Self:
        """Write to this stream, which must exist, in the region of the property ``aws.region``."""
        self._stream = Stream(stream_name)
        return self

    def set_stream_arn(self, stream_arn: str) -> Self:
        """Write to the stream with this ARN, which also says its region and account."""
        self._stream = Stream.of_arn(stream_arn)
        return self

    def set_serialization_schema(self, serialization_schema: SerializationSchema[Any]) -> Self:
        """How elements become the records' data."""
        self._schema = serialization_schema
        return self

    def set_partition_key_generator(self, partition_key_generator: PartitionKeyGenerator | KeyOf) -> Self:
        """The partition key, which decides on the shard: a PartitionKeyGenerator, or a function from the element to a str."""
        if not isinstance(partition_key_generator, PartitionKeyGenerator) and not callable(partition_key_generator):
            raise ConfigError(
                f"KinesisSink: {partition_key_generator!r} makes no partition keys; give a PartitionKeyGenerator or a function"
            )
        self._key = partition_key_generator
        return self

    def set_kinesis_client_properties(self, kinesis_client_properties: Mapping[str, str]) -> Self:
        """Properties of the client, as Flink names them: ``aws.region``, ``aws.endpoint`` …"""
        self._properties.update({name: str(value) for name, value in kinesis_client_properties.items()})
        return self

    def set_ordered(self, ordered: bool) -> Self:
        """Whether records of one partition key arrive in order, by default. A request then has only one record of each key;
        without, it is faster for few keys, and records that are refused for a moment come after later ones."""
        self._ordered = ordered
        return self

    def set_record_ids(self, record_ids: bool) -> Self:
        """Whether partition keys end in ``#`` and an id, the same whenever the record is put, by which a consumer can leave out
        repetitions. The shard stays that of the key."""
        self._with_ids = record_ids
        return self

    def set_fail_on_error(self, fail_on_error: bool) -> Self:
        """Whether records that Kinesis refuses for a moment fail the job, instead of being put again."""
        self._fails_on_error = fail_on_error
        return self

    def set_max_batch_size(self, max_batch_size: int) -> Self:
        """How many records a request has at most, up to 500."""
        self._records = within(max_batch_size, RECORDS, "KinesisSink: max_batch_size")
        return self

    def set_max_batch_size_in_bytes(self, max_batch_size_in_bytes: int) -> Self:
        """How many bytes a request has at most, 5 MiB by default."""
        self._bytes = within(max_batch_size_in_bytes, 10 << 20, "KinesisSink: max_batch_size_in_bytes")
        return self

    def set_max_record_size_in_bytes(self, max_record_size_in_bytes: int) -> Self:
        """How large a record may be, with its key: 1 MiB by default, as a stream's limit. A larger one fails the job."""
        self._record_bytes = within(max_record_size_in_bytes, 10 << 20, "KinesisSink: max_record_size_in_bytes")
        return self

    def set_max_in_flight_requests(self, max_in_flight_requests: int) -> Self:
        """Accepted for PyFlink's programs; each subtask has one request at a time."""
        return self

    def set_max_buffered_requests(self, max_buffered_requests: int) -> Self:
        """Accepted for PyFlink's programs; records are put epoch by epoch."""
        return self

    def set_max_time_in_buffer_ms(self, max_time_in_buffer_ms: int) -> Self:
        """Accepted for PyFlink's programs; records are put epoch by epoch."""
        return self

    def build(self) -> KinesisSink[Any]:
        """The sink. Raises ConfigError if something is missing."""
        require_client("KinesisSink")
        if self._stream is None:
            raise ConfigError("KinesisSink: there is no stream; call set_stream_name or set_stream_arn")
        if self._schema is None:
            raise ConfigError("KinesisSink: there is no schema; call set_serialization_schema")
        if self._key is None:
            raise ConfigError("KinesisSink: there are no partition keys; call set_partition_key_generator")
        properties = dict(self._properties)
        if self._stream.region is not None:
            properties.setdefault(REGION, self._stream.region)
        random = isinstance(self._key, PartitionKeyGenerator) and self._key.kind == "random"
        target = StreamTarget(
            AwsClient(properties), self._stream, Limits(self._records, self._bytes), self._ordered and not random,
            self._fails_on_error, self._with_ids,
        )  # fmt: skip
        return KinesisSink(target, self._schema, self._key, self._record_bytes)


def within(value: int, most: int, what: str) -> int:
    """A number from 1 up. ConfigError for others."""
    if not 1 <= value <= most:
        raise ConfigError(f"{what} is {value}; give 1 to {most}")
    return value
