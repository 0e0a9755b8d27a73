"""Writes committed documents with versions that grow with the epochs, so that late writes have no effect.

OpenSearch refuses a write whose external version is below the document's. The ledger assigns a span of versions to each epoch: a
repeated commit writes the same documents again, and writes of an old driver that wakes up have older versions than later writes.
Documents without the user's ids are created once, with ids derived from their place in the output.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
import pyarrow as pa

from forkpoint.checkpoint.manifest import EpochOutput
from forkpoint.connectors.ledger import OPENSEARCH_INDEX, Span, entry_name, next_span, refuse_put_back
from forkpoint.connectors.rows import StagedRow, staged_rows
from forkpoint.contract.sink import Committer, CommitterContext
from forkpoint.errors import JobFailed, OutputRefused
from forkpoint_opensearch.client import SearchClient, failure, raising_errors

CHUNK_DOCUMENTS = 1_000
CHUNK_BYTES = 4 * 1024 * 1024
_LEDGER = {
    "settings": {"number_of_shards": 1, "auto_expand_replicas": "0-1"},
    "mappings": {"dynamic": False, "properties": {name: {"type": "long"} for name in ("epoch", "first", "end")}},
}
_ERRORS = "errors,items.*._id,items.*.status,items.*.error.type,items.*.error.reason,items.*.error.caused_by.reason"
_encoder = msgspec.json.Encoder()


def create_ledger(client: Any) -> None:
    """Create the ledger's index unless it exists."""
    from opensearchpy.exceptions import RequestError

    if client.indices.exists(index=OPENSEARCH_INDEX):
        return
    try:
        client.indices.create(index=OPENSEARCH_INDEX, body=_LEDGER)
    except RequestError as error:
        if error.error != "resource_already_exists_exception":
            raise


class Ledger:
    """An entry of the ledger."""

    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self._name = name
        self._condition: dict[str, Any] = {}

    def read(self) -> Span | None:
        found = self._client.get(index=OPENSEARCH_INDEX, id=self._name, preference="_primary", ignore=404)
        if found.get("error"):
            raise JobFailed(f"the index {OPENSEARCH_INDEX!r} of OpenSearch is missing; it existed when the job started")
        if not found["found"]:
            self._condition = {"op_type": "create"}
            return None
        self._condition = {"if_seq_no": found["_seq_no"], "if_primary_term": found["_primary_term"]}
        source = found["_source"]
        return Span(source["epoch"], source["first"], source["end"])

    def write(self, span: Span) -> bool:
        """Write the entry if it has not changed since the last read. Returns whether it was written."""
        from opensearchpy.exceptions import ConflictError

        body = {"epoch": span.epoch, "first": span.first, "end": span.end}
        try:
            self._client.index(index=OPENSEARCH_INDEX, id=self._name, body=body, **self._condition)
        except ConflictError:
            return False
        return True

    def skip(self, output: str, ids: Sequence[str]) -> None:
        """Note that a group's output of an epoch is complete without some documents."""
        self._client.index(index=OPENSEARCH_INDEX, id=output, body={"skipped": ids})

    def skipped(self, output: str) -> set[str]:
        found = self._client.get(index=OPENSEARCH_INDEX, id=output, preference="_primary", ignore=404)
        return set(found["_source"]["skipped"]) if found.get("found") else set()


class SearchCommitter(Committer):
    """Writes a group's output."""

    def __init__(self, context: CommitterContext, client: SearchClient, index: str) -> None:
        self._context = context
        self._search = client
        self._index = index
        self._client: Any = None
        self._ledger: Ledger | None = None
        self.entry = entry_name(context, of_group=False)

    def commit(self, output: EpochOutput, newest: int) -> None:
        with raising_errors(self._what):
            refused, ledger = self._write(output, staged_rows(self._context, output.committables), newest)
            if refused and not refused.keys() <= ledger.skipped(self._prefix(output)):
                raise OutputRefused(next(iter(refused.values())))

    def commit_accepted(self, output: EpochOutput, newest: int, set_aside: Callable[[pa.Table], None]) -> None:
        """Until the ledger notes the refused documents, another call finds them again, and writes the others again."""
        with raising_errors(self._what):
            rows, prefix = staged_rows(self._context, output.committables), self._prefix(output)
            refused, ledger = self._write(output, rows, newest)
            if refused:
                documents = {document_id(row, at, prefix): row[2] for at, row in enumerate(rows) if row[0] == b"+"}
                set_aside(
                    pa.table(
                        {
                            "id": pa.array(refused, pa.string()),
                            "document": pa.array([(documents[id] or b"").decode() for id in refused], pa.string()),
                            "error": pa.array(refused.values(), pa.string()),
                        }
                    )
                )
                ledger.skip(prefix, sorted(refused))

    @property
    def _what(self) -> str:
        return f"{self._search.place}, index {self._index!r}"

    def _prefix(self, output: EpochOutput) -> str:
        return f"{self.entry}/{output.epoch}/{self._context.group}"

    def _write(self, output: EpochOutput, rows: Sequence[StagedRow], newest: int) -> tuple[dict[str, str], Ledger]:
        """Write a group's rows. Returns the documents that the index refuses: their ids, with the reasons."""
        if self._client is None:
            self._client = self._search.connect()
            self._ledger = Ledger(self._client, self.entry)
        assert self._ledger is not None
        refused: dict[str, str] = {}
        span = self._span(output.epoch, len(rows), newest)
        if span is not None:
            for number, chunk in enumerate(chunks(actions(rows, span.first, self._prefix(output)))):
                # OpenSearch keeps the versions of deleted documents only for a while, so check the ledger before each request.
                if number and self._span(output.epoch, len(rows), newest) is None:
                    break
                refused |= self._bulk(chunk)
        return refused, self._ledger

    def _span(self, epoch: int, rows: int, newest: int) -> Span | None:
        assert self._ledger is not None
        place = f"{self._search.place}: entry {self.entry!r} of the index {OPENSEARCH_INDEX!r}"
        while True:
            found = self._ledger.read()
            if found is not None:
                refuse_put_back(found.epoch, newest, place)
            span = next_span(found, epoch, rows, time.time_ns() // 1000)
            if span is None or span == found or self._ledger.write(span):
                return span

    def _bulk(self, chunk: Sequence[bytes]) -> dict[str, str]:
        """Send a request. Returns the refused documents: their ids, with the reasons."""
        answer = self._client.bulk(body=b"".join(chunk), index=self._index, params={"filter_path": _ERRORS})
        if not answer["errors"]:
            return {}
        refused: dict[str, str] = {}
        for item in answer["items"]:
            ((_, result),) = item.items()
            error = result.get("error")
            if error is None or error["type"] == "version_conflict_engine_exception":  # this version or a newer one exists
                continue
            cause = error.get("caused_by", {}).get("reason")
            reason = f"{error['reason']}: {cause}" if cause else error["reason"]
            what = f"{self._search.place}: document {result['_id']!r} of the index {self._index!r}"
            failed = failure(result["status"], error["type"], reason, what)
            if result["status"] != HTTPStatus.BAD_REQUEST:
                raise failed
            refused[result["_id"]] = str(failed)
        return refused

    def close(self) -> None:
        client, self._client, self._ledger = self._client, None, None
        if client is not None:
            client.close()


def actions(rows: Sequence[StagedRow], first: int, prefix: str) -> Iterator[bytes]:
    """The lines of bulk requests for a group's rows: the last row per id. ``first``: the version of the first row."""
    last = {row[1]: at for at, row in enumerate(rows) if row[1] is not None}
    for at, row in enumerate(rows):
        id = row[1]
        if id is None:
            yield _encoder.encode({"create": {"_id": document_id(row, at, prefix)}}) + b"\n" + (row[2] or b"") + b"\n"
        elif last[id] == at:
            meta = {"_id": document_id(row, at, prefix), "version": first + at, "version_type": "external_gte"}
            if row[0] == b"-":
                yield _encoder.encode({"delete": meta}) + b"\n"
            else:
                yield _encoder.encode({"index": meta}) + b"\n" + (row[2] or b"") + b"\n"


def document_id(row: StagedRow, at: int, prefix: str) -> str:
    id = row[1]
    return f"{prefix}/{at}" if id is None else id.decode()


def chunks(lines: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Splits lines into chunks for one request each."""
    chunk: list[bytes] = []
    size = 0
    for line in lines:
        if chunk and (len(chunk) >= CHUNK_DOCUMENTS or size + len(line) > CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(line)
        size += len(line)
    if chunk:
        yield chunk
