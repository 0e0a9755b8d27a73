"""Firehose's delivery streams as a sink, built as in PyFlink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from forkpoint.connectors.base import JSON, SinkBatch, SinkContext, SinkWriter
from forkpoint.connectors.committing import Committer, CommitterContext, CommittingSink
from forkpoint.connectors.formats.base import SerializationSchema, messages_with_values
from forkpoint.connectors.kinesis.client import AwsClient, connected, require_client
from forkpoint.connectors.kinesis.committer import PutCommitter, Refusal, refusals
from forkpoint.connectors.kinesis.errors import field
from forkpoint.connectors.kinesis.outgoing import SCHEMA
from forkpoint.connectors.kinesis.putting import Limits, Outgoing
from forkpoint.connectors.kinesis.sink import within
from forkpoint.connectors.kinesis.writer import StagingWriter, checked
from forkpoint.errors import ConfigError
from forkpoint.types.variables import T_contra

RECORDS, BYTES = 500, 4 << 20  # the most that a request may have
RECORD_BYTES = 1000 << 10


@dataclass(frozen=True)
class DeliveryTarget:
    client: AwsClient
    name: str
    limits: Limits
    fails_on_error: bool = False
    ordered: bool = False  # Firehose delivers in no order anyway

    @property
    def what(self) -> str:
        return f"FirehoseSink: delivery stream {self.name!r}"

    @property
    def place(self) -> str:
        return self.client.place

    @property
    def remedy(self) -> str:
        return "create it, or correct set_delivery_stream_name()"

    def check(self) -> None:
        connected(self.client, "firehose", self.what).describe_delivery_stream(DeliveryStreamName=self.name)

    def put(self, records: Sequence[Outgoing]) -> Mapping[int, Refusal]:
        answer = connected(self.client, "firehose", self.what).put_record_batch(
            DeliveryStreamName=self.name, Records=[{"Data": record.data} for record in records]
        )
        return refusals(field(answer, "RequestResponses"), len(records))

    def outgoing(self, key: str | None, data: bytes, id: str) -> Outgoing:
        return Outgoing("", data)


class FirehoseSink(CommittingSink[T_contra]):
    """Writes to a delivery stream of Data Firehose, at least once. ``FirehoseSink.builder()`` makes one.

    Output is staged with its epoch, and put by tasks after the epoch's commit. After a failure in the middle of that, the epoch's
    records are put once more.
    """

    def __init__(self, target: DeliveryTarget, schema: SerializationSchema[T_contra], max_record_bytes: int) -> None:
        self._target = target
        self._schema = schema
        self._max_record_bytes = max_record_bytes
        self._checked = False

    @staticmethod
    def builder() -> FirehoseSinkBuilder:
        """A builder, as PyFlink's."""
        return FirehoseSinkBuilder()

    def create_writer(self, context: SinkContext) -> SinkWriter[T_contra]:
        def records(batch: SinkBatch[T_contra]) -> pa.RecordBatch:
            data = messages_with_values(self._schema, batch, "FirehoseSink")
            return pa.RecordBatch.from_arrays([pa.nulls(len(data), pa.string()), data], schema=SCHEMA)

        return StagingWriter(context, records, self._target.what, self._max_record_bytes)

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


class FirehoseSinkBuilder:
    """Builds a FirehoseSink. A delivery stream and a schema are needed."""

    def __init__(self) -> None:
        self._name: str | None = None
        self._schema: SerializationSchema[Any] | None = None
        self._properties: dict[str, str] = {}
        self._records, self._bytes, self._record_bytes = RECORDS, BYTES, RECORD_BYTES
        self._fails_on_error = False

    def set_delivery_stream_name(self, delivery_stream_name: str) -> Self:
        """Write to this delivery stream, which must exist, in the region of the property ``aws.region``."""
        self._name = delivery_stream_name
        return self

    def set_serialization_schema(self, serialization_schema: SerializationSchema[Any]) -> Self:
        """How elements become the records' data. Firehose puts records together as they are: end lines yourself."""
        self._schema = serialization_schema
        return self

    def set_firehose_client_properties(self, firehose_client_properties: Mapping[str, str]) -> Self:
        """Properties of the client, as Flink names them: ``aws.region``, ``aws.endpoint`` …"""
        self._properties.update({name: str(value) for name, value in firehose_client_properties.items()})
        return self

    def set_fail_on_error(self, fail_on_error: bool) -> Self:
        """Whether records that Firehose refuses for a moment fail the job, instead of being put again."""
        self._fails_on_error = fail_on_error
        return self

    def set_max_batch_size(self, max_batch_size: int) -> Self:
        """How many records a request has at most, up to 500."""
        self._records = within(max_batch_size, RECORDS, "FirehoseSink: max_batch_size")
        return self

    def set_max_batch_size_in_bytes(self, max_batch_size_in_bytes: int) -> Self:
        """How many bytes a request has at most, up to 4 MiB."""
        self._bytes = within(max_batch_size_in_bytes, BYTES, "FirehoseSink: max_batch_size_in_bytes")
        return self

    def set_max_record_size_in_bytes(self, max_record_size_in_bytes: int) -> Self:
        """How large a record may be, up to 1000 KiB. A larger one fails the job."""
        self._record_bytes = within(max_record_size_in_bytes, RECORD_BYTES, "FirehoseSink: max_record_size_in_bytes")
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

    def build(self) -> FirehoseSink[Any]:
        """The sink. Raises ConfigError if something is missing."""
        require_client("FirehoseSink")
        if self._name is None:
            raise ConfigError("FirehoseSink: there is no delivery stream; call set_delivery_stream_name")
        if self._schema is None:
            raise ConfigError("FirehoseSink: there is no schema; call set_serialization_schema")
        target = DeliveryTarget(
            AwsClient(self._properties), self._name, Limits(self._records, self._bytes), self._fails_on_error
        )
        return FirehoseSink(target, self._schema, self._record_bytes)
