"""Store keys: they come back as they were, and byte order is the order of what they mean."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forkpoint.state import (
    OPERATOR_KG,
    OperatorKey,
    decode_operator_key,
    decode_state_key,
    decode_timer_key,
    kg_of,
    operator_key,
    operator_range,
    prefix_stop,
    range_for,
    sid_of,
    sid_range,
    state_key,
    timer_key,
    timer_range,
)
from forkpoint.state.keys import StateKey, TimerKey

MAX_SID = 0xFFFF_FFFE
kgs = st.integers(0, 32767)
sids = st.integers(0, MAX_SID)
data = st.binary(max_size=6)
times = st.integers(-(2**63), 2**63 - 1)
state_keys = st.builds(StateKey, kgs, sids, data, data)
timer_keys = st.builds(TimerKey, kgs, sids, times, data, data)
operator_keys = st.builds(OperatorKey, sids, st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1))


@given(state_keys)
def test_state_keys_come_back(key: StateKey) -> None:
    assert decode_state_key(state_key(*key)) == key
    assert (kg_of(state_key(*key)), sid_of(state_key(*key))) == (key.kg, key.sid)


@given(timer_keys)
def test_timer_keys_come_back(key: TimerKey) -> None:
    assert decode_timer_key(timer_key(*key)) == key
    assert (kg_of(timer_key(*key)), sid_of(timer_key(*key))) == (key.kg, key.sid)


@given(operator_keys)
def test_operator_keys_come_back(key: OperatorKey) -> None:
    assert decode_operator_key(operator_key(*key)) == key
    assert (kg_of(operator_key(*key)), sid_of(operator_key(*key))) == (OPERATOR_KG, key.sid)


def test_the_layout_is_what_saved_state_has() -> None:
    assert state_key(1, 2, b"key", b"ns") == bytes.fromhex("0001 00000002 00000003") + b"keyns"
    assert timer_key(1, 2, -1, b"key", b"ns") == bytes.fromhex("0001 00000002 7fffffffffffffff 00000003") + b"keyns"
    assert operator_key(2, 3, 4) == bytes.fromhex("ffff 00000002 00000003 0000000000000004")


@given(timer_keys, timer_keys)
def test_timers_are_in_the_order_of_group_state_and_time(a: TimerKey, b: TimerKey) -> None:
    if (a.kg, a.sid, a.ts_ms) < (b.kg, b.sid, b.ts_ms):
        assert timer_key(*a) < timer_key(*b)


@given(timer_keys, times)
def test_the_timers_that_are_due_are_one_range(key: TimerKey, until: int) -> None:
    start, stop = timer_range(key.kg, key.sid, until)
    assert (start <= timer_key(*key) < stop) == (key.ts_ms <= until)


@given(timer_keys, kgs, sids)
def test_the_timers_of_another_state_are_never_in_the_range(key: TimerKey, kg: int, sid: int) -> None:
    start, stop = timer_range(kg, sid, 2**63 - 1)
    assert (start <= timer_key(*key) < stop) == ((key.kg, key.sid) == (kg, sid))


@given(state_keys, kgs, kgs)
def test_a_range_of_key_groups_is_a_range_of_keys(key: StateKey, kg_start: int, kg_stop: int) -> None:
    start, stop = range_for(kg_start, kg_stop)
    assert (start <= state_key(*key) < stop) == (kg_start <= key.kg < kg_stop)


@given(operator_keys, kgs)
def test_operator_state_is_a_range_behind_all_key_groups(key: OperatorKey, kg: int) -> None:
    start, stop = range_for(OPERATOR_KG, OPERATOR_KG + 1)
    assert start <= operator_key(*key) < stop
    assert state_key(kg, MAX_SID, b"\xff" * 20) < start


@given(state_keys, kgs, sids)
def test_a_state_is_a_range(key: StateKey, kg: int, sid: int) -> None:
    start, stop = sid_range(kg, sid)
    assert (start <= state_key(*key) < stop) == ((key.kg, key.sid) == (kg, sid))


@given(state_keys, data)
def test_the_namespaces_of_a_key_are_a_range(key: StateKey, other: bytes) -> None:
    start = state_key(key.kg, key.sid, other)
    assert (start <= state_key(*key) < prefix_stop(start)) == (key.key == other)


@given(operator_keys, sids, st.none() | st.integers(0, 2**32 - 1))
def test_operator_state_is_a_range_by_state_and_subtask(key: OperatorKey, sid: int, subtask: int | None) -> None:
    start, stop = operator_range(sid, subtask)
    assert (start <= operator_key(*key) < stop) == (key.sid == sid and subtask in (None, key.subtask))


@given(st.binary(min_size=1, max_size=4).filter(lambda p: p.strip(b"\xff")), st.binary(max_size=5))
def test_prefix_stop_bounds_exactly_what_begins_with_the_prefix(prefix: bytes, any_bytes: bytes) -> None:
    stop = prefix_stop(prefix)
    assert prefix <= prefix + any_bytes < stop
    assert (prefix <= any_bytes < stop) == any_bytes.startswith(prefix)


@given(st.integers(0xFFFF_0000, MAX_SID))
def test_operator_state_with_the_highest_sids_is_in_the_range_of_everything(sid: int) -> None:
    start, stop = range_for(0, OPERATOR_KG + 1)
    assert start <= operator_key(sid, 2**32 - 1, 2**64 - 1) < stop
