"""What a pattern says of itself, and how far the partial matches of a key are."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import forkpoint as fp
from forkpoint import col
from forkpoint.patterns.pattern import Grouping
from forkpoint.state_processor import SavepointReader
from forkpoint.testing import Eof, run_local


class Payment(NamedTuple):
    card: str
    amount: int
    at: int


def is_large(payment: Payment) -> bool:
    return payment.amount > 500


PATTERN = (
    fp.Pattern.begin("small")
    .where(is_large)
    .or_where(is_large)
    .not_followed_by("refund")
    .where(lambda payment: payment.amount < 0)
    .followed_by("mid")
    .where(is_large)
    .one_or_more()
    .next("large")
    .where(is_large)
    .within(60_000)
)

EXPLAINED = """\
small, where matches begin
  takes an event if (is_large(…) or is_large(…)) → mid:2
mid:2
  takes an event if is_large(…) → mid
  passes over an event if not (is_large(…)) → itself
  ends without a match, as refund has come if <lambda>(…)
mid:1
  takes an event if is_large(…) → mid
  passes over an event if not (is_large(…)) → itself
mid
  leaves it to large
  takes an event if is_large(…) → itself
  passes over an event if not (is_large(…)) → mid:1
large
  takes an event if is_large(…) → match
match
within 1 m 0 s from the first event to the last"""


def test_a_pattern_explains_its_states() -> None:
    assert PATTERN.explain() == EXPLAINED


def test_conditions_over_columns_are_shown_as_they_were_written() -> None:
    either = fp.Pattern.begin("small").where(col("amount") < 1).followed_by("large").where((col("a") > 5) | (col("b") == 1))
    lines = either.where(col("c") == 2).explain().splitlines()
    assert lines[1] == "  takes an event if amount < 1 → large"
    assert lines[3] == "  takes an event if ((a > 5) OR (b = 1)) and (c = 2) → match"


EITHER = """\
up or down, where matches begin
  leaves it to up:1
  leaves it to down
up:1
  takes an event if is_large(…) → up
up
  leaves it to after up
  takes an event if is_large(…) → itself
after up
  leaves it to a, b in any order if not (is_large(…))
down
  takes an event → a, b in any order
a, b in any order
  leaves it to a:1
  leaves it to b
a:1
  takes an event → b:1
b:1
  takes an event → match
b
  takes an event → a
a
  takes an event → match
match"""


def test_alternatives_and_any_order_which_sql_has_are_explained_and_drawn() -> None:
    either = fp.Pattern.begin("up").where(is_large).one_or_more().consecutive().greedy().next("down")
    one = fp.Pattern.begin(either).times(1).consecutive()._with(grouping=Grouping.ONE)
    pattern = one.next(fp.Pattern.begin("a").next("b"))._with(grouping=Grouping.ANY_ORDER)
    assert pattern.explain() == EITHER
    shown = pattern._repr_html_()
    assert "Pattern (up or down) next (a, b in any order)" in shown
    assert shown.count("<rect") == 11


def test_a_notebook_shows_a_drawing() -> None:
    shown = PATTERN._repr_html_()
    assert shown.count("<rect") == 6  # without the state of the refund
    assert "small" in shown
    assert "match" in shown


def test_the_partial_matches_of_a_key_tell_how_far_they_are(tmp_path: Path) -> None:
    pattern = (
        fp.Pattern.begin("small").where(lambda payment: payment.amount < 10).followed_by("large").where(is_large).within(1000)
    )

    def job(env, payments):
        times = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda payment, _: payment.at)
        keyed = env.from_source(payments, times, "payments").uid("payments").key_by(lambda payment: payment.card, str)
        return {"found": fp.CEP.pattern(keyed, pattern).select(len).uid("fraud")}

    payments = [Payment("a", 7, 100), Payment("a", 5, 150), Payment("b", 50, 200), Eof(savepoint=True)]
    saved = run_local(job, payments, state_root=tmp_path).savepoint
    assert saved is not None
    partial_matches = SavepointReader.read(saved).state("fraud", "partial_matches")
    found = pattern.progress(partial_matches.get("a"))
    assert list(map(str, found)) == [
        "has small at 100; waits for large (is_large(…)) until 1100",
        "has small at 150; waits for large (is_large(…)) until 1150",
    ]
    assert partial_matches.get("b") is None
    assert pattern.progress(None) == []
