"""Partial matches that one pattern has saved go on with another."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

import forkpoint as fp
from forkpoint import col
from forkpoint.state_processor import SavepointReader
from forkpoint.testing import Eof, run_local


class Payment(NamedTuple):
    card: str
    amount: int
    at: int


def pattern(
    small: str = "small", limit: int = 10, *, huge: bool = False, ordered: str = "followed_by", within: int = 1000
) -> fp.Pattern:
    found = fp.Pattern.begin(small).where(col("amount") < limit)
    found = getattr(found, ordered)("mid").where(col("amount").between(10, 100)).one_or_more()
    found = found.followed_by("large").where(lambda payment: payment.amount > 500)
    return (found.followed_by("huge").where(col("amount") > 5000) if huge else found).within(within)


def job(given: fp.Pattern, keep_events: int | None = None):
    def build(env, payments):
        strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda payment, _: payment.at)
        stream = env.from_source(payments, strategy, "payments").uid("payments").map(lambda payment: payment, Payment)
        matches = fp.CEP.pattern(stream.key_by(lambda payment: payment.card, str), given, keep_events=keep_events)
        return {"found": matches.select(lambda match: {name: [p.amount for p in each] for name, each in match.items()}).uid("m")}

    return build


PAYMENTS = [
    Payment("a", 7, 1),
    Payment("b", 2, 2),
    Payment("a", 300, 2),
    Payment("a", 50, 3),
    Payment("b", 60, 4),
    Payment("b", 70, 6),
    Eof(savepoint=True),
    Payment("a", 600, 10),
    Payment("b", 700, 11),
    Payment("b", 6000, 12),
]
A = {"small": [7], "mid": [50], "large": [600]}
B = [{"small": [2], "mid": [60, 70], "large": [700]}, {"small": [2], "mid": [60], "large": [700]}]


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        (pattern(), [A, *B]),
        (pattern("tiny"), [{"tiny" if name == "small" else name: each for name, each in match.items()} for match in (A, *B)]),
        (pattern(limit=5), B),  # 7 is no longer small
        (pattern(huge=True), [{**match, "huge": [6000]} for match in B]),  # one stage more
        (pattern(ordered="next"), B),  # 300 came in between, which is not in state any more
    ],
    ids=["same", "renamed", "narrower", "longer", "stricter"],
)
def test_partial_matches_go_on(changed: fp.Pattern, found: list, tmp_path: Path) -> None:
    saved = run_local(job(pattern()), PAYMENTS, state_root=tmp_path, parallelism=2).savepoint
    later = run_local(job(changed), PAYMENTS, state_root=tmp_path, job_name="changed", restore=saved, parallelism=3)
    assert sorted(later.output, key=str) == sorted(found, key=str)


PATTERNS = [
    pattern(within=15),
    pattern(limit=5, within=15),
    pattern(limit=60, within=12),
    pattern(huge=True, within=15),
    pattern(ordered="next", within=15),
    pattern(within=7),
]


@pytest.mark.parametrize("seed", range(4))
def test_a_changed_pattern_goes_on_as_if_it_had_been_there_while_events_are_kept(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    payments = [Payment(random.choice("abc"), random.choice((2, 7, 50, 60, 300, 600, 6000)), at) for at in range(60)]
    before, after = [*payments[:40], Eof(savepoint=True)], payments[40:]
    old, new = random.sample(PATTERNS, 2)
    found = []
    for name, first in (("changed", old), ("same", new)):
        root = tmp_path / name
        saved = run_local(job(first, 20), before, state_root=root, epochs=random.randint(5, 50)).savepoint
        later = run_local(job(new, 20), [*before, *after], state_root=root, job_name="later", restore=saved, parallelism=3)
        found.append(sorted(later.output, key=str))
    assert found[0] == found[1]


def kept(saved: str | None) -> dict[str, list[int]]:
    """The amounts of the events in state, by key."""
    assert saved is not None
    found: dict[str, list[int]] = {}
    for row in SavepointReader.read(saved).state("m", "events").rows():
        found.setdefault(row.key, []).append(row.value.amount)
    return found


def test_events_are_kept_for_some_time_once_that_is_asked_for(tmp_path: Path) -> None:
    """Also those of keys without partial matches, and of keys that get no more."""
    first = [Payment("a", 3, 1), Payment("a", 7000, 2), Payment("b", 300, 3), Eof(savepoint=True)]
    second = [Payment("a", 7001, 4), Payment("c", 300, 5), Payment("b", 7, 6), Payment("a", 9000, 7), Eof(savepoint=True)]
    third = [Payment("b", 11, 12), Payment("a", 20, 13), Payment("d", 1, 14), Eof(savepoint=True)]
    fourth = [Payment("b", 800, 16), Payment("a", 800, 17), Payment("d", 1, 18)]

    def go_on(given: fp.Pattern, keep: int | None, payments: list, name: str, restore: str | None):
        return run_local(job(given, keep), payments, state_root=tmp_path, job_name=name, restore=restore, parallelism=2)

    narrow = pattern(limit=5)
    one = go_on(narrow, None, first, "one", None).savepoint
    assert kept(one) == {"a": [3]}
    two = go_on(narrow, 10, [*first, *second], "two", one).savepoint
    assert kept(two) == {"a": [3, 7001], "b": [300, 7], "c": [300]}  # those from before only if a partial match has them
    three = go_on(narrow, 10, [*first, *second, *third], "three", two).savepoint
    # 3 is needed by the partial match that began with it; 300 of b is 10 ms old.
    assert kept(three) == {"a": [3, 7001, 9000, 20], "b": [7, 11], "c": [300]}
    assert {row.key for row in SavepointReader.read(three).state("m", "partial_matches").rows()} == {"a", "b", "c"}
    wider = go_on(pattern(), 10, [*first, *second, *third, *fourth, Eof(savepoint=True)], "wider", three)
    assert wider.output == [{"small": [7], "mid": [11], "large": [800]}, {"small": [3], "mid": [20], "large": [800]}]
    off = go_on(narrow, None, [*first, *second, *third, *fourth[:1], Eof(savepoint=True)], "off", three).savepoint
    assert kept(off) == {"a": [3, 20], "d": [1]}
    assert "event_times" not in {state.name for state in SavepointReader.read(off).states}
