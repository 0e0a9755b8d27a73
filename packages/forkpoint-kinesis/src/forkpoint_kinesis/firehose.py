"""Firehose's delivery streams as a sink, with PyFlink's builder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from forkpoint.contract.format import messages_with_values
from forkpoint.contract.sink import SinkBatch, SinkContext, SinkWriter
from forkpoint.errors import ConfigError
from forkpoint.types.variables import T_contra
from forkpoint_kinesis.client import AwsClient, connected
from forkpoint_kinesis.committer import Refusal, refusals
from forkpoint_kinesis.errors import field
from forkpoint_kinesis.outgoing import SCHEMA
from forkpoint_kinesis.put_queue import Limits, Outgoing
from forkpoint_kinesis.put_sink import PutSink, PutSinkBuilder, RecordLimits
from forkpoint_kinesis.writer import StagingWriter


@dataclass(frozen=True)
class DeliveryTarget:
    client: AwsClient
    name: str
    limits: Limits
    fails_on_error: bool = False
    ordered: bool = False  # Firehose does not keep the order anyway

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


class FirehoseSink(PutSink[T_contra]):
    """Writes to a delivery stream of Data Firehose, at least once. Created with ``FirehoseSink.builder()``.

    Output is staged with its epoch; tasks put it after the epoch's commit. If they fail halfway, the epoch's records are put
    again.
    """

    @staticmethod
    def builder() -> FirehoseSinkBuilder:
        """A builder, as in PyFlink."""
        return FirehoseSinkBuilder()

    def create_writer(self, context: SinkContext) -> SinkWriter[T_contra]:
        def records(batch: SinkBatch[T_contra]) -> pa.RecordBatch:
            data = messages_with_values(self._schema, batch, "FirehoseSink")
            return pa.RecordBatch.from_arrays([pa.nulls(len(data), pa.string()), data], schema=SCHEMA)

        return StagingWriter(context, records, self._target.what, self._max_record_bytes)


class FirehoseSinkBuilder(PutSinkBuilder):
    """Builds a FirehoseSink. A delivery stream and a schema are needed."""

    _sink = "FirehoseSink"
    _most = RecordLimits(records=500, bytes=4 << 20, most_bytes=4 << 20, record_bytes=1000 << 10, most_record_bytes=1000 << 10)

    def __init__(self) -> None:
        super().__init__()
        self._name: str | None = None

    def set_delivery_stream_name(self, delivery_stream_name: str) -> Self:
        """Write to this delivery stream, which must exist, in the region of the property ``aws.region``."""
        self._name = delivery_stream_name
        return self

    def set_firehose_client_properties(self, firehose_client_properties: Mapping[str, str]) -> Self:
        """Set the client's properties, under Flink's names: ``aws.region``, ``aws.endpoint`` …"""
        self._properties.update({name: str(value) for name, value in firehose_client_properties.items()})
        return self

    def build(self) -> FirehoseSink[Any]:
        """The sink. Raises ConfigError if something is missing."""
        if self._name is None:
            raise ConfigError("FirehoseSink: there is no delivery stream; call set_delivery_stream_name")
        if self._schema is None:
            raise ConfigError("FirehoseSink: there is no schema; call set_serialization_schema")
        target = DeliveryTarget(AwsClient(self._properties), self._name, Limits(self._records, self._bytes), self._fails_on_error)
        return FirehoseSink(target, self._schema, self._record_bytes)
