"""The DataStream API: environment and streams."""

from forkpoint.api.async_io import AsyncDataStream
from forkpoint.api.broadcasting import BroadcastConnectedStream, BroadcastStream
from forkpoint.api.configuration import Configuration
from forkpoint.api.connected import ConnectedStreams
from forkpoint.api.environment import StreamExecutionEnvironment
from forkpoint.api.outputs import DataFrameSink, DataStreamSink
from forkpoint.api.results import CheckResult, CloseableIterator, JobClient, JobExecutionResult, JobStatus
from forkpoint.api.settings import CheckpointConfig, ExecutionConfig
from forkpoint.api.slots import MemorySize, SlotSharingGroup
from forkpoint.api.streams import DataStream, IterativeStream, KeyedStream
from forkpoint.api.windowed import AllWindowedStream, WindowedStream

__all__ = [
    "AllWindowedStream",
    "AsyncDataStream",
    "BroadcastConnectedStream",
    "BroadcastStream",
    "CheckResult",
    "CheckpointConfig",
    "CloseableIterator",
    "Configuration",
    "ConnectedStreams",
    "DataFrameSink",
    "DataStream",
    "DataStreamSink",
    "ExecutionConfig",
    "IterativeStream",
    "JobClient",
    "JobExecutionResult",
    "JobStatus",
    "KeyedStream",
    "MemorySize",
    "SlotSharingGroup",
    "StreamExecutionEnvironment",
    "WindowedStream",
]
