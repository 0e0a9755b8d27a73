"""Tables in an object store that speaks S3, whose requests fail at times."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

import forkpoint as fp
from forkpoint.errors import ConfigError, SystemUnavailable
from forkpoint.graph.options import RestartStrategy
from table_jobs import catalog, expected
from table_reading import run, sunk
from unreliable import BUCKET, Fault, UnreliableProxy, s3_environment, s3_server

ELEMENTS = 100


@pytest.fixture(scope="module")
def server() -> Iterator[UnreliableProxy]:
    with s3_server() as address:
        proxy = UnreliableProxy(address)
        yield proxy
        proxy.close()


@pytest.fixture
def store(server: UnreliableProxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[UnreliableProxy]:
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "WHEN_REQUIRED")  # the proxy knows no chunked requests
    server.met.clear()
    yield server
    server.heal()


class City(NamedTuple):
    id: int
    name: str


class Place:
    """A place for a table of one kind. ``endpoint``: where tests read it, past the faults."""

    def __init__(self, kind: str, store: UnreliableProxy, directory: Path) -> None:
        self.kind, self.store, self.directory = kind, store, directory
        self.url = f"s3://{BUCKET}/{uuid.uuid4().hex}"

    @property
    def delta_options(self) -> dict[str, str]:
        return {
            **s3_environment(self.store.endpoint),
            "max_retries": "2",
            "retry_timeout": "5s",
            "connect_timeout": "1s",
            "timeout": "2s",
        }

    @property
    def catalog(self) -> dict[str, str]:
        of_store = {
            "s3.endpoint": self.store.endpoint,
            "s3.access-key-id": "test",
            "s3.secret-access-key": "test",
            "s3.region": "us-east-1",
            "s3.connect-timeout": "1",
            "s3.request-timeout": "3",
        }
        return {**catalog(str(self.directory)), "warehouse": self.url, **of_store}

    def sink(self, **options: Any) -> Any:
        if self.kind == "delta":
            return fp.DeltaSink(self.url, storage_options=self.delta_options, **options)
        return fp.IcebergSink(self.catalog, "ns.counts", **options)

    def rows(self) -> list[tuple[Any, ...]]:
        if self.kind == "delta":
            found = DeltaTable(self.url, storage_options=self.delta_options).to_pyarrow_table()
        else:
            found = load_catalog("default", **self.catalog).load_table("ns.counts").scan().to_arrow()
        return sorted(tuple(row.values()) for row in found.to_pylist())


@pytest.fixture
def there(kind: str, store: UnreliableProxy, tmp_path: Path) -> Place:
    return Place(kind, store, tmp_path)


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_rows_arrive_once(there: Place, tmp_path: Path, mode: Any) -> None:
    key = ("key", "seen") if mode == "upsert" else ()
    run(tmp_path / "root", there.sink(mode=mode, key=key, schema_evolution=False), ELEMENTS)
    assert there.rows() == expected(ELEMENTS)


COMMITS = {"delta": r"create .*_delta_log/0+[1-9]\d*\.json", "iceberg": r"put .*/metadata/"}


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["error", "late error", "cut", "lost answer"])
def test_commits_that_fail_or_whose_answers_are_lost(there: Place, tmp_path: Path, fault: Any) -> None:
    there.store.inject(Fault(fault, on=COMMITS[there.kind], times=3), Fault(fault, on=r"put .*\.parquet", times=2))
    run(tmp_path / "root", there.sink(), ELEMENTS, restart=RestartStrategy.fixed_delay(5, 100))
    assert there.rows() == expected(ELEMENTS)
    assert there.store.met[f"{fault} create" if there.kind == "delta" else f"{fault} put"]


@pytest.mark.slow
def test_a_store_that_does_not_answer_a_commit(there: Place, tmp_path: Path) -> None:
    there.store.inject(Fault("hang", on=COMMITS[there.kind], times=1))
    run(tmp_path / "root", there.sink(), ELEMENTS, restart=RestartStrategy.fixed_delay(5, 100))
    assert there.rows() == expected(ELEMENTS)
    assert there.store.met["hang create" if there.kind == "delta" else "hang put"]


def test_a_catalog_that_is_away(store: UnreliableProxy, tmp_path: Path) -> None:
    there = Place("iceberg", store, tmp_path / "nowhere")
    with pytest.raises(SystemUnavailable, match=r"Iceberg table ns.counts does not work: .*unable to open database file"):
        run(tmp_path / "root", there.sink(), ELEMENTS)


def test_partitions_in_a_store(there: Place, tmp_path: Path) -> None:
    cities = [City(n, name) for n, name in enumerate(["a b/c", "ü%=+,@", "x"])]
    sunk(tmp_path / "root", cities, City, there.sink(partition_by=("name",)))
    assert there.rows() == sorted(map(tuple, cities))


def test_a_store_that_is_away(there: Place, tmp_path: Path) -> None:
    there.store.refuse()
    with pytest.raises(SystemUnavailable, match=r"table .* does not work: "):
        run(tmp_path / "root", there.sink(), ELEMENTS)


def test_credentials_that_are_wrong(there: Place, tmp_path: Path) -> None:
    there.store.inject(Fault("error", status=403))
    with pytest.raises(ConfigError, match=r"(?s)table .*: access is refused: .*Correct the credentials"):
        run(tmp_path / "root", there.sink(), ELEMENTS)
