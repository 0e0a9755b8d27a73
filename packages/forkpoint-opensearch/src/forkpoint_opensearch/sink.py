"""OpenSearchSink: writes the documents of a stream to an OpenSearch index."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from forkpoint.connectors.rows import RowsWriter
from forkpoint.contract.sink import Committer, CommitterContext, CommittingSink, SinkContext, SinkWriter
from forkpoint.contract.source import JSON
from forkpoint.errors import ConfigError
from forkpoint.types.variables import T_contra
from forkpoint_opensearch.client import SearchClient, raising_errors
from forkpoint_opensearch.committer import SearchCommitter, create_ledger
from forkpoint_opensearch.documents import DocumentEncoder


class OpenSearchSink(CommittingSink[T_contra]):
    """Writes documents to an OpenSearch index, effectively once: writes repeated after a failure are idempotent.

    An element is a record (a named tuple, dataclass, Row with names or dict), or a ``Change`` of Debezium's or Canal's messages,
    which may also delete a document. ``id``: the field with a document's id, or a function of an element; by default, documents
    are added with the sink's own ids. ``document``: a function that converts an element to a record, to a Row of the kind DELETE
    to delete its document, or to None to skip it. For a ``Change``, both functions get the rows before and after.

    ``hosts``: "host:port" or URLs. ``options``: for the client's OpenSearch, such as ``ca_certs``.

    Tasks stage output with its epoch and write it after the epoch's commit, with versions that grow with the epochs.
    """

    def __init__(
        self,
        hosts: str | Sequence[str],
        index: str,
        *,
        id: str | Callable[[Any], Any] | None = None,
        document: Callable[[Any], Any] | None = None,
        username: str | None = None,
        password: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        given = tuple(hosts.split(",")) if isinstance(hosts, str) else tuple(hosts)
        if not given or not all(given):
            raise ConfigError(f"OpenSearchSink: hosts is {hosts!r}; it must name at least one host")
        if not isinstance(index, str) or not index or index != index.lower():
            raise ConfigError(f"OpenSearchSink: index is {index!r}; it must be a name in lower case")
        if id is not None and not (callable(id) or (isinstance(id, str) and id)):
            raise ConfigError(f"OpenSearchSink: id is {id!r}; it must be a field's name or a function of an element")
        if document is not None and not callable(document):
            raise ConfigError(f"OpenSearchSink: document is {document!r}; it must be a function of an element")
        self._client = SearchClient(given, username, password, dict(options or {}))
        self._client.connect().close()
        self._index = index
        self._id = id
        self._document = document
        self._checked = False

    def create_writer(self, context: SinkContext) -> SinkWriter[T_contra]:
        return RowsWriter(context, DocumentEncoder(self._index, self._id, self._document))

    def check(self, committables: list[JSON]) -> None:
        if self._checked or not committables:
            return
        with raising_errors(self._client.place):
            client = self._client.connect()
            try:
                create_ledger(client)
            finally:
                client.close()
        self._checked = True

    def create_committer(self, context: CommitterContext) -> Committer:
        return SearchCommitter(context, self._client, self._index)

    def group(self, committable: JSON) -> str:
        group: str = committable["group"]
        return group

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_checked": False}
