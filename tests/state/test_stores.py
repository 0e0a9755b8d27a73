"""What every store promises, checked against a plain dict."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from example_counts import examples
from forkpoint.errors import ConfigError, StorageError
from forkpoint.state import Changes, Columns, Store, StoreKind, change_columns, destroy_store, open_store
from forkpoint.state.store import Found

KINDS = get_args(StoreKind)
Open = Callable[[], Store]


@pytest.fixture(params=KINDS)
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens the one store of the test (again)."""
    opened: list[Store] = []

    def open_again() -> Store:
        opened.append(open_store(request.param, tmp_path / "store"))
        return opened[-1]

    yield open_again
    for store in opened:
        store.close()


# Many keys share their first 480 to 600 bytes: LMDB stores those above 510 bytes by prefix and hash.
short_keys = st.binary(min_size=1, max_size=3) | st.sampled_from([b"\0", b"\xff" * 4, b"\0" * 511, b"\xff" * 600])
long_keys = st.builds(
    lambda length, tail: b"a" * length + tail,
    st.sampled_from([480, 494, 495, 496, 509, 510, 511, 600]),
    st.binary(max_size=4),
)
keys = short_keys | long_keys
changes = st.lists(st.tuples(keys, st.none() | st.binary(max_size=8)), max_size=12).map(
    lambda items: Changes([k for k, _ in items], [v for _, v in items])
)


def present(one: Changes) -> Changes:
    """The changes that are no deletes."""
    there = [(key, value) for key, value in zip(one.keys, one.values, strict=True) if value is not None]
    return Changes([key for key, _ in there], [value for _, value in there])


steps = st.lists(
    st.tuples(st.just("apply"), changes)
    | st.tuples(st.just("apply_again"), changes)
    | st.tuples(st.just("apply_on_wrong_base"), changes)
    | st.tuples(st.just("load"), st.lists(changes.map(present), max_size=3))
    | st.tuples(st.just("get_many"), st.lists(keys, max_size=12))
    | st.tuples(st.just("scan"), st.tuples(keys, keys))
    | st.tuples(st.just("reopen"), st.none())
    | st.tuples(st.just("clear"), st.none()),
    max_size=14,
)


def update(model: dict[bytes, bytes], one: Changes) -> None:
    for key, value in zip(one.keys, one.values, strict=True):
        if value is None:
            model.pop(key, None)
        else:
            model[key] = value


class Run:
    """A store and its model, side by side."""

    def __init__(self, kind: StoreKind, path: Path) -> None:
        self.kind, self.path = kind, path
        self.store = open_store(kind, path)
        self.model: dict[bytes, bytes] = {}
        self.version = 0

    def apply(self, one: Changes) -> None:
        self.store.apply(one, self.version + 2, self.version)
        update(self.model, one)
        self.version += 2

    def apply_again(self, one: Changes) -> None:
        self.store.apply(one, self.version, self.version - 1)

    def apply_on_wrong_base(self, one: Changes) -> None:
        with pytest.raises(StorageError, match=f"are for version {self.version + 1}, the store is at {self.version};"):
            self.store.apply(one, self.version + 2, self.version + 1)

    def load(self, chunks: list[Changes]) -> None:
        if self.version:
            with pytest.raises(StorageError, match="needs an empty store"):
                self.store.load(map(change_columns, chunks), 7)
            return
        self.store.load(map(change_columns, chunks), 7)
        for chunk in chunks:
            update(self.model, chunk)
        self.version = 7

    def get_many(self, wanted: list[bytes]) -> None:
        assert self.store.get_many(wanted) == [self.model.get(key) for key in wanted]

    def scan(self, bounds: tuple[bytes, bytes]) -> None:
        start, stop = bounds
        expected = sorted((k, v) for k, v in self.model.items() if start <= k < stop)
        assert list(self.store.scan(start, stop)) == expected
        prefixes = [prefix for prefix in (start, start[:1], stop[:500], b"none") if prefix.strip(b"\xff")]
        assert self.store.scan_prefixes(prefixes) == Found.of(
            sorted(item for item in self.model.items() if item[0].startswith(prefix)) for prefix in prefixes
        )
        halves = [(start, stop[:1]), (stop[:1], stop)]
        assert set(self.store.occupied(halves)) >= {r for r in halves if any(r[0] <= k < r[1] for k in self.model)}

    def reopen(self, _: None) -> None:
        self.store.close()
        self.store = open_store(self.kind, self.path)

    def clear(self, _: None) -> None:
        self.store.clear()
        self.model, self.version = {}, 0

    def check(self) -> None:
        assert self.store.version == self.version
        assert list(self.store.scan(b"\0", b"\xff" * 700)) == sorted(self.model.items())


@pytest.mark.parametrize("kind", KINDS)
@given(sequence=steps)
@examples(40, suppress_health_check=[HealthCheck.too_slow])
def test_any_sequence_of_calls_does_what_a_dict_would_do(kind: StoreKind, sequence: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        run = Run(kind, Path(directory) / "store")
        for name, argument in sequence:
            getattr(run, name)(argument)
        run.check()
        run.reopen(None)
        run.check()
        run.store.close()
        destroy_store(run.path)


def numbered(start: int, stop: int, value: bytes = b"v") -> Changes:
    return Changes([b"%06d" % i for i in range(start, stop)], [value] * (stop - start))


def test_a_scan_of_many_entries_is_complete_and_in_order(reopen: Open) -> None:
    store = reopen()
    store.apply(numbered(0, 10_000), 1, 0)
    found = [key for key, _ in store.scan(b"000100", b"009000")]
    assert found == [b"%06d" % i for i in range(100, 9000)]


def test_a_scan_leaves_out_its_stop_wherever_it_is(reopen: Open) -> None:
    store = reopen()
    store.apply(numbered(0, 2049), 1, 0)
    for stop in (1, 2047, 2048):
        assert [key for key, _ in store.scan(b"0", b"%06d" % stop)] == [b"%06d" % i for i in range(stop)]


def test_long_keys_of_one_stem_keep_their_order_across_the_pages_of_a_scan(reopen: Open) -> None:
    store = reopen()
    entries = {b"s" * 600 + b"%06d" % i: b"%d" % i for i in range(5000)} | {b"s" * 495 + b"%d" % i: b"x" for i in range(9)}
    store.apply(Changes(list(entries), list(entries.values())), 1, 0)
    assert list(store.scan(b"s", b"t")) == sorted(entries.items())
    low, high = b"s" * 600 + b"000700", b"s" * 600 + b"004000"
    assert list(store.scan(low, high)) == [(k, v) for k, v in sorted(entries.items()) if low <= k < high]


def test_ranges_without_entries_are_told_from_those_with_some(reopen: Open) -> None:
    store = reopen()
    ranges = [(b"%06d" % i, b"%06d" % (i + 10)) for i in range(0, 200, 10)]
    assert store.occupied(ranges) == []
    store.apply(Changes([b"000010", b"000019", b"000110"], [b"", b"v", b"v"]), 1, 0)
    assert store.occupied(ranges) == [ranges[1], ranges[11]]


def test_a_scan_is_as_of_one_version(reopen: Open) -> None:
    store = reopen()
    store.apply(numbered(0, 10_000, b"old"), 1, 0)
    scan = store.scan(b"0", b"9")
    first = next(scan)
    store.apply(numbered(0, 10_000, b"new"), 2, 1)
    assert {value for _, value in [first, *scan]} == {b"old"}


def test_two_stores_on_one_path_see_each_others_changes(reopen: Open) -> None:
    one, two = reopen(), reopen()
    one.apply(numbered(0, 3), 1, 0)
    assert (two.version, two.get_many([b"000002"])) == (1, [b"v"])
    one.close()
    two.apply(numbered(3, 6), 2, 1)
    assert len(list(reopen().scan(b"0", b"9"))) == 6


def test_a_closed_store_says_so(reopen: Open) -> None:
    store = reopen()
    store.apply(numbered(0, 5000), 1, 0)
    scan = store.scan(b"0", b"9")
    next(scan)
    store.close()
    store.close()
    with pytest.raises(StorageError, match="is closed"):
        store.get_many([b"a"])
    assert reopen().version == 1  # also with a scan left open


def test_an_unfinished_load_reads_as_empty_and_can_be_done_again(reopen: Open) -> None:
    def broken() -> Iterator[Columns]:
        yield change_columns(numbered(0, 100))
        assert (store.version, store.get_many([b"000001"]), list(store.scan(b"0", b"9"))) == (0, [None], [])
        raise ValueError("no more")

    store = reopen()
    with pytest.raises(ValueError, match="no more"):
        store.load(broken(), 5)
    for _ in range(2):
        assert (store.version, store.get_many([b"000001"]), list(store.scan(b"0", b"9"))) == (0, [None], [])
        store.close()
        store = reopen()
    store.load([change_columns(numbered(50, 60))], 5)
    assert (store.version, len(list(store.scan(b"0", b"9")))) == (5, 10)


def test_apply_after_an_unfinished_load_starts_from_nothing(reopen: Open) -> None:
    def broken() -> Iterator[Columns]:
        yield change_columns(numbered(0, 100))
        raise ValueError("no more")

    store = reopen()
    with pytest.raises(ValueError, match="no more"):
        store.load(broken(), 5)
    store.apply(numbered(7, 8), 1, 0)
    assert list(store.scan(b"0", b"9")) == [(b"000007", b"v")]


def test_two_loads_at_once_do_not_mix(reopen: Open) -> None:
    one, two = reopen(), reopen()

    def interrupted() -> Iterator[Columns]:
        yield change_columns(numbered(0, 10))
        two.load([change_columns(numbered(10, 12))], 6)
        yield change_columns(numbered(12, 20))

    with pytest.raises(StorageError):
        one.load(interrupted(), 5)
    assert (two.version, [key for key, _ in two.scan(b"0", b"9")]) == (6, [b"000010", b"000011"])


def test_load_of_version_zero_is_refused(reopen: Open) -> None:
    with pytest.raises(StorageError, match="begin at 1"):
        reopen().load([], 0)


def test_an_empty_key_is_refused_and_nothing_is_applied(reopen: Open) -> None:
    store = reopen()
    with pytest.raises(StorageError, match="at least one byte"):
        store.apply(Changes([b"a", b""], [b"1", b"2"]), 1, 0)
    assert (store.version, store.get_many([b"a"])) == (0, [None])


def test_a_destroyed_store_is_gone_and_whoever_has_it_open_is_told(reopen: Open) -> None:
    store = reopen()
    store.apply(numbered(0, 3), 1, 0)
    destroy_store(store.path)  # type: ignore[attr-defined]
    with pytest.raises(StorageError, match="removed"):
        store.get_many([b"000001"])
    store.close()
    assert reopen().version == 0


def test_destroying_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    destroy_store(tmp_path / "nothing")
    assert list(tmp_path.iterdir()) == []


def test_one_path_cannot_be_two_kinds_of_store(tmp_path: Path) -> None:
    store = open_store("lmdb", tmp_path / "store")
    with pytest.raises(StorageError, match="another kind"):
        open_store("rocksdb", tmp_path / "store")
    store.close()


def test_an_unknown_kind_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'leveldb'"):
        open_store("leveldb", tmp_path)  # type: ignore[arg-type]
