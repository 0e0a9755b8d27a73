"""What the reader shows of every kind of state."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from saved_job import EVENTS, Event, Total, saved

import forkpoint as fp
from forkpoint.state_processor import SavepointReader, SavepointWriter

USERS = sorted({event.user for event in EVENTS})
OF = {user: [event.amount for event in EVENTS if event.user == user] for user in USERS}


@pytest.fixture(scope="module")
def savepoint(tmp_path_factory: pytest.TempPathFactory) -> SavepointReader:
    return saved(tmp_path_factory.mktemp("saved"), parallelism=3, max_parallelism=16)


def test_values_as_tables_and_objects(savepoint: SavepointReader) -> None:
    state = savepoint.state("everything", "total")
    table = state.to_arrow()
    assert table.schema == state.schema
    assert table.column_names == ["key_group", "key", "count", "sum"]
    assert {row["key"]: (row["count"], row["sum"]) for row in table.to_pylist()} == {
        user: (len(amounts), sum(amounts)) for user, amounts in OF.items()
    }
    frame = state.to_pandas()
    assert frame["sum"].sum() == sum(event.amount for event in EVENTS)
    assert {entry.key: entry.value for entry in state.rows()} == {u: Total(len(a), sum(a)) for u, a in OF.items()}
    assert isinstance(next(state.batches()), pa.RecordBatch)
    assert state.to_reader().read_all() == table


@pytest.mark.parametrize("user", USERS)
def test_what_one_key_has(savepoint: SavepointReader, user: str) -> None:
    amounts = OF[user]
    odd = sum(amount % 2 for amount in amounts)

    def get(name: str) -> object:
        return savepoint.state("everything", name).get(user)

    assert get("total") == get("mean") == (len(amounts), sum(amounts))
    assert (get("aged"), get("sum"), get("anything")) == (amounts[-1], sum(amounts), {"last": amounts[-1]})
    assert get("amounts") == amounts
    assert get("by parity") == {"odd": odd, "even": len(amounts) - odd}
    timers = savepoint.timers("everything").get(user)
    times = [event.time for event in EVENTS if event.user == user]
    assert [t.timestamp for t in timers if t.domain == "event"] == [time + 10_000 for time in times]
    assert [t.timestamp for t in timers if t.domain == "processing"] == [time + 10**13 for time in times]
    assert [t.domain for t in savepoint.timers("everything", "event").get(user)] == ["event"] * len(times)


def test_a_key_that_has_nothing_and_one_of_another_type(savepoint: SavepointReader) -> None:
    assert savepoint.state("everything", "total").get("nobody") is None
    assert savepoint.timers("everything").get("nobody") == []
    with pytest.raises(fp.TypeNotSupported):
        savepoint.state("everything", "total").get(object())
    with pytest.raises(fp.ConfigError, match="has no keys"):
        savepoint.state("buffer", "seen").get("u1")


def test_windows_by_their_bounds(savepoint: SavepointReader) -> None:
    contents = savepoint.state("windows", "window-contents")
    assert contents.to_arrow().column_names == [
        "key_group",
        "key",
        "namespace_start",
        "namespace_end",
        "user",
        "amount",
        "time",
    ]
    last = [event for event in EVENTS if event.time >= 3000]
    for user in USERS:
        (window,) = contents.get(user)
        assert (window.start, window.end) == (3000, 4000)
        assert contents.get(user)[window][1] == sum(event.amount for event in last if event.user == user)
    assert {timer.timestamp for timer in savepoint.timers("windows").rows()} == {3999}


def test_operator_state_by_subtask(savepoint: SavepointReader) -> None:
    seen = savepoint.state("buffer", "seen")
    assert seen.kind == "operator-list"
    assert sorted(entry.value for entry in seen.rows()) == sorted(event.user for event in EVENTS)
    known = {entry.value for entry in savepoint.state("buffer", "known").rows()}
    assert known == {(event.user, event.amount) for event in EVENTS}


def test_times_to_live_are_a_column(savepoint: SavepointReader) -> None:
    aged = savepoint.state("everything", "aged")
    assert aged.schema.names[-1] == "ttl_stamp"
    assert all(entry.ttl_stamp > 0 for entry in aged.rows())


def test_positions_watermarks_and_metadata(savepoint: SavepointReader) -> None:
    assert savepoint.positions["events"].position["next"] == [len(EVENTS)]  # type: ignore[index, call-overload]
    assert savepoint.watermarks["everything"] == EVENTS[-1].time - 1
    assert savepoint.metadata.job == "test"
    assert savepoint.parent.kind == "none"
    assert {"buffer", "everything", "windows"} <= set(savepoint.operators)
    assert savepoint.verify().entries == sum(state.count for state in savepoint.states)


def test_unknown_names_are_told_with_close_ones(savepoint: SavepointReader) -> None:
    with pytest.raises(fp.StateNotFound, match="did you mean 'everything'"):
        savepoint.state("evrything", "total")
    with pytest.raises(fp.StateNotFound, match=r"no state 'totals'; did you mean 'total'.*'aged'"):
        savepoint.state("everything", "totals")
    with pytest.raises(fp.StateNotFound, match="no state 'timers'"):
        savepoint.timers("buffer")
    with pytest.raises(fp.ConfigError, match="'wall' is neither 'event' nor 'processing'"):
        savepoint.timers("everything", "wall")


def test_timers_of_one_time_only(tmp_path: Path) -> None:
    timers = {"key": [1], "timestamp": [5]}
    made = SavepointWriter.new_savepoint("timers").with_timers("op", timers, key_type=int).write(tmp_path / "made")
    assert made.timers("op", "event").count == 1
    with pytest.raises(fp.StateNotFound, match="no state 'processing timers'"):
        made.timers("op", "processing")


def test_savepoints_are_found_by_job_and_label(tmp_path: Path) -> None:
    made = saved(tmp_path)
    assert SavepointReader.find(tmp_path, "test").metadata.id == made.metadata.id
    with pytest.raises(fp.SavepointNotFound, match=made.metadata.id):
        SavepointReader.find(tmp_path, "test", "spring")
    with pytest.raises(fp.SavepointNotFound):
        SavepointReader.read(tmp_path / "nowhere")


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    made = saved(tmp_path)
    (file,) = (tmp_path / "savepoints/test" / made.metadata.id / "operators/everything/sum").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    for look in (lambda s: s.state("everything", "sum").to_arrow(), lambda s: s.query("SELECT * FROM everything.sum")):
        with pytest.raises(fp.SavepointCorrupt, match=r"everything/sum/part-0.parquet: has \d+ bytes"):
            look(made)
    made.query("SELECT * FROM everything.mean")


# -- SQL


def test_every_state_is_a_view(savepoint: SavepointReader) -> None:
    for (schema, view), state in savepoint.views().items():
        found = savepoint.query(f'SELECT * FROM "{schema}"."{view}"')
        assert found.num_rows == state.count
        assert found.column_names == state.schema.names


def test_sql_joins_states(savepoint: SavepointReader) -> None:
    found = savepoint.query(
        "SELECT t.key, t.sum, count(*) AS n FROM everything.total t JOIN everything.amounts a USING (key) "
        "GROUP BY ALL HAVING t.sum > 110 ORDER BY key"
    )
    wanted = [{"key": u, "sum": sum(a), "n": len(a)} for u, a in OF.items() if sum(a) > 110]
    assert found.to_pylist() == wanted
    timers = savepoint.query("SELECT max(timestamp) AS t FROM everything.timers WHERE domain = 'event'")
    assert timers.to_pylist() == [{"t": EVENTS[-1].time + 10_000}]


def test_what_is_wrong_with_a_query(savepoint: SavepointReader) -> None:
    with pytest.raises(fp.EditRefused, match="selec"):
        savepoint.query("selec 1")
    with pytest.raises(fp.StateNotFound, match="did you mean 'total'"):
        savepoint.query("SELECT * FROM everything.totl")
    with pytest.raises(fp.StateNotFound, match="no operator 'nothing'"):
        savepoint.query("SELECT * FROM nothing.total")
    with pytest.raises(fp.EditRefused, match="amnt"):
        savepoint.query("SELECT amnt FROM everything.total")
    with pytest.raises(fp.EditRefused, match="SELECT"):
        savepoint.query("DROP VIEW everything.total")


def test_an_event_is_a_record_again(savepoint: SavepointReader) -> None:
    assert Event(*savepoint.state("windows", "window-contents").rows().__next__().value).user in USERS
