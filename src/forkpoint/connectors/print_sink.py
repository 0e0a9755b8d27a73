"""Elements on standard output."""

from __future__ import annotations

import sys

from forkpoint.connectors.base import JSON, Sink, SinkBatch, SinkContext, SinkWriter


class PrintSink(Sink):
    """Prints each element's ``repr`` on a line of its own, in the driver's process, once its epoch is committed.

    ``prefix`` and ``>`` come before each line. An epoch that fails prints nothing and one that is repeated
    prints once. Standard output cannot take part in a commit, so a driver that dies between the manifest and the last
    line prints that epoch again after its restart: nothing is lost, and only those lines can come twice.
    The text is part of the epoch's manifest: this is for looking at results, not for moving data.
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
        # A start: what comes now is another run, whose epochs may have the same numbers
        self._printed = None


class _PrintWriter(SinkWriter):
    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._lines: list[str] = []

    def write(self, batch: SinkBatch) -> None:
        prefix = self._prefix
        self._lines += [prefix + text for text in map(repr, batch.values)] if prefix else map(repr, batch.values)

    def prepare_commit(self) -> list[JSON]:
        return [self._lines] if self._lines else []
