"""How much there is of each state: counted in columns, and kept up by what changelogs add."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkpoint.state import (
    Amount,
    Changes,
    Count,
    GrowthMeter,
    change_columns,
    growth,
    state_key,
    sum_amounts,
    write_snapshot,
)

keys = st.builds(state_key, st.integers(0, 3), st.sampled_from([1, 2, 0xFFFFFFFD]), st.binary(max_size=1))
stored = st.dictionaries(keys, st.binary(max_size=5), max_size=20)
changed = st.lists(st.tuples(keys, st.none() | st.binary(max_size=5)), max_size=16)


def counted(entries: Mapping[bytes, bytes]) -> dict[int, Amount]:
    count = Count()
    write_snapshot(sorted(entries.items()), count)
    return count.amounts


def one_by_one(entries: Mapping[bytes, bytes]) -> dict[int, Amount]:
    counts: Counter[int] = Counter()
    sizes: Counter[int] = Counter()
    for key, value in entries.items():
        sid = int.from_bytes(key[2:6], "big")
        counts[sid] += 1
        sizes[sid] += len(key) + len(value)
    return {sid: Amount(counts[sid], sizes[sid]) for sid in counts}


def grown(before: Mapping[bytes, bytes], changes: Mapping[bytes, bytes | None], probes: int = 256) -> dict[int, Amount]:
    columns = change_columns(Changes(list(changes), list(changes.values())))
    return growth(*columns, lambda names: list(map(before.get, names)), probes)


def without_zeros(amounts: Mapping[int, Amount]) -> dict[int, Amount]:
    return {sid: amount for sid, amount in amounts.items() if amount.entries}


@given(stored)
def test_entries_are_counted_by_state(entries: dict[bytes, bytes]) -> None:
    assert counted(entries) == one_by_one(entries)


@given(stored)
def test_chunks_add_up(entries: dict[bytes, bytes]) -> None:
    count, names = Count(), sorted(entries)
    for part in (names[:3], names[3:4], names[4:]):
        values = [entries[name] for name in part]
        count.add(pa.array(part, pa.large_binary()), pa.array(values, pa.large_binary()))
    assert (count.amounts, count.entries) == (one_by_one(entries), len(entries))


@given(stored)
def test_columns_that_are_slices_are_counted_alike(entries: dict[bytes, bytes]) -> None:
    names = sorted(entries)
    keys, values = pa.array(names, pa.large_binary()), pa.array([entries[n] for n in names], pa.large_binary())
    count = Count()
    count.add(keys[2:], values[2:])
    assert count.amounts == one_by_one({name: entries[name] for name in names[2:]})


@given(stored, changed)
def test_a_few_changes_are_measured_exactly(before: dict[bytes, bytes], pairs: list[tuple[bytes, bytes | None]]) -> None:
    after = dict(before)
    for key, value in pairs:
        if value is None:
            after.pop(key, None)
        else:
            after[key] = value
    columns = change_columns(Changes([key for key, _ in pairs], [value for _, value in pairs]))
    by = growth(*columns, lambda names: list(map(before.get, names)), 4)
    assert without_zeros(sum_amounts([one_by_one(before), by])) == one_by_one(after)


def names(count: int, sid: int = 1) -> list[bytes]:
    return [state_key(number % 128, sid, b"%06d" % number) for number in range(count)]


@pytest.mark.parametrize(
    ("present", "expected"),
    [(0, Amount(50_000, 50_000 * 26)), (50_000, Amount(0, 50_000 * 5))],
    ids=["all are new", "all were there"],
)
def test_many_changes_that_are_alike_are_measured_exactly(present: int, expected: Amount) -> None:
    before = dict.fromkeys(names(present), b"12345")
    assert grown(before, dict.fromkeys(names(50_000), b"1234567890")) == {1: expected}


def test_of_many_different_changes_a_sample_is_measured() -> None:
    asked: list[int] = []
    everything = names(50_000)
    before = dict.fromkeys(everything[:20_000], b"12345")
    changes: dict[bytes, bytes | None] = dict.fromkeys(everything, b"12345")
    changes.update(dict.fromkeys(names(3_000, sid=2)))  # deletes of what is not there
    columns = change_columns(Changes(list(changes), list(changes.values())))

    def read(wanted: Sequence[bytes]) -> list[bytes | None]:
        asked.append(len(wanted))
        return list(map(before.get, wanted))

    found = GrowthMeter().growth(*columns, read, seconds=1.0)
    assert found[1].entries == pytest.approx(30_000, rel=0.3)
    assert found[1].bytes == found[1].entries * 21 or found[1].bytes == pytest.approx(found[1].entries * 21, abs=21)
    assert found[2] == Amount(0, 0)
    assert len(asked) == 1
    assert asked[0] <= 256


def test_deletes_of_what_was_there_are_exact_whatever_else_changes() -> None:
    gone, put = names(40_000), names(80_000)[40_000:]
    before = {**dict.fromkeys(gone, b"x" * 10), **dict.fromkeys(put[::2], b"y")}
    found = grown(before, {**dict.fromkeys(gone), **dict.fromkeys(put, b"y")})
    assert found[1].entries == pytest.approx(-20_000, abs=20_000 * 0.4)
    assert grown(before, dict.fromkeys(gone)) == {1: Amount(-40_000, -40_000 * 26)}


def test_sums_are_never_below_zero() -> None:
    assert sum_amounts([{1: Amount(3, 30)}, {1: Amount(-5, -10), 2: Amount(1, 1)}]) == {
        1: Amount(0, 20),
        2: Amount(1, 1),
    }


def test_epochs_of_a_few_milliseconds_are_taken_to_be_like_the_one_before() -> None:
    meter, asked = GrowthMeter(), list[int]()

    def after(count: int, seconds: float, present: int = 0) -> int:
        everything = names(count)
        stored = set(everything[:present])

        def read(wanted: Sequence[bytes]) -> list[bytes | None]:
            asked.append(len(wanted))
            return [b"" if name in stored else None for name in wanted]

        return meter.growth(*change_columns(Changes(everything, [b""] * count)), read, seconds)[1].entries

    assert after(100, 0.001) == 100
    assert after(200, 0.005, present=200) == 200  # not measured
    assert after(60, 0.001, present=60) == 0  # a few are always measured
    assert after(100, 0.001, present=100) == 0  # as those were too few to go by
    assert after(100, 0.020) == 0
    assert after(100, 0.020) == 100  # it is time again
    assert asked == [64, 60, 64, 100]
