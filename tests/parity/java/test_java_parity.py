"""forkpoint gives what Flink 2.3.0 in Java gave: elements, their timestamps, and their order for each key."""

from __future__ import annotations

import connected_programs  # noqa: F401 - registers programs, as do the others
import java_inputs
import java_recorded
import join_programs  # noqa: F401
import pytest
import timer_programs  # noqa: F401
import trigger_programs  # noqa: F401
import ttl_programs
import window_programs  # noqa: F401
from java_programs import PROGRAMS, added, differences, expected, run

INPUTS = java_inputs.read()

# Where Flink gives something else on purpose: docs/flink-parity.md says why. Program → inputs on which it shows.
DEPARTURES = {
    "continuous_trigger": {"early"},
    "continuous_trigger_sessions": {"early"},
}

# What depends on the way that Flink's watermark takes from one element to the next, which here passes every millisecond.
SEES_THE_WATERMARK = {
    "co_process_watermarks",
    "custom_evictor",
    "custom_evictor_aggregate",
    "timers_behind_timers",
    "watermark_behind_timers",
    "watermark_seen",
    "window_watermark",
}

FIRST_STAGE = "process_without_key"  # sees the watermark where several tasks may read the split side by side


def compared(given):
    """The programs that are to give what Flink gives on an input, also at other parallelisms than 1."""
    left_out = {FIRST_STAGE, *ttl_programs.NAMES, *(name for name, where in DEPARTURES.items() if given in where)}
    return sorted(PROGRAMS.keys() - left_out)


def cuts(events, epochs):
    """Where an input ends its epochs."""
    return [len(events) * i // epochs for i in range(1, epochs)]


def test_each_program_was_recorded():
    assert sorted(PROGRAMS) == java_recorded.names()
    recorded = {name: java_recorded.read(name) for name in PROGRAMS}
    assert [name for name, results in recorded.items() if not results] == ["never_trigger"]
    assert all({given for given, _ in results} == INPUTS.keys() for results in recorded.values() if results)


def test_inputs_are_those_that_were_recorded_with():
    assert java_inputs.made() == INPUTS


WITHOUT_TTL = sorted(PROGRAMS.keys() - ttl_programs.NAMES)


@pytest.fixture(scope="module")
def in_one_epoch():
    """What all programs give, in one job."""
    return run(WITHOUT_TTL, INPUTS["dense"], parallelism=1)[1]


@pytest.fixture(scope="module")
def in_seven_epochs():
    sparse = INPUTS["sparse"]
    found = run([name for name in WITHOUT_TTL if name != FIRST_STAGE], sparse, epochs=cuts(sparse, 7), parallelism=3)[1]
    return found | run([FIRST_STAGE], sparse, epochs=cuts(sparse, 7), parallelism=1)[1]


@pytest.mark.parametrize("name", WITHOUT_TTL)
def test_in_one_epoch_and_in_seven(name, in_one_epoch, in_seven_epochs):
    once, often = {name: in_one_epoch[name]}, {name: in_seven_epochs[name]}
    assert differences(once, expected([name], "dense")) + differences(often, expected([name], "sparse")) == []


@pytest.mark.parametrize(
    ("given", "ends"),
    [
        pytest.param("early", [*range(1, 9), 20], id="rows"),
        pytest.param("early", [*range(1, 14), 20, 30], id="more rows", marks=pytest.mark.slow),
        pytest.param("dense", cuts(INPUTS["dense"], 9), id="blocks", marks=pytest.mark.slow),  # as seven epochs of another input
    ],
)
def test_in_many_epochs(given, ends):
    """All programs in one job; epochs of single rows at first, with all that waits behind them, and of ten."""
    names, events = compared(given), INPUTS[given]
    found = run(names, events, epochs=ends, parallelism=2, max_parallelism=8)[1]
    assert differences(found, expected(names, given)) == []


@pytest.mark.parametrize(
    ("given", "stop"),
    [("dense", 31), pytest.param("sparse", 50, marks=pytest.mark.slow)],  # the same programs and saved states
)
def test_stopped_and_restored_at_another_parallelism(tmp_path, given, stop):
    names, events = compared(given), INPUTS[given]
    one, first = run(names, events, stop=stop, parallelism=3, state_root=tmp_path)
    _, second = run(names, events, stop=stop, parallelism=2, state_root=tmp_path, restore=one.savepoint)
    both = {name: added(first[name], second[name]) for name in names}
    assert differences(both, expected(names, given)) == []


@pytest.mark.parametrize("name", sorted(DEPARTURES))
def test_departures_are_there(name):
    for given in DEPARTURES[name]:
        assert differences(run([name], INPUTS[given])[1], expected([name], given))


def test_what_sees_the_watermark_on_its_way():
    """Flink's watermark goes from one element's to the next's at once; whatever sees no watermark is the same."""
    differing = {name for name in PROGRAMS if any(w == java_recorded.JUMP for _, w in java_recorded.read(name))}
    assert differing == SEES_THE_WATERMARK


@pytest.mark.parametrize("given", INPUTS)
def test_the_watermark_that_timers_see(given):
    """That of their own time, or the next if it has passed; in Flink the one that made them due, so a later one."""
    mine = run(["watermark_seen"], INPUTS[given])[1]["watermark_seen"]["main"]
    flinks = java_recorded.read("watermark_seen")[given, java_recorded.JUMP]["main"]
    later = 0
    for key, results in flinks.items():
        assert [row[:-1] for row in mine[key]] == [row[:-1] for row in results]
        for (_, kind, time, seen), (*_, in_flink) in zip(mine[key], results, strict=True):
            assert seen == in_flink if kind == "element" else time <= seen <= in_flink
            later += seen < in_flink
    assert later > 10


def test_watermark_without_a_key_where_several_tasks_read_a_split():
    sparse = INPUTS["sparse"]
    found = run([FIRST_STAGE], sparse, epochs=cuts(sparse, 7), parallelism=3)[1]
    assert not differences(found, expected([FIRST_STAGE], "sparse"))


@pytest.mark.parametrize("given", INPUTS)
def test_expired_state_is_seen_as_often_as_in_flink(given):
    names = sorted(ttl_programs.NAMES)
    paused = [step for event in INPUTS[given] for step in (event, ttl_programs.PAUSE)]
    assert differences(run(names, paused, parallelism=2)[1], expected(names, given)) == []
