"""The Cassandra sink against a real node: the newest row of each key, whoever dies, sleeps or comes late."""

from __future__ import annotations

import datetime
import decimal
import json
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import forkpoint as fp
from background import InBackground
from cassandra_writing import sink
from forkpoint.checkpoint.manifest import EpochOutput
from forkpoint.connectors.rows import pack
from forkpoint.connectors.upserts import RowChange
from forkpoint.contract.sink import CommitterContext, stage
from forkpoint.driver.commit import publisher
from forkpoint.errors import ConfigError, ForkpointError, JobFailed, SystemUnavailable
from forkpoint.types import RowKind
from forkpoint_cassandra import client as cassandra_client
from forkpoint_cassandra import committer, table
from forkpoint_cassandra.client import CassandraClient
from forkpoint_cassandra.committer import CassandraCommitter
from forkpoint_cassandra.table import TableName, known_table
from key_counts import counts_of, job, program, run, run_elements
from servers.cassandra_server import PASSWORD, USER, Cassandra

PROGRAM = Path(__file__).with_name("cassandra_writing.py")
ELEMENTS = 600


USUAL = "key int PRIMARY KEY, seen bigint"


def create(node: Cassandra, columns: str = USUAL) -> str:
    name = f"t{uuid.uuid4().hex[:12]}"
    node.execute(f"CREATE TABLE tests.{name} ({columns})")
    return name


def rows(node: Cassandra, name: str, what: str = "*") -> list[tuple[Any, ...]]:
    return sorted(map(tuple, node.execute(f"SELECT {what} FROM tests.{name}")))


def newest(elements: int) -> list[tuple[int, int]]:
    return [(key, counts[-1]) for key, counts in counts_of(elements).items()]


def every(elements: int) -> list[tuple[int, int]]:
    return [(key, count) for key, counts in counts_of(elements).items() for count in counts]


def test_the_newest_row_of_each_key_is_there(cassandra: Cassandra, tmp_path: Path) -> None:
    name = create(cassandra)
    run(tmp_path, sink(cassandra.address, name), ELEMENTS)
    assert rows(cassandra, name) == newest(ELEMENTS)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["read", "read+", "note", "note+", "row"])
def test_a_driver_that_is_killed_at_a_step_of_writing(cassandra: Cassandra, tmp_path: Path, step: str) -> None:
    name = create(cassandra, "key int, seen bigint, PRIMARY KEY (key, seen)")
    for number in (1, 7):
        died = program(PROGRAM, cassandra.address, name, tmp_path, ELEMENTS, step, number)
        assert died.returncode == -9, died.stderr
    ended = program(PROGRAM, cassandra.address, name, tmp_path, ELEMENTS)
    assert ended.returncode == 0, ended.stderr
    assert rows(cassandra, name) == every(ELEMENTS)


# -- another one at the same commit


def table_name(node: Cassandra, name: str) -> TableName:
    return TableName(CassandraClient((node.address,), USER, PASSWORD, "ONE"), "tests", name)


def new_committer(node: Cassandra, root: Path, name: str, group: str = "0") -> CassandraCommitter:
    context = CommitterContext("sink", root.name, group, "0123", str(root))
    return CassandraCommitter(context, table_name(node, name), 16)


def output(node: Cassandra, root: Path, name: str, epoch: int, changes: Sequence[dict[str, Any] | None]) -> EpochOutput:
    """Rows to be written; one without its ``seen`` is deleted."""
    known = known_table(table_name(node, name))
    staged = [known.encoded(RowChange("seen" not in each, each)) for each in changes if each is not None]
    committable = {
        "group": "0",
        "rows": stage(str(root), f"staged/{epoch}-{uuid.uuid4()}", pack(staged)),
        "count": len(staged),
        "columns": list(known.statements.columns),
        "keys": known.statements.keys,
        "types": known.type_names,
    }
    return EpochOutput(epoch=epoch, committables=[committable])


@pytest.fixture
def ledger(cassandra: Cassandra) -> None:
    cassandra.execute(
        "CREATE TABLE IF NOT EXISTS tests.forkpoint_epochs (name text PRIMARY KEY, epoch bigint, first_us bigint, end_us bigint)"
    )


@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize("place", ["_span", "_write"])
def test_an_older_driver_that_wakes_up_changes_nothing(
    cassandra: Cassandra, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """It sleeps before it looks at the ledger, or after, while others go on for an epoch, which deletes a row, too."""
    name = create(cassandra)
    first = output(cassandra, tmp_path, name, 1, [{"key": 1, "seen": 1}, {"key": 2, "seen": 1}])
    second = output(cassandra, tmp_path, name, 2, [{"key": 1, "seen": 2}, {"key": 2}])
    usual = getattr(CassandraCommitter, place)

    def sleeps(self: CassandraCommitter, *arguments: Any) -> Any:
        monkeypatch.setattr(CassandraCommitter, place, usual)
        for one in (first, second):
            other = new_committer(cassandra, tmp_path, name)
            other.commit(one, 2)
            other.close()
        return usual(self, *arguments)

    monkeypatch.setattr(CassandraCommitter, place, sleeps)
    slow = new_committer(cassandra, tmp_path, name)
    slow.commit(first, 2)
    assert rows(cassandra, name) == [(1, 2)]
    slow.commit(second, 2)
    slow.close()
    assert rows(cassandra, name) == [(1, 2)]


@pytest.mark.usefixtures("ledger")
def test_a_repeated_commit_writes_the_same(cassandra: Cassandra, tmp_path: Path) -> None:
    """Also beside what somebody else has written since."""
    name = create(cassandra)
    first = output(cassandra, tmp_path, name, 1, [{"key": 1, "seen": 1}, {"key": 2, "seen": 1}])
    one = new_committer(cassandra, tmp_path, name)
    one.commit(first, 1)
    before = rows(cassandra, name, "key, seen, writetime(seen)")
    cassandra.execute(f"UPDATE tests.{name} SET seen = 100 WHERE key = 2")
    one.commit(first, 1)
    one.close()
    assert rows(cassandra, name) == [(1, 1), (2, 100)]
    assert rows(cassandra, name, "key, seen, writetime(seen)")[0] == before[0]


@pytest.mark.usefixtures("ledger")
def test_groups_share_the_versions_of_an_epoch(cassandra: Cassandra, tmp_path: Path) -> None:
    """A key may be in another group in the next epoch, on a host whose clock is behind."""
    name = create(cassandra)
    groups = [new_committer(cassandra, tmp_path, name, group) for group in ("0", "1")]
    groups[0].commit(output(cassandra, tmp_path, name, 1, [{"key": 5, "seen": 1}]), 1)
    groups[1].commit(output(cassandra, tmp_path, name, 1, [{"key": key, "seen": 1} for key in range(3)]), 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(committer.time, "time_ns", lambda: 1_000_000)
        groups[0].commit(output(cassandra, tmp_path, name, 2, [{"key": 2, "seen": 2}]), 2)
        groups[1].commit(output(cassandra, tmp_path, name, 2, [{"key": 5, "seen": 2}]), 2)
    for each in groups:
        each.close()
    assert rows(cassandra, name) == [(0, 1), (1, 1), (2, 2), (5, 2)]


@pytest.mark.usefixtures("ledger")
def test_the_order_within_an_epoch_counts(cassandra: Cassandra, tmp_path: Path) -> None:
    name = create(cassandra, "key int PRIMARY KEY, seen bigint, note text")
    cassandra.execute(f"INSERT INTO tests.{name} (key, seen, note) VALUES (3, 0, 'old')")
    changes = [
        {"key": 1, "seen": 1},
        {"key": 1},
        {"key": 2},
        {"key": 2, "seen": 2},
        {"key": 3, "seen": 3, "note": None},
        {"key": 4, "seen": 1, "note": "a"},
        {"key": 4, "seen": 2},
        {"key": 5, "seen": 1, "note": "b"},
        {"key": 5},
        {"key": 5, "seen": 2},
    ]
    one = new_committer(cassandra, tmp_path, name)
    one.commit(output(cassandra, tmp_path, name, 1, changes), 1)
    one.close()
    assert rows(cassandra, name, "key, seen, note") == [(2, 2, None), (3, 3, None), (4, 2, "a"), (5, 2, None)]


@pytest.mark.usefixtures("ledger")
def test_a_state_root_that_was_put_back_is_refused(cassandra: Cassandra, tmp_path: Path) -> None:
    name = create(cassandra)
    one = new_committer(cassandra, tmp_path, name)
    one.commit(output(cassandra, tmp_path, name, 9, [{"key": 1, "seen": 9}]), 9)
    with pytest.raises(JobFailed, match=r"entry '0123/.*/sink' .*epoch 9 was committed, but the job's newest is 2\."):
        one.commit(output(cassandra, tmp_path, name, 2, [{"key": 1, "seen": 2}]), 2)
    one.close()
    assert rows(cassandra, name) == [(1, 9)]


def test_a_job_that_starts_over_replaces_older_rows(cassandra: Cassandra, tmp_path: Path) -> None:
    """Its epochs begin with 1 again; its timestamps don't."""
    name = create(cassandra)
    run(tmp_path / "1", sink(cassandra.address, name), 300)
    run(tmp_path / "2", sink(cassandra.address, name), 100)
    assert rows(cassandra, name) == newest(100)


# -- elements


class Stored(NamedTuple):
    key: int
    seen: int


def test_change_records_delete_rows(cassandra: Cassandra, tmp_path: Path) -> None:
    name = create(cassandra)
    messages = [
        {"op": "c", "before": None, "after": {"key": 1, "seen": 1}},
        {"op": "c", "before": None, "after": {"key": 2, "seen": 1}},
        {"op": "u", "before": {"key": 2, "seen": 1}, "after": {"key": 3, "seen": 2}},
        {"op": "d", "before": {"key": 1, "seen": 1}, "after": None},
        {"op": "r", "before": None, "after": {"key": 4, "seen": 1}},
    ]
    schema = fp.DebeziumJsonDeserializationSchema(Stored)
    (part,) = schema.read(pa.array([json.dumps(each).encode() for each in messages], pa.binary()))
    changes = list(schema.get_produced_type().from_columns(part.elements.columns))
    run_elements(tmp_path, sink(cassandra.address, name), changes, schema.get_produced_type())
    assert rows(cassandra, name) == [(3, 2), (4, 1)]


def test_rows_of_a_kind_and_a_function(cassandra: Cassandra, tmp_path: Path) -> None:
    name = create(cassandra)

    def row(n: int) -> Any:
        if n == 0:
            return None
        return fp.Row.of_kind(RowKind.DELETE, key=1) if n == 5 else {"key": n % 3, "seen": n}

    run_elements(tmp_path, sink(cassandra.address, name, row=row), list(range(6)), int)
    assert rows(cassandra, name) == [(0, 3), (2, 2)]


class Everything(NamedTuple):
    key: str
    flag: bool
    small: int
    number: float
    amount: decimal.Decimal
    day: datetime.date
    at: datetime.datetime
    data: bytes
    id: uuid.UUID
    words: list[str]
    counts: dict[str, int]
    nothing: str | None


def test_values_of_all_types(cassandra: Cassandra, tmp_path: Path) -> None:
    columns = (
        "key text PRIMARY KEY, flag boolean, small smallint, number double, amount decimal, day date, at timestamp, data blob, "
        "id uuid, words list<text>, counts map<text, int>, nothing text"
    )
    name = create(cassandra, columns)
    at = datetime.datetime(2024, 5, 6, 7, 8, 9, 123000)  # noqa: DTZ001  (UTC, as Cassandra has it)
    one = Everything(
        "ä", True, 7, 0.1, decimal.Decimal("1.20"), at.date(), at, b"\x00", uuid.UUID(int=5), ["a", ""], {"x": 1}, None
    )
    run_elements(tmp_path, sink(cassandra.address, name), [one], Everything)
    (found,) = cassandra.execute(f"SELECT * FROM tests.{name}")
    assert (found.key, found.flag, found.small, found.number, found.amount) == one[:5]
    assert (found.day.date(), found.at, found.data, found.id) == one[5:9]
    assert (found.words, dict(found.counts), found.nothing) == one[9:]


@pytest.mark.parametrize(
    ("columns", "row", "message"),
    [
        (USUAL, lambda n: {"key": n, "other": 1}, r"has no column 'other'; it has key, seen; add it"),
        (USUAL, lambda n: {"seen": n}, r"\{'seen': 1\} lacks 'key', which is part of the table"),
        (USUAL, lambda n: {"key": None, "seen": n}, "lacks 'key'"),
        (USUAL, lambda n: {"key": n, "seen": "x"}, r"column 'seen' .* of type bigint, and 'x' is not"),
        (USUAL, lambda n: {"key": 2**40, "seen": 1}, r"column 'key' .* of type int, and 1099511627776"),
        (USUAL, lambda n: n, "1 has no named fields; write records"),
        ("key int PRIMARY KEY, seen counter", lambda n: {"key": n}, "has counters"),
    ],
)
def test_rows_that_are_impossible_fail_before_their_epoch_is_committed(
    cassandra: Cassandra, tmp_path: Path, columns: str, row: Any, message: str
) -> None:
    name = create(cassandra, columns)
    with pytest.raises(ForkpointError, match=message):
        run_elements(tmp_path, sink(cassandra.address, name, row=row), [1], int)
    assert rows(cassandra, name) == []


def test_a_column_that_is_added_while_a_job_runs(cassandra: Cassandra, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "_FRESH_SECONDS", 0)
    name = create(cassandra)
    run_elements(tmp_path / "1", sink(cassandra.address, name, row=lambda n: {"key": n, "seen": n}), [1], int)
    cassandra.execute(f"ALTER TABLE tests.{name} ADD note text")
    run_elements(tmp_path / "2", sink(cassandra.address, name, row=lambda n: {"key": n, "note": "x"}), [1], int)
    assert rows(cassandra, name, "key, seen, note") == [(1, 1, "x")]


def test_a_table_that_is_created_anew_with_other_types(cassandra: Cassandra, tmp_path: Path) -> None:
    """int and float have four bytes each. The next run looks at the table again, also in the same process."""
    name = create(cassandra, "key int PRIMARY KEY, seen int")
    run_elements(tmp_path / "1", sink(cassandra.address, name, row=lambda n: {"key": n, "seen": n}), [1], int)
    staged = output(cassandra, tmp_path, name, 1, [{"key": 1, "seen": 1}])
    cassandra.execute(f"DROP TABLE tests.{name}")
    cassandra.execute(f"CREATE TABLE tests.{name} (key int PRIMARY KEY, seen float)")
    one = new_committer(cassandra, tmp_path, name)
    with pytest.raises(JobFailed, match=r"column 'seen' of tests\.\w+ was of type int .* and is now of type float"):
        one.commit(staged, 1)
    one.close()
    run_elements(tmp_path / "2", sink(cassandra.address, name, row=lambda n: {"key": n, "seen": n}), [1], int)
    assert rows(cassandra, name) == [(1, 1.0)]


# -- a node that fails, and settings


@pytest.mark.slow
def test_a_node_that_stalls_and_one_that_is_killed(cassandra: Cassandra, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "SLOW_SECONDS", 0.5)
    monkeypatch.setattr(cassandra_client, "ANSWER_SECONDS", 2.0)
    name, elements = create(cassandra, "key int, seen bigint, PRIMARY KEY (key, seen)"), 5_000
    running = InBackground(job(tmp_path, sink(cassandra.address, name), elements))
    running.wait_for(lambda s: s.epoch >= 5)
    cassandra.pause()
    status = running.wait_for(lambda s: s.publishing_problem is not None)
    assert status.state == "running", running.result
    time.sleep(3)  # clients give up
    cassandra.resume()
    epoch = running.driver.status().epoch
    running.wait_for(lambda s: s.epoch >= epoch + 10)
    cassandra.kill()
    status = running.wait_for(lambda s: s.publishing_problem is not None)
    assert status.state == "running", running.result
    assert "sink 'sink'" in status.publishing_problem
    cassandra.start()
    assert running.end().outcome == "finished"
    assert rows(cassandra, name) == every(elements)


def test_a_wrong_password(cassandra: Cassandra, tmp_path: Path) -> None:
    name = create(cassandra)
    for options in ({"password": "wrong"}, {"username": None}):
        with pytest.raises(ConfigError, match=r"Cassandra at 127\.0\.0\.1:\d+: .*([Aa]uthenticat|requires)") as raised:
            run(tmp_path, sink(cassandra.address, name, **options), 100)
        assert "wrong" not in str(raised.value)


def test_a_user_without_rights(cassandra: Cassandra, tmp_path: Path) -> None:
    name = create(cassandra)
    cassandra.execute("CREATE ROLE IF NOT EXISTS reader WITH PASSWORD = 'r' AND LOGIN = true")
    with pytest.raises(ConfigError, match=r"reader .*Grant this user the right"):
        run(tmp_path, sink(cassandra.address, name, username="reader", password="r"), 100)


def test_a_table_that_is_missing(cassandra: Cassandra, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no table 'tests\.nowhere'; create it"):
        run(tmp_path, sink(cassandra.address, "nowhere"), 100)


def test_a_node_that_cannot_be_reached(tmp_path: Path) -> None:
    with pytest.raises(SystemUnavailable, match=r"Cassandra at 127\.0\.0\.1:1 does not work: "):
        run(tmp_path, sink("127.0.0.1:1", "t"), 100)


def test_arguments_that_are_impossible() -> None:
    with pytest.raises(ConfigError, match="consistency is 'SERIAL'"):
        fp.CassandraSink("h", "k", "t", consistency="SERIAL")
    with pytest.raises(ConfigError, match="hosts is ''; it must name"):
        fp.CassandraSink("", "k", "t")
    with pytest.raises(ConfigError, match="concurrency is 0"):
        fp.CassandraSink("h", "k", "t", concurrency=0)
