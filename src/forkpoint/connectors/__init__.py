"""Sources and sinks: their interfaces (``base``), and forkpoint's own, one module for each system."""

from typing import TYPE_CHECKING

from forkpoint.lazy import loader

if TYPE_CHECKING:
    from forkpoint.connectors.base import (
        JSON,
        Backlog,
        Elements,
        Sink,
        SinkBatch,
        SinkContext,
        SinkWriter,
        Source,
        SourceReader,
        SplitEnumerator,
        SplitRange,
    )
    from forkpoint.connectors.collection import CollectionSource
    from forkpoint.connectors.counter import CounterSource
    from forkpoint.connectors.files.sink import FileSink
    from forkpoint.connectors.files.source import FileSource
    from forkpoint.connectors.sinks import CollectSink, DiscardSink, PrintSink, StagingSink

__getattr__ = loader(__name__)

__all__ = [
    "JSON",
    "Backlog",
    "CollectSink",
    "CollectionSource",
    "CounterSource",
    "DiscardSink",
    "Elements",
    "FileSink",
    "FileSource",
    "PrintSink",
    "Sink",
    "SinkBatch",
    "SinkContext",
    "SinkWriter",
    "Source",
    "SourceReader",
    "SplitEnumerator",
    "SplitRange",
    "StagingSink",
]
