"""Tables of SQL with ``'connector' = 'opensearch'``, by the options of Flink's connector."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from forkpoint.connectors.rows import RowsWriter, StagedRow
from forkpoint.contract.sink import SinkBatch, SinkContext, SinkWriter
from forkpoint.table.connectors.keyed import KeyedDocuments, KeyTexts, changes_by_key
from forkpoint.table.connectors.options import TableOptions
from forkpoint.table.connectors.registry import Connector
from forkpoint_opensearch.documents import checked_id
from forkpoint_opensearch.sink import OpenSearchSink

_REQUESTS = "an epoch's documents are written in requests of up to 1,000 documents"
_RETRIES = "a commit is repeated until the cluster is available"
_UNNEEDED = {
    "sink.flush-on-checkpoint": "the documents of an epoch are written once it is committed",
    "sink.delivery-guarantee": "documents are written effectively once",
    "sink.parallelism": "SET 'parallelism.default' sets the job's",
    **dict.fromkeys(("sink.bulk-flush.max-actions", "sink.bulk-flush.max-size"), _REQUESTS),
    "sink.bulk-flush.interval": "'execution.checkpointing.interval' says how often documents are written",
    **{f"sink.bulk-flush.backoff.{name}": _RETRIES for name in ("strategy", "max-retries", "delay")},
}
_REFUSED = {"connection.path-prefix": "a path at the end of the URLs of 'hosts' is the prefix"}
_HANDLER = "failure-handler"


@dataclass(frozen=True)
class TableDocuments:
    """Staged documents, with the text of the primary key as their id."""

    rows: KeyedDocuments

    def __call__(self, batch: SinkBatch[Any]) -> Iterator[StagedRow]:
        for key, document in self.rows(batch):
            id = None if key is None else checked_id(key)
            yield [b"-", id] if document is None else [b"+", id, document]


class OpenSearchTableSink(OpenSearchSink[Any]):
    def __init__(self, hosts: list[str], index: str, documents: TableDocuments, **options: Any) -> None:
        super().__init__(hosts, index, **options)
        self._documents = documents

    def create_writer(self, context: SinkContext) -> SinkWriter[Any]:
        return RowsWriter(context, self._documents)


def _sink(options: TableOptions) -> OpenSearchTableSink:
    options.unneeded(_UNNEEDED)
    options.refuse(_REFUSED)
    options.choice("format", ("json",), "json")
    if options.choice(_HANDLER, ("fail", "retry-rejected", "ignore"), "fail") == "ignore":
        problem = "lost documents would not be noticed; forkpoint publish --skip-refused writes refused documents to a file"
        raise options.error(_HANDLER, f"'{_HANDLER}' = 'ignore' is not supported: {problem}")
    index = options.required("index")
    if "{" in index:
        raise options.error("index", "a table is written into one index; INSERT INTO a table for each index, with WHERE")
    keys = KeyTexts.of(options, "document-id.key-delimiter", "_")
    certificates = options.get("ca-certs")
    client: dict[str, Any] = {} if certificates is None else {"ca_certs": certificates}
    if options.flag("allow-insecure"):
        client |= {"verify_certs": False, "ssl_show_warn": False}
    return OpenSearchTableSink(
        [host.strip() for host in options.required("hosts").split(";")],
        index,
        TableDocuments(KeyedDocuments.of(options, keys)),
        username=options.get("username"),
        password=options.get("password"),
        options=client,
    )


CONNECTOR = Connector(None, _sink, changes_by_key, as_changes=True)
