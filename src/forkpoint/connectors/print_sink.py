"""Elements on standard output."""

from __future__ import annotations

import sys

from forkpoint.connectors.base import JSON, Sink, SinkBatch, SinkContext, SinkWriter


class PrintSink(Sink):
    """Prints each element's ``repr`` on a line, after ``prefix`` and ``>``, in the driver's process once its epoch is committed.

    A failed epoch prints nothing, a repeated one prints once. But standard output cannot take part in a commit: if the driver
    dies between the manifest and the last line, the epoch is printed again after the restart. The text is part of the epoch's
    manifest: this is for looking at results, not for moving data.
    """

    def __init__(self, prefix: str = "") -> None:
        self._prefix = f"{prefix}> " if prefix else ""
        self._printed: int | None = None

    def create_writer(self, context: SinkContext) -> SinkWriter:
        return _PrintWriter(self._prefix)

    def commit(self, committables: list[JSON], epoch: int) -> None:
        if epoch == self._printed:  # a restart within this process repeats the last commit
            return
        self._printed = epoch
        text = "".join(line + "\n" for lines in committables for line in lines)
        sys.stdout.write(text)
        sys.stdout.flush()

    def cleanup(self, uid: str, job: str, generation: int) -> None:
        self._printed = None  # a new run may reuse epoch numbers


class _PrintWriter(SinkWriter):
    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._lines: list[str] = []

    def write(self, batch: SinkBatch) -> None:
        prefix = self._prefix
        self._lines += [prefix + text for text in map(repr, batch.values)] if prefix else map(repr, batch.values)

    def prepare_commit(self) -> list[JSON]:
        return [self._lines] if self._lines else []
