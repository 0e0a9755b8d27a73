"""Changes held in memory in front of a store: what is read, what reaches the store, and what other processes do to it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from example_counts import examples
from forkpoint.errors import StorageError
from forkpoint.state import Changes, WriteBackStore, open_store, sid_range, state_key, timer_key, timer_range
from forkpoint.state.store import Found

STATE, TIMERS = 7, 8
keys = st.builds(
    lambda group, state, key: state_key(group, state, key),
    st.integers(0, 3),
    st.sampled_from([STATE, 9]),
    st.binary(min_size=1, max_size=2),
) | st.builds(lambda group, at: timer_key(group, TIMERS, at, b"k"), st.integers(0, 3), st.integers(-5, 5))
changes = st.lists(st.tuples(keys, st.none() | st.binary(max_size=8)), max_size=12).map(
    lambda items: Changes([k for k, _ in items], [v for _, v in items])
)
ranges = st.builds(sid_range, st.integers(0, 3), st.sampled_from([STATE, TIMERS, 9])) | st.builds(
    lambda group, at: timer_range(group, TIMERS, at), st.integers(0, 3), st.integers(-5, 5)
)
steps = st.lists(
    st.tuples(st.just("apply"), changes)
    | st.tuples(st.just("get_many"), st.lists(keys, max_size=12))
    | st.tuples(st.just("scan"), ranges)
    | st.tuples(st.just("scan"), st.just((b"\0", b"\xff" * 7)))
    | st.tuples(st.just("crash"), st.none())
    | st.tuples(st.just("other"), st.none())
    | st.tuples(st.just("clear"), st.none()),
    max_size=30,
)


class Run:
    """A store and all states it ever had, by version. ``other`` is what another process has of the same store."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store, self.other = self.open(), self.open()
        self.models: list[dict[bytes, bytes]] = [{}]
        self.changes: list[Changes] = [Changes([], [])]

    def open(self) -> WriteBackStore:
        return WriteBackStore(open_store("lmdb", self.path), max_entries=8)

    def catch_up(self) -> None:
        """As a subtask does before its epoch: whatever version the store has, the changelog leads on from there."""
        for version in range(self.store.version + 1, len(self.models)):
            self.store.apply(self.changes[version], version, version - 1)

    def do_apply(self, one: Changes) -> None:
        self.catch_up()
        model = dict(self.models[-1])
        for key, value in zip(one.keys, one.values, strict=True):
            model.pop(key, None)
            if value is not None:
                model[key] = value
        self.models.append(model)
        self.changes.append(one)
        self.catch_up()
        self.check_occupied()

    def check_occupied(self) -> None:
        """As timers are asked for in each epoch: which of all states' ranges have entries."""
        wanted = [sid_range(group, sid) for group in range(4) for sid in (STATE, TIMERS, 9)]
        having = {bounds for bounds in wanted if any(bounds[0] <= key < bounds[1] for key in self.models[-1])}
        assert set(self.store.occupied(wanted)) == having

    def do_get_many(self, wanted: list[bytes]) -> None:
        self.catch_up()
        assert self.store.get_many(wanted) == [self.models[-1].get(key) for key in wanted]

    def do_scan(self, bounds: tuple[bytes, bytes]) -> None:
        self.catch_up()
        expected = sorted((k, v) for k, v in self.models[-1].items() if bounds[0] <= k < bounds[1])
        found = self.store.occupied([bounds, (bounds[1], bounds[1] + b"\xff")])
        assert found[: len(expected)] == [bounds][: len(expected)]
        of_prefix = sorted(item for item in self.models[-1].items() if item[0].startswith(bounds[0]))
        assert self.store.scan_prefixes([bounds[0]]) == Found.of([of_prefix])
        assert list(self.store.scan(*bounds)) == expected

    def do_crash(self, _: None) -> None:
        self.store = self.open()

    def do_other(self, _: None) -> None:
        """The next task goes to the other process."""
        self.store, self.other = self.other, self.store

    def do_clear(self, _: None) -> None:
        self.store.clear()
        assert self.store.version == 0


@given(sequence=steps)
@examples(60)
def test_two_processes_in_turn_read_what_was_committed(sequence: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        run = Run(Path(directory) / "store")
        for name, argument in sequence:
            getattr(run, f"do_{name}")(argument)
            assert run.store.version <= len(run.models) - 1
        run.do_scan((b"\0", b"\xff" * 7))


def put(*items: tuple[bytes, bytes | None]) -> Changes:
    return Changes([k for k, _ in items], [v for _, v in items])


def test_what_is_held_reaches_the_store_when_there_is_much_of_it_or_a_scan_needs_it(tmp_path: Path) -> None:
    inner = open_store("lmdb", tmp_path / "store")
    store = WriteBackStore(inner, max_entries=3)
    store.apply(put((state_key(0, STATE, b"a"), b"1")), 1, 0)
    assert (store.version, inner.version) == (1, 0)
    assert list(store.scan(*timer_range(0, TIMERS, 99))) == []
    assert inner.version == 0, "no timer is held, so this scan needs nothing of what is"
    assert [v for _, v in store.scan(*sid_range(0, STATE))] == [b"1"]
    assert inner.version == 1
    store.apply(put(*((state_key(0, STATE, bytes([i])), b"2") for i in range(4))), 2, 1)
    assert inner.version == 2, "more than three are not held"
    store.close()


@pytest.mark.parametrize("entries", [1, 20])
def test_a_range_without_entries_gets_some(tmp_path: Path, entries: int) -> None:
    """Also when there are so many that they go to the store directly."""
    store = WriteBackStore(open_store("lmdb", tmp_path / "store"), max_entries=8)
    of_state, of_timers = sid_range(1, STATE), sid_range(1, TIMERS)
    for _ in range(2):
        assert store.occupied([of_state, of_timers]) == []
    store.apply(put(*((state_key(1, STATE, b"%d" % n), b"v") for n in range(entries))), 1, 0)
    assert store.occupied([of_state, of_timers]) == [of_state]


def test_deletes_are_held_too(tmp_path: Path) -> None:
    store = WriteBackStore(open_store("lmdb", tmp_path / "store"))
    name = state_key(0, STATE, b"a")
    store.apply(put((name, b"1")), 1, 0)
    assert list(store.scan(*sid_range(0, STATE))) == [(name, b"1")]
    store.apply(put((name, None)), 2, 1)
    assert store.get_many([name]) == [None]
    assert list(store.scan(*sid_range(0, STATE))) == []
    store.close()


def test_applying_twice_does_nothing_and_a_gap_is_refused(tmp_path: Path) -> None:
    store = WriteBackStore(open_store("lmdb", tmp_path / "store"))
    name = state_key(0, STATE, b"a")
    store.apply(put((name, b"1")), 1, 0)
    store.apply(put((name, b"again")), 1, 0)
    assert store.get_many([name]) == [b"1"]
    with pytest.raises(StorageError, match="are for version 2, the store is at 1"):
        store.apply(put((name, b"3")), 3, 2)
    with pytest.raises(StorageError, match="at least one byte"):
        store.apply(put((b"", b"3")), 2, 1)
    store.close()
