"""What is wrong with a job, in sentences: the pure function."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkpoint.contract.source import Backlog
from forkpoint.driver.commit.measurements import Hold, Skew
from forkpoint.driver.observe.metrics import BacklogSample
from forkpoint.driver.observe.problems import Situation, SourceNow, TimedOperator, problems, silences
from forkpoint.functions import MIN_WATERMARK
from forkpoint.protocol.messages import EpochEntry, FailureEntry, Problem
from forkpoint.protocol.registry import problem_of_run
from forkpoint.runtime.event_time.watermarks import MIN_MS
from forkpoint.runtime.exchange.control import Memory

NOW = 1_790_000_000_000
SECOND, MINUTE = 1_000, 60_000
ORDERS = SourceNow("orders", read_ms=NOW - SECOND)
WELL = Situation("running", NOW, 5 * MINUTE, since_ms=NOW - 60 * MINUTE, sources=[ORDERS], interval_ms=SECOND)


def texts(now: Situation) -> list[str]:
    return [each.text for each in problems(now)]


def found(now: Situation) -> list[tuple[str, str, str | None]]:
    return [(each.severity, each.kind, each.uid) for each in problems(now)]


# -- no data


def silent(minutes: float, **source: Any) -> Situation:
    known = {"read_ms": round(NOW - minutes * MINUTE), **source}
    return replace(WELL, sources=[SourceNow("orders", **known)])


def test_a_source_that_reads_nothing() -> None:
    assert texts(silent(12)) == ["no data: source 'orders' has read nothing for 12 min"]
    assert found(silent(12)) == [("warning", "no-data", "orders")]
    assert texts(silent(4.9)) == []
    waiting = silent(12, backlog=Backlog(5_000))
    assert texts(waiting) == ["no data: source 'orders' has read nothing for 12 min, although 5 000 elements are waiting"]


def test_a_source_that_has_read_nothing_since_the_start() -> None:
    assert texts(silent(0, read_ms=None)) == ["no data: source 'orders' has read nothing for 60 min"]


def test_for_how_long_there_may_be_nothing_can_be_chosen() -> None:
    assert texts(replace(silent(12), silence_ms=13 * MINUTE)) == []
    assert texts(replace(silent(0.1), silence_ms=SECOND)) == ["no data: source 'orders' has read nothing for 6 s"]


def test_a_job_that_has_just_started_may_still_find_data() -> None:
    assert texts(replace(silent(600), since_ms=NOW - 4 * MINUTE)) == []
    assert texts(replace(silent(600), since_ms=None)) == []
    assert texts(Situation("starting", NOW, 5 * MINUTE)) == []
    assert texts(Situation("running", NOW, 5 * MINUTE)) == []


def test_bounded_sources_and_jobs_that_wait_for_other_things_lack_no_data() -> None:
    assert texts(silent(12, bounded=True)) == []
    assert texts(silent(12, rare=True)) == []
    assert texts(replace(silent(12), sources=[])) == []  # all have ended
    for state in ("starting", "standby", "ended"):
        assert texts(replace(silent(12), state=state)) == []
    assert found(replace(silent(12), epoch_ms=2 * MINUTE)) == [("warning", "long-epoch", None)]
    assert found(replace(silent(12), behind_ms={"out": NOW - 9 * MINUTE})) == []


def test_a_source_whose_system_is_away() -> None:
    now = silent(12, trouble="Kafka's brokers b:1 do not answer")
    assert texts(now) == ["waits for source 'orders': Kafka's brokers b:1 do not answer"]
    assert found(now) == [("critical", "input", "orders")]


def test_the_silence_of_sources_as_a_metric() -> None:
    assert silences(silent(12)) == {"orders": 12 * MINUTE}
    assert silences(silent(12, read_ms=None)) == {"orders": 60 * MINUTE}
    assert silences(replace(silent(12), since_ms=NOW - MINUTE)) == {"orders": MINUTE}
    for now in (silent(12, bounded=True), replace(silent(12), state="restarting"), replace(silent(12), since_ms=None)):
        assert silences(now) == {}


# -- watermarks


def held(hold: Hold, **others: Any) -> Situation:
    operators = [TimedOperator("windows", ["orders"], ["orders"])]
    return replace(WELL, operators=operators, holds={"orders": hold}, **others)


STUCK = Hold(
    "orders-3",
    NOW - 8 * MINUTE,
    NOW - 6 * MINUTE,
    empty=False,
    next=("orders-1", NOW - MINUTE),
    furthest=("orders-2", NOW),
)


def test_a_split_that_holds_a_watermark_back() -> None:
    assert texts(held(STUCK)) == [
        "the watermark of 'windows' waits for split 'orders-3' of 'orders', which is 8 min behind 'orders-2' and has had no "
        "element for 6 min; with_idleness(...) lets it advance"
    ]
    assert found(held(STUCK)) == [("warning", "watermark", "orders")]


def test_a_split_without_any_element_holds_a_watermark_back() -> None:
    empty = Hold("orders-3", MIN_MS, NOW - 6 * MINUTE, others=1, furthest=("orders-2", NOW))
    assert texts(held(empty)) == [
        "the watermark of 'windows' waits for split 'orders-3' of 'orders' (and 1 more), which has had no element yet; "
        "with_idleness(...) lets it advance"
    ]
    assert texts(held(empty, since_ms=NOW - 9_000)) == []


def test_a_slow_split_is_named_after_seconds() -> None:
    slow = STUCK._replace(watermark_ms=NOW - 20_000, active_ms=NOW - 11_000)
    (text,) = texts(held(slow, since_ms=NOW - 30_000))
    assert "split 'orders-3' of 'orders', which is 20 s behind 'orders-2' and has had no element for 11 s" in text
    assert texts(held(slow, silence_ms=60 * MINUTE)) == []


def test_idleness_that_is_set_is_not_recommended() -> None:
    (text,) = texts(held(STUCK, idleness_ms={"orders": 10 * MINUTE}))
    assert text.endswith("has had no element for 6 min; it advances after 10 min without one")


def test_the_source_that_is_behind_another_one() -> None:
    joined = TimedOperator("join", ["orders", "clicks"], ["orders", "clicks"])
    slow = Hold("0", NOW - 9 * MINUTE, NOW - 8 * MINUTE, empty=False)
    now = replace(WELL, operators=[joined], holds={"orders": Hold("0", NOW, NOW, empty=False), "clicks": slow})
    assert texts(now) == [
        "the watermark of 'join' waits for split '0' of 'clicks', which is 9 min behind '0' of 'orders' and has had no element "
        "for 8 min; with_idleness(...) lets it advance"
    ]
    nothing = replace(now, holds={**now.holds, "clicks": Hold(None, MIN_MS)})
    assert texts(nothing) == [
        "the watermark of 'join' waits for source 'clicks', which has had no element yet; with_idleness(...) lets it advance"
    ]


def test_one_sentence_for_several_operators_that_wait_for_the_same() -> None:
    two = [TimedOperator(uid, ["orders"], ["orders"]) for uid in ("a", "b")]
    (text,) = texts(replace(held(STUCK), operators=two))
    assert text.startswith("the watermarks of 'a' and 'b' wait for split 'orders-3'")


@pytest.mark.parametrize(
    "well",
    [
        held(STUCK._replace(active_ms=NOW - 9_000)),  # it gets elements: it is only slow
        held(STUCK._replace(watermark_ms=NOW - 4_000)),  # the others are hardly ahead
        held(STUCK._replace(furthest=None, next=None)),  # none is ahead
        replace(held(STUCK), operators=[]),  # nothing waits for the watermark
        replace(held(STUCK), holds={}),  # no epoch yet
    ],
)
def test_a_split_that_does_no_harm_is_no_problem(well: Situation) -> None:
    assert texts(well) == []


def test_where_no_split_goes_on_the_source_is_the_problem() -> None:
    assert found(replace(held(STUCK), sources=[replace(ORDERS, read_ms=NOW - 7 * MINUTE)])) == [("warning", "no-data", "orders")]


# -- restarts


def failures(count: int, every_ms: int, same: bool = False) -> list[FailureEntry]:
    return [FailureEntry(NOW - i * every_ms, "boom\n  at f()", 1 if same else 40 - i) for i in reversed(range(count))]


def test_a_restart_loop() -> None:
    now = replace(WELL, failures=failures(7, MINUTE), restarts=40)
    assert texts(now) == ["restarted 7 times in the last 10 min: boom"]
    assert found(replace(now, state="restarting")) == [("critical", "restart-loop", None)]
    assert texts(replace(now, failures=failures(20, SECOND))) == ["restarted 20 times or more in the last 10 min: boom"]


def test_some_restarts_are_no_loop() -> None:
    assert texts(replace(WELL, failures=failures(2, MINUTE))) == []
    assert texts(replace(WELL, failures=failures(7, 6 * MINUTE))) == []
    assert texts(replace(WELL, failures=[FailureEntry(NOW, "the end", None)] * 5)) == []


def test_the_attempts_within_one_outage_are_one_restart() -> None:
    now = replace(WELL, state="restarting", failures=failures(20, SECOND, same=True), restarts=1)
    assert texts(now) == ["restarting, for the 1st time: boom"]
    assert found(now) == [("warning", "restarting", None)]


@pytest.mark.parametrize(("count", "name"), [(1, "1st"), (2, "2nd"), (3, "3rd"), (11, "11th"), (22, "22nd"), (112, "112th")])
def test_restarts_are_counted_as_people_do(count: int, name: str) -> None:
    now = replace(WELL, state="restarting", restarts=count, failure="no room")
    assert texts(now) == [f"restarting, for the {name} time: no room"]


# -- output


def test_output_that_cannot_be_published() -> None:
    now = replace(WELL, unpublished={"out": 2}, publishing_problem="sink 'out': away")
    assert texts(now) == ["waits to publish 2 epochs: sink 'out': away"]
    assert found(now) == [("warning", "output", None)]
    assert found(replace(now, behind_ms={"out": NOW})) == [("critical", "output", None)]


def test_a_sink_that_does_not_keep_up() -> None:
    now = replace(WELL, unpublished={"out": 4}, behind_ms={"out": NOW - 3 * MINUTE}, epochs=commits(12 * SECOND))
    assert texts(now) == ["sink 'out' does not keep up: 4 epochs wait to be published, and the job commits one every 12 s"]
    assert found(now) == [("warning", "sink-behind", "out")]
    assert texts(replace(now, behind_ms={"out": NOW - SECOND})) == []
    assert texts(replace(now, interval_ms=12 * SECOND)) == []
    assert texts(replace(now, epochs=commits(200))) == []  # it limits the job, but nobody notices
    assert texts(replace(now, epochs=())) == []


def commits(every_ms: int) -> list[EpochEntry]:
    return [EpochEntry(n, {"committed": NOW - (9 - n) * every_ms}) for n in range(9)]


# -- epochs


def epochs(took_ms: int, count: int = 10) -> list[EpochEntry]:
    ends = {"planned": 0.0, "computed": 0.8, "written": 0.85, "committed": 0.9, "published": 1.0}
    return [EpochEntry(n, {phase: NOW + round(share * took_ms) for phase, share in ends.items()}) for n in range(count)]  # type: ignore[misc]


def test_epochs_that_take_much_longer_than_their_interval() -> None:
    now = replace(WELL, epochs=epochs(45_000), interval_ms=2_000)
    assert texts(now) == ["epochs take 45 s, their interval is 2 s: 36 s to compute"]
    assert texts(replace(now, interval_ms=10_000)) == []
    assert texts(replace(now, interval_ms=None)) == []
    assert texts(replace(now, epochs=epochs(45_000, 2))) == []
    assert texts(replace(now, epochs=epochs(1_000), interval_ms=10)) == []


def test_an_epoch_that_takes_much_longer_than_others() -> None:
    now = replace(WELL, epoch_ms=245_000, doing="epoch 7, for 245.0 s, in operator 'map' (spin, app.py:7)")
    assert texts(now) == ["epoch 7, for 245.0 s, in operator 'map' (spin, app.py:7)"]
    (text,) = texts(replace(now, epochs=epochs(2_000)))
    assert text.endswith("(spin, app.py:7); earlier epochs took 2 s")
    assert texts(replace(now, epochs=epochs(30_000), interval_ms=30_000)) == []
    assert texts(replace(now, epoch_ms=50_000)) == []


# -- backlog


def growing(*amounts: int, unit: Any = "elements", every_ms: int = MINUTE) -> Situation:
    known = [BacklogSample(NOW + i * every_ms, amount) for i, amount in enumerate(amounts)]
    return replace(WELL, sources=[replace(ORDERS, backlog=Backlog(amounts[-1], unit), backlogs=known)])


def test_a_backlog_that_grows() -> None:
    assert texts(growing(1_200, 9_000, 20_000, 31_000, 29_000, 58_000)) == [
        "source 'orders' does not keep up: its backlog has grown from 1 200 elements to 58 000 elements in 5 min"
    ]
    assert texts(growing(0, 1, 2, 3, 4, 5_000_000, unit="bytes")) == [
        "source 'orders' does not keep up: its backlog has grown from 0 B to 5.0 MB in 5 min"
    ]


@pytest.mark.parametrize(
    "well",
    [
        growing(0, 100, 200, 300, 400, 500),  # little
        growing(90_000, 91_000, 92_000, 93_000, 94_000, 95_000),  # hardly more
        growing(9, 0, 0, 0, 0, 50_000),  # it comes in bursts
        growing(90_000, 70_000, 50_000, 30_000, 10_000, 0),
        growing(10, 20_000, every_ms=SECOND),  # not for long
    ],
)
def test_a_backlog_that_does_not_is_no_problem(well: Situation) -> None:
    assert texts(well) == []
    assert texts(replace(well, sources=[replace(well.sources[0], bounded=True)])) == []


@pytest.mark.parametrize(
    ("skew", "text"),
    [
        (
            Skew(1, 4, 0.6, ("17", 0.8)),
            "60% of the elements, and the other 3 wait for it; about 48% of the elements have the key 17",
        ),
        (Skew(0, 2, 0.9), "90% of the elements, and the other waits for it"),
    ],
)
def test_uneven_work_is_named_where_a_job_does_not_keep_up(skew: Skew, text: str) -> None:
    behind = replace(growing(1_200, 9_000, 20_000, 31_000, 29_000, 58_000), skews={"counts": skew})
    assert found(behind) == [("warning", "backlog", "orders"), ("warning", "skew", "counts")]
    assert texts(behind)[1] == f"subtask {skew.subtask} of operator 'counts' gets {text}"
    assert found(replace(WELL, skews={"counts": skew})) == []


def test_a_process_that_takes_more_than_its_memory_at_any_size_of_epochs() -> None:
    short = Memory("host:7", 400 << 20, 600 << 20, 512 << 20)
    assert found(replace(WELL, short_memory=short)) == [("warning", "memory", None)]
    assert texts(replace(WELL, short_memory=short)) == [
        "process host:7 takes 600 of its 512 MiB, however few elements an epoch reads: raise --memory, or hold less in functions"
    ]


# -- runs that do not answer


def test_runs_whose_driver_does_not_answer() -> None:
    said = {state: problem_of_run(state, "r1", "boom\nmore") for state in ("lost", "failed", "silent", "elsewhere")}
    assert {state: each and each.text for state, each in said.items()} == {
        "lost": "lost: the driver of run r1 was killed; run its program again",
        "failed": "failed: boom",
        "silent": "does not answer, although its driver is alive",
        "elsewhere": "does not answer; its driver ran on another machine",
    }
    assert all(problem_of_run(state, "r1", None) is None for state in ("finished", "stopped", "cancelled", "superseded"))
    assert problem_of_run("failed", "r1", None) == Problem("critical", "failed", None, "failed: no reason was recorded")


# -- in general

TIMES = st.none() | st.integers(NOW - 10**8, NOW)
AMOUNTS = st.integers(0, 10**9)
SOURCES = st.builds(
    SourceNow,
    uid=st.sampled_from(["a", "b"]),
    bounded=st.booleans(),
    rare=st.booleans(),
    read_ms=TIMES,
    trouble=st.none() | st.text(),
    backlog=st.none() | st.builds(Backlog, AMOUNTS, st.sampled_from(["elements", "bytes"])),
    backlogs=st.lists(st.builds(BacklogSample, st.integers(NOW - 10**6, NOW), AMOUNTS)),
)
ENDS = st.none() | st.tuples(st.text(min_size=1), st.integers(MIN_WATERMARK, NOW))
HOLDS = st.builds(
    Hold, st.none() | st.text(min_size=1), st.integers(MIN_MS, NOW), TIMES, st.booleans(), st.integers(0, 9), ENDS, ENDS
)
EPOCHS = st.builds(
    EpochEntry,
    st.integers(1, 9),
    st.dictionaries(
        st.sampled_from(["planned", "computed", "written", "committed", "published"]), st.integers(0, NOW), min_size=1
    ),
)
SITUATIONS = st.builds(
    Situation,
    state=st.sampled_from(["starting", "standby", "running", "restarting", "ended"]),
    now_ms=st.just(NOW),
    silence_ms=st.integers(1, 10**7),
    since_ms=TIMES,
    sources=st.lists(SOURCES, max_size=2),
    operators=st.lists(st.builds(TimedOperator, st.text(), st.just(["a", "b"]), st.just(["a", "b"])), max_size=2),
    holds=st.dictionaries(st.sampled_from(["a", "b"]), HOLDS),
    restarts=st.integers(0, 99),
    failure=st.none() | st.text(),
    failures=st.lists(st.builds(FailureEntry, st.integers(0, NOW), st.text(), st.none() | st.integers(1, 30)), max_size=20),
    interval_ms=st.none() | st.integers(1, 10**6),
    epochs=st.lists(EPOCHS, max_size=5),
    epoch_ms=st.integers(0, 10**7),
    unpublished=st.dictionaries(st.sampled_from(["x", "y"]), st.integers(1, 9)),
    publishing_problem=st.none() | st.text(),
    behind_ms=st.dictionaries(st.sampled_from(["x", "y"]), st.integers(0, NOW)),
)


@given(SITUATIONS)
def test_whatever_is_known_the_problems_are_told_once_and_the_worst_first(now: Situation) -> None:
    told = problems(now)
    assert [each.severity for each in told] == sorted(each.severity for each in told)
    assert all(each.text for each in told)
    if now.state in ("starting", "standby", "ended"):
        assert {each.kind for each in told} <= {"restart-loop"}
    if now.since_ms is None or NOW - now.since_ms < now.silence_ms:
        assert not {each.kind for each in told} & {"no-data", "watermark"}
    for bounded in (each.uid for each in now.sources if each.bounded):
        unbounded = {each.uid for each in now.sources if not each.bounded}
        assert not {(each.kind, each.uid) for each in told} & {("no-data", bounded), ("backlog", bounded)} or bounded in unbounded
