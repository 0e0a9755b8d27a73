"""Kinesis streams as a sink, with PyFlink's builder."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from forkpoint.contract.format import SerializationSchema, messages_with_values
from forkpoint.contract.sink import SinkBatch, SinkContext, SinkWriter
from forkpoint.errors import ConfigError
from forkpoint.functions.base import no_class
from forkpoint.types.variables import T_contra
from forkpoint_kinesis.client import AwsClient, Stream, connected
from forkpoint_kinesis.committer import Refusal, refusals
from forkpoint_kinesis.errors import field
from forkpoint_kinesis.outgoing import SCHEMA
from forkpoint_kinesis.put_queue import Limits, Outgoing
from forkpoint_kinesis.put_sink import PutSink, PutSinkBuilder, RecordLimits, StreamBuilder, in_region_of
from forkpoint_kinesis.writer import StagingWriter

KEY_LENGTH = 256
ID_SEPARATOR = "#"

KeyOf = Callable[[Any], str]


@dataclass(frozen=True)
class PartitionKeyGenerator:
    """Makes partition keys: ``PartitionKeyGenerator.fixed()`` or ``random()``, as in PyFlink."""

    kind: str

    @staticmethod
    def fixed() -> PartitionKeyGenerator:
        """One key per subtask: all its output goes to one shard, in order."""
        return PartitionKeyGenerator("fixed")

    @staticmethod
    def random() -> PartitionKeyGenerator:
        """A random key per record: spreads records evenly, without order."""
        return PartitionKeyGenerator("random")

    def keys(self, batch: SinkBatch[Any], subtask: int) -> pa.StringArray:
        """The key of each element that a subtask writes."""
        count = len(batch.values) if batch.table is None else len(batch.table)
        return pa.array([str(subtask)] * count if self.kind == "fixed" else [uuid.uuid4().hex for _ in range(count)], pa.string())


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
        # The explicit hash key keeps the record in its key's shard.
        hash_key = int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest(), "big")
        return Outgoing(f"{key}{ID_SEPARATOR}{id}", data, str(hash_key))


def _request(record: Outgoing) -> dict[str, Any]:
    request = {"PartitionKey": record.key, "Data": record.data}
    return request if record.hash_key is None else {**request, "ExplicitHashKey": record.hash_key}


class KinesisSink(PutSink[T_contra]):
    """Writes to a stream of Kinesis Data Streams, at least once. Created with ``KinesisSink.builder()``.

    Output is staged with its epoch; tasks put it after the epoch's commit. If they fail halfway, the epoch's records are put
    again. Records of a partition key keep the order of the stream.
    """

    def __init__(
        self,
        target: StreamTarget,
        schema: SerializationSchema[T_contra],
        key: PartitionKeyGenerator | KeyOf,
        max_record_bytes: int,
    ) -> None:
        super().__init__(target, schema, max_record_bytes)
        self._key = key
        self._key_length = KEY_LENGTH // 2 if target.with_ids else KEY_LENGTH

    @staticmethod
    def builder() -> KinesisSinkBuilder:
        """A builder, as in PyFlink."""
        return KinesisSinkBuilder()

    def create_writer(self, context: SinkContext) -> SinkWriter[T_contra]:
        def records(batch: SinkBatch[T_contra]) -> pa.RecordBatch:
            data = messages_with_values(self._schema, batch, "KinesisSink")
            return pa.RecordBatch.from_arrays([self._keys(batch, context.subtask), data], schema=SCHEMA)

        return StagingWriter(context, records, self._target.what, self._max_record_bytes, self._key_length)

    def _keys(self, batch: SinkBatch[T_contra], subtask: int) -> pa.StringArray:
        if isinstance(self._key, PartitionKeyGenerator):
            return self._key.keys(batch, subtask)
        return pa.array(map(self._key, batch.values), pa.string())


class KinesisSinkBuilder(StreamBuilder, PutSinkBuilder):
    """Builds a KinesisSink. A stream, a schema and partition keys are needed."""

    _sink = "KinesisSink"
    _most = RecordLimits(records=500, bytes=5 << 20, most_bytes=10 << 20, record_bytes=1 << 20, most_record_bytes=10 << 20)

    def __init__(self) -> None:
        super().__init__()
        self._key: PartitionKeyGenerator | KeyOf | None = None
        self._ordered = True
        self._with_ids = False

    def set_partition_key_generator(self, partition_key_generator: PartitionKeyGenerator | KeyOf) -> Self:
        """Set the partition key, which determines the shard: a PartitionKeyGenerator, or a function from the element to a str."""
        no_class(partition_key_generator, "set_partition_key_generator()")
        if not isinstance(partition_key_generator, PartitionKeyGenerator) and not callable(partition_key_generator):
            raise ConfigError(
                f"KinesisSink: {partition_key_generator!r} does not make partition keys; give a PartitionKeyGenerator or function"
            )
        self._key = partition_key_generator
        return self

    def set_kinesis_client_properties(self, kinesis_client_properties: Mapping[str, str]) -> Self:
        """Set the client's properties, under Flink's names: ``aws.region``, ``aws.endpoint`` …"""
        self._properties.update({name: str(value) for name, value in kinesis_client_properties.items()})
        return self

    def set_ordered(self, ordered: bool) -> Self:
        """Set whether records of a partition key arrive in order, the default. A request then has only one record per key.
        Without order, few keys are faster, but temporarily refused records arrive after later ones."""
        self._ordered = ordered
        return self

    def set_record_ids(self, record_ids: bool) -> Self:
        """Set whether partition keys end in ``#`` and an id. The id stays the same if the record is put again, so a consumer can
        drop duplicates. The record stays in its key's shard."""
        self._with_ids = record_ids
        return self

    def build(self) -> KinesisSink[Any]:
        """The sink. Raises ConfigError if something is missing."""
        if self._stream is None:
            raise ConfigError("KinesisSink: there is no stream; call set_stream_name or set_stream_arn")
        if self._schema is None:
            raise ConfigError("KinesisSink: there is no schema; call set_serialization_schema")
        if self._key is None:
            raise ConfigError("KinesisSink: there are no partition keys; call set_partition_key_generator")
        properties = in_region_of(self._stream, self._properties)
        random = isinstance(self._key, PartitionKeyGenerator) and self._key.kind == "random"
        target = StreamTarget(
            AwsClient(properties),
            self._stream,
            Limits(self._records, self._bytes),
            self._ordered and not random,
            self._fails_on_error,
            self._with_ids,
        )
        return KinesisSink(target, self._schema, self._key, self._record_bytes)
