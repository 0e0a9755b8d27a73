"""CassandraSink: writes the rows of a stream to a Cassandra table, by primary key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from forkpoint.connectors.rows import RowsWriter
from forkpoint.contract.sink import Committer, CommitterContext, CommittingSink, SinkContext, SinkWriter
from forkpoint.contract.source import JSON
from forkpoint.errors import ConfigError
from forkpoint.types.variables import T_contra
from forkpoint_cassandra.client import CassandraClient, raising_errors
from forkpoint_cassandra.committer import CONCURRENCY, CassandraCommitter, create_ledger
from forkpoint_cassandra.table import RowEncoder, TableName, read_table


class CassandraSink(CommittingSink[T_contra]):
    """Writes rows to a Cassandra table, effectively once: writes repeated after a failure are idempotent.

    An element is a record whose fields are columns (a named tuple, dataclass, Row with names or dict), or a ``Change`` of
    Debezium's or Canal's messages, which may also delete a row. ``row``: a function that converts an element to such a record,
    or to None to skip it. Columns that a record lacks stay unchanged; None deletes a value.

    ``hosts``: some hosts of the cluster, "host" or "host:port". ``consistency``: the consistency level of writes.
    ``concurrency``: the number of writes that a task has in flight. ``options``: for the driver's Cluster, such as
    ``ssl_context``.

    Tasks stage output with its epoch and write it after the epoch's commit, with timestamps that grow with the epochs.
    """

    def __init__(
        self,
        hosts: str | Sequence[str],
        keyspace: str,
        table: str,
        *,
        row: Callable[[T_contra], Any] | None = None,
        username: str | None = None,
        password: str | None = None,
        consistency: str = "LOCAL_QUORUM",
        local_datacenter: str | None = None,
        concurrency: int = CONCURRENCY,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        from cassandra import ConsistencyLevel

        if consistency not in ConsistencyLevel.name_to_value or "SERIAL" in consistency:
            raise ConfigError(f"CassandraSink: consistency is {consistency!r}; it must be a level of writes, say 'LOCAL_QUORUM'")
        if not isinstance(concurrency, int) or concurrency < 1:
            raise ConfigError(f"CassandraSink: concurrency is {concurrency!r}; it must be at least 1")
        given = tuple(hosts.split(",")) if isinstance(hosts, str) else tuple(hosts)
        if not given or not all(given):
            raise ConfigError(f"CassandraSink: hosts is {hosts!r}; it must name at least one host")
        client = CassandraClient(given, username, password, consistency, local_datacenter, dict(options or {}))
        self._name = TableName(client, keyspace, table)
        self._row = row
        self._concurrency = concurrency
        self._checked = False

    def create_writer(self, context: SinkContext) -> SinkWriter[T_contra]:
        encode = RowEncoder(self._name, self._row, f"{context.state_root} {context.job} {context.generation}")
        return RowsWriter(
            context,
            encode,
            lambda rows: {
                "count": len(rows),
                "columns": list(encode.table.statements.columns),
                "keys": encode.table.statements.keys,
                "types": encode.table.type_names,
            },
        )

    def check(self, committables: list[JSON]) -> None:
        if self._checked or not committables:
            return
        with raising_errors(self._name.place):
            cluster, session = self._name.client.connect()
            try:
                read_table(cluster, session, self._name)
                create_ledger(session, cluster, self._name.keyspace)
            finally:
                cluster.shutdown()
        self._checked = True

    def create_committer(self, context: CommitterContext) -> Committer:
        return CassandraCommitter(context, self._name, self._concurrency)

    def group(self, committable: JSON) -> str:
        group: str = committable["group"]
        return group

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_checked": False}
