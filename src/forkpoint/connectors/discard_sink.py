"""A sink that keeps nothing."""

from __future__ import annotations

from forkpoint.connectors.base import JSON, Sink, SinkBatch, SinkContext, SinkWriter


class DiscardSink(Sink):
    """Drops every element without decoding it. For benchmarks, and for jobs whose result is their state."""

    ordered = False

    def create_writer(self, context: SinkContext) -> SinkWriter:
        return _DiscardWriter()


class _DiscardWriter(SinkWriter):
    def write(self, batch: SinkBatch) -> None:
        pass

    def prepare_commit(self) -> list[JSON]:
        return []
