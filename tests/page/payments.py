"""A job that matches two patterns in the payments of cards, which it reads from a directory: lines of card, amount and time."""

import sys
from typing import NamedTuple

import forkpoint as fp
from forkpoint import col

HOSTILE = "<script>alert(1)</script>"


class Payment(NamedTuple):
    card: str
    amount: int
    at: int


def payment(line: str) -> Payment:
    card, amount, at = line.split()
    return Payment(card, int(amount), int(at))


def is_odd(payment: Payment) -> bool:
    return payment.amount % 2 == 1


SMALL_THEN_LARGE = (
    fp.Pattern.begin("small")
    .where(col("amount") < 10)
    .followed_by("mid")
    .where(col("amount").between(10, 100) | (col("card") == "<b>'&amp;'</b>"))
    .followed_by("large")
    .where(lambda payment: payment.amount > 500)
    .within(3_600_000)
)
LONG = (
    fp.Pattern.begin("first")
    .where(is_odd)
    .next(HOSTILE)
    .where(is_odd)
    .followed_by("repeated")
    .where(col("amount") > 7)
    .one_or_more()
    .not_followed_by("refund")
    .where(col("amount") < 0)
    .followed_by(fp.Pattern.begin("in").where(is_odd).followed_by("out").where(is_odd).optional())
    .times(2)
    .followed_by("greedy")
    .where(col("amount") == 3)
    .times_or_more(2)
    .greedy()
    .followed_by_any("any")
    .next("last")
    .where(is_odd)
)


def build(env: fp.StreamExecutionEnvironment, directory: str) -> None:
    lines = env.from_source(fp.FileSource.text(directory), fp.WatermarkStrategy.no_watermarks(), "lines").uid("lines")
    strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda payment, _: payment.at)
    payments = lines.map(payment, Payment).assign_timestamps_and_watermarks(strategy).uid("payments").key_by("card")
    for uid, pattern in {"fraud": SMALL_THEN_LARGE, "long": LONG}.items():
        fp.CEP.pattern(payments, pattern).select(len, int).uid(uid).sink_to(fp.DiscardSink()).uid(f"to-{uid}")


if __name__ == "__main__":
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(500)
    build(env, sys.argv[1])
    env.execute("payments")
