"""The common part of the Kinesis and Firehose sinks: everything but the form of records and the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from forkpoint.contract.format import SerializationSchema
from forkpoint.contract.sink import Committer, CommitterContext, CommittingSink
from forkpoint.contract.source import JSON
from forkpoint.errors import ConfigError
from forkpoint.types.variables import T_contra
from forkpoint_kinesis.client import REGION, Stream
from forkpoint_kinesis.committer import PutCommitter, Target
from forkpoint_kinesis.writer import checked


class PutSink(CommittingSink[T_contra]):
    """Stages output with its epoch; tasks put it after the epoch's commit."""

    def __init__(self, target: Target, schema: SerializationSchema[T_contra], max_record_bytes: int) -> None:
        self._target = target
        self._schema = schema
        self._max_record_bytes = max_record_bytes
        self._checked = False

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


@dataclass(frozen=True)
class RecordLimits:
    """The defaults of the limits of a request and of a record, and (``most_…``) the highest allowed limits."""

    records: int
    bytes: int
    most_bytes: int
    record_bytes: int
    most_record_bytes: int


class PutSinkBuilder:
    """A builder of a sink that puts records."""

    _sink: ClassVar[str]
    """The sink's class, for messages."""
    _most: ClassVar[RecordLimits]

    def __init__(self) -> None:
        self._schema: SerializationSchema[Any] | None = None
        self._properties: dict[str, str] = {}
        self._records, self._bytes, self._record_bytes = self._most.records, self._most.bytes, self._most.record_bytes
        self._fails_on_error = False

    def set_serialization_schema(self, serialization_schema: SerializationSchema[Any]) -> Self:
        """Set how elements become the records' data. Firehose concatenates records without separators: add line ends yourself."""
        self._schema = serialization_schema
        return self

    def set_fail_on_error(self, fail_on_error: bool) -> Self:
        """Set whether temporarily refused records fail the job instead of being put again."""
        self._fails_on_error = fail_on_error
        return self

    def set_max_batch_size(self, max_batch_size: int) -> Self:
        """Set the maximum number of records in a request, up to 500."""
        self._records = self._within(max_batch_size, self._most.records, "max_batch_size")
        return self

    def set_max_batch_size_in_bytes(self, max_batch_size_in_bytes: int) -> Self:
        """Set the maximum number of bytes in a request: by default 5 MiB for Kinesis, 4 MiB for Firehose."""
        self._bytes = self._within(max_batch_size_in_bytes, self._most.most_bytes, "max_batch_size_in_bytes")
        return self

    def set_max_record_size_in_bytes(self, max_record_size_in_bytes: int) -> Self:
        """Set the maximum size of a record with its key: by default 1 MiB for Kinesis, like a stream's own limit, and 1000 KiB
        for Firehose. A larger record fails the job."""
        most = self._most.most_record_bytes
        self._record_bytes = self._within(max_record_size_in_bytes, most, "max_record_size_in_bytes")
        return self

    def set_max_in_flight_requests(self, max_in_flight_requests: int) -> Self:
        """Ignored; accepted for PyFlink programs. A subtask sends one request at a time."""
        return self

    def set_max_buffered_requests(self, max_buffered_requests: int) -> Self:
        """Ignored; accepted for PyFlink programs. Records are put epoch by epoch."""
        return self

    def set_max_time_in_buffer_ms(self, max_time_in_buffer_ms: int) -> Self:
        """Ignored; accepted for PyFlink programs. Records are put epoch by epoch."""
        return self

    def _within(self, value: int, most: int, option: str) -> int:
        """The value. Raises ConfigError unless it is from 1 to ``most``."""
        if not 1 <= value <= most:
            raise ConfigError(f"{self._sink}: {option} is {value}; give 1 to {most}")
        return value


class StreamBuilder:
    """A builder that takes a Kinesis stream."""

    _stream: Stream | None = None

    def set_stream_name(self, stream_name: str) -> Self:
        """Set the stream, which must exist, in the region of the property ``aws.region``."""
        self._stream = Stream(stream_name)
        return self

    def set_stream_arn(self, stream_arn: str) -> Self:
        """Set the stream by its ARN, which includes its region and account."""
        self._stream = Stream.of_arn(stream_arn)
        return self


def in_region_of(stream: Stream, properties: dict[str, str]) -> dict[str, str]:
    """A client's properties, with the stream's region unless they already have a region."""
    return properties if stream.region is None else {REGION: stream.region, **properties}
