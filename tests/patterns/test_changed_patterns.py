"""Partial matches that one pattern has saved go on with another."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

import forkpoint as fp
from forkpoint import col
from forkpoint.testing import Eof, run_local


class Payment(NamedTuple):
    card: str
    amount: int
    at: int


def pattern(small: str = "small", limit: int = 10, *, huge: bool = False, ordered: str = "followed_by") -> fp.Pattern:
    found = fp.Pattern.begin(small).where(col("amount") < limit)
    found = getattr(found, ordered)("mid").where(col("amount").between(10, 100)).one_or_more()
    found = found.followed_by("large").where(lambda payment: payment.amount > 500)
    return (found.followed_by("huge").where(col("amount") > 5000) if huge else found).within(1000)


def job(given: fp.Pattern):
    def build(env, payments):
        strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda payment, _: payment.at)
        stream = env.from_source(payments, strategy, "payments").uid("payments").map(lambda payment: payment, Payment)
        matches = fp.CEP.pattern(stream.key_by(lambda payment: payment.card, str), given)
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
