"""The systems that jobs write to while they are killed."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import ExitStack, closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import redis
from confluent_kafka import Message
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from sqlalchemy.exc import OperationalError

import forkpoint as fp
from kills.job import PER_EPOCH, Counted, expected_matches, match_into
from kills.sql import Sql
from kills.sql_join import SqlJoin
from kills.system import Counting, System, TopicReader, Verdict
from object_stores.buckets import Bucket
from unreliable import s3_environment, s3_server

TOGETHER = timedelta(milliseconds=500)


class Kafka(Counting):
    def __init__(self, directory: Path) -> None:
        from servers.kafka import Kafka as Broker

        self.server: Broker = Broker(directory / "kafka")
        self._topic = self.server.create_topic(partitions=4)
        self._reader = TopicReader(self.server.bootstrap_servers, self._topic, 4, _counted)

    @property
    def address(self) -> str:
        return f"{self.server.bootstrap_servers}/{self._topic}"

    @staticmethod
    def sink(address: str) -> Any:
        brokers, _, topic = address.partition("/")
        records = fp.KafkaRecordSerializationSchema.builder().set_topic(topic).set_key_serialization_schema(_User())
        values = fp.JsonRowSerializationSchema(Counted)
        return (
            fp.KafkaSink.builder()
            .set_bootstrap_servers(brokers)
            .set_record_serializer(records.set_value_serialization_schema(values).build())
            .build()
        )

    def read(self) -> list[Counted]:
        return self._reader.read()

    def verdict(self, stop: int) -> Verdict:
        found = super().verdict(stop)
        return Verdict(found.records, {**found.faults, "out of order": sum(_disorder(self.read()))})


class Patterns(Kafka):
    """The matches of a pattern, to Kafka."""

    @classmethod
    def run(cls, address: str, root: str, stop: int) -> None:
        match_into(cls.sink(address), root, stop)

    def wanted(self, stop: int) -> list[Counted]:
        return expected_matches(stop)


def _counted(message: Message) -> Counted:
    return Counted(**json.loads(message.value() or b""))


def _disorder(found: list[Counted]) -> list[bool]:
    """Of each record, whether it comes before an earlier one of its user."""
    last: dict[int, int] = {}
    result = []
    for each in found:
        result.append(each.number < last.get(each.user, -1))
        last[each.user] = each.number
    return result


class _User(fp.SerializationSchema[Counted]):
    def serialize(self, element: Counted) -> bytes:
        return b"%d" % element.user


class Postgres(Counting):
    def __init__(self, directory: Path) -> None:
        from servers.postgres import Postgres as Database

        self.server: Database = Database(directory / "postgres")
        self.server.execute('CREATE TABLE counted (number BIGINT, "user" BIGINT, count BIGINT, id BIGSERIAL)')

    @property
    def address(self) -> str:
        return self.server.url

    @staticmethod
    def sink(address: str) -> Any:
        return fp.DatabaseSink(address, "counted")

    def read(self) -> list[Counted]:
        return [Counted(*row) for row in self.server.execute('SELECT number, "user", count FROM counted ORDER BY id')]

    def newest(self) -> int:
        (row,) = self.server.execute("SELECT COALESCE(MAX(number), -1) FROM counted")
        return int(row[0])


class Files(Counting):
    """A directory."""

    committed_by_tasks = False

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "files"

    @property
    def address(self) -> str:
        return str(self._directory)

    @staticmethod
    def sink(address: str) -> Any:
        return fp.FileSink.json(address)

    def read(self) -> list[Counted]:
        files = sorted(p for p in self._directory.rglob("*.json*") if not any(part.startswith((".", "_")) for part in p.parts))
        return [Counted(**json.loads(line)) for file in files for line in file.read_text().splitlines()]


class Objects(Counting):
    """Files in a bucket of S3."""

    committed_by_tasks = False

    def __init__(self, directory: Path) -> None:
        self._running = ExitStack()
        endpoint = "http://{}:{}".format(*self._running.enter_context(s3_server()))
        os.environ.update(s3_environment(endpoint))  # of this process, and the jobs that it starts
        self._bucket = Bucket(endpoint)
        self._read: dict[str, list[Counted]] = {}

    @property
    def address(self) -> str:
        return self._bucket.url("out")

    @staticmethod
    def sink(address: str) -> Any:
        return fp.FileSink.json(address)

    def read(self) -> list[Counted]:
        for path in self._bucket.visible("out"):
            if path not in self._read:
                lines = self._bucket.get(path).splitlines()
                self._read[path] = [Counted(**json.loads(line)) for line in lines]
        return [each for rows in self._read.values() for each in rows]

    def close(self) -> None:
        self._running.close()


class Delta(Counting):
    def __init__(self, directory: Path) -> None:
        self._directory = directory / "delta"

    @property
    def address(self) -> str:
        return str(self._directory)

    @staticmethod
    def sink(address: str) -> Any:
        return fp.DeltaSink(address)

    def read(self) -> list[Counted]:
        if not DeltaTable.is_deltatable(self.address):
            return []
        return _rows(DeltaTable(self.address).to_pyarrow_table())


class Iceberg(Counting):
    def __init__(self, directory: Path) -> None:
        self._directory = directory / "iceberg"
        self._directory.mkdir()

    @property
    def address(self) -> str:
        return str(self._directory)

    @staticmethod
    def sink(address: str) -> Any:
        return fp.IcebergSink(_catalog(address), "kills.counted")

    def read(self) -> list[Counted]:
        with suppress(NoSuchTableError, OperationalError):
            return _rows(SqlCatalog("default", **_catalog(self.address)).load_table("kills.counted").scan().to_arrow())
        return []

    def locked(self) -> bool:
        with closing(sqlite3.connect(self._directory / "catalog.db", timeout=0, isolation_level=None)) as catalog:
            try:
                catalog.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError:
                return True
        return False


class DeltaTogether(Delta):
    """Epochs are committed together."""

    @staticmethod
    def sink(address: str) -> Any:
        return fp.DeltaSink(address, commit_every=TOGETHER)


class IcebergTogether(Iceberg):
    """Epochs are committed together."""

    @staticmethod
    def sink(address: str) -> Any:
        return fp.IcebergSink(_catalog(address), "kills.counted", commit_every=TOGETHER)


def _catalog(directory: str) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{directory}/catalog.db", "warehouse": f"file://{directory}"}


def _rows(table: pa.Table) -> list[Counted]:
    return [Counted(*row) for row in zip(*(table.column(name).to_pylist() for name in Counted._fields), strict=True)]


class Redis(Counting):
    def __init__(self, directory: Path) -> None:
        from servers.redis_server import Redis as Store

        self.server: Store = Store(directory / "redis", "--appendonly", "yes", "--appendfsync", "always")
        self._client = redis.Redis.from_url(self.server.url)

    @property
    def address(self) -> str:
        return self.server.url

    @staticmethod
    def sink(address: str) -> Any:
        return fp.RedisSink(address, lambda counted: ("RPUSH", "counted", json.dumps(counted)))

    def read(self) -> list[Counted]:
        return self._from(0)

    def newest(self) -> int:
        return max((each.number for each in self._from(-2 * PER_EPOCH)), default=-1)  # two groups write side by side

    def _from(self, index: int) -> list[Counted]:
        return [Counted(*json.loads(each)) for each in self._client.lrange("counted", index, -1)]


class OpenSearch(Counting):
    def __init__(self, directory: Path) -> None:
        from servers.opensearch_server import OpenSearch as Node

        self.server: Node = Node(directory / "opensearch")

    @property
    def address(self) -> str:
        return self.server.url

    @staticmethod
    def sink(address: str) -> Any:
        return fp.OpenSearchSink(address, "counted", id=None)  # a record that came twice would be two documents

    def read(self) -> list[Counted]:
        with suppress(httpx.HTTPStatusError):  # there is no index yet
            self.server.request("POST", "counted/_refresh")
            highest, found = self._highest(), []
            for start in range(0, highest + 1, 5000):  # a search gives 10,000 documents at most
                numbers = {"range": {"number": {"gte": start, "lt": start + 5000}}}
                search = {"size": 10_000, "sort": ["number"], "query": numbers}
                found += self.server.request("POST", "counted/_search", search)["hits"]["hits"]
            return [Counted(**hit["_source"]) for hit in found]
        return []

    def newest(self) -> int:
        with suppress(httpx.HTTPStatusError):
            self.server.request("POST", "counted/_refresh")
            return self._highest()
        return -1

    def _highest(self) -> int:
        search = {"size": 0, "aggs": {"newest": {"max": {"field": "number"}}}}
        newest = self.server.request("POST", "counted/_search", search)["aggregations"]["newest"]["value"]
        return -1 if newest is None else int(newest)


class Cassandra(Counting):
    """Its rows have keys: a record that came twice would be one row."""

    def __init__(self, directory: Path) -> None:
        from servers.cassandra_server import Cassandra as Node

        self.server: Node = Node(directory / "cassandra")
        replicas = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        self.server.execute(f"CREATE KEYSPACE tests WITH replication = {replicas}")
        self.server.execute("CREATE TABLE tests.counted (number bigint, user bigint, count bigint, PRIMARY KEY (number))")

    @property
    def address(self) -> str:
        return self.server.address

    @staticmethod
    def sink(address: str) -> Any:
        from servers.cassandra_server import PASSWORD, USER

        return fp.CassandraSink(address, "tests", "counted", username=USER, password=PASSWORD, consistency="ONE")

    def read(self) -> list[Counted]:
        return [Counted(*row) for row in self.server.execute("SELECT number, user, count FROM tests.counted")]

    def newest(self) -> int:
        (row,) = self.server.execute("SELECT max(number) FROM tests.counted")
        return -1 if row[0] is None else int(row[0])


SYSTEMS: dict[str, type[System]] = {
    "kafka": Kafka,
    "postgres": Postgres,
    "files": Files,
    "s3": Objects,
    "delta": Delta,
    "iceberg": Iceberg,
    "redis": Redis,
    "delta-together": DeltaTogether,
    "iceberg-together": IcebergTogether,
    "opensearch": OpenSearch,
    "cassandra": Cassandra,
    "patterns": Patterns,
    "sql": Sql,
    "sql-join": SqlJoin,
}
