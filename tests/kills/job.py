"""The job that is killed: numbers, counted per key, to a system; or what the system runs instead.

    python -m kills.job SYSTEM ADDRESS STATE_ROOT STOP [STEP NUMBER]

STEP is one of ``STEPS`` or ``STEPS_OF_TASKS``: the process dies at its NUMBER-th call, or, with a trailing "+", after it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import forkpoint as fp
from deaths import die_at
from forkpoint.checkpoint.history import History
from forkpoint.driver.run.epochs import EpochRunner
from forkpoint.runtime.tasks import commits

USERS = 50
PER_EPOCH = 500
RUN = 5
"""How many numbers of a user make a match."""
STEPS = {
    "compute": (EpochRunner, "_compute"),
    "check": (EpochRunner, "_check_sinks"),
    "manifest": (History, "commit"),
    "publish": (EpochRunner, "_publish"),
}
STEPS_OF_TASKS = {"commit": (commits._Kept, "take"), "committed": (commits._Kept, "put")}


class Counted(NamedTuple):
    number: int
    user: int
    count: int


class Count(fp.KeyedProcessFunction):
    seen = fp.ValueStateDescriptor("seen", int)

    def process_element(self, number: int, ctx: fp.KeyedProcessFunction.Context) -> Iterator[Counted]:
        seen = (self.seen.value() or 0) + 1
        self.seen.update(seen)
        yield Counted(number, number % USERS, seen)


def expected(stop: int) -> list[Counted]:
    return [Counted(n, n % USERS, n // USERS + 1) for n in range(stop)]


def expected_matches(stop: int) -> list[Counted]:
    return [each for each in expected(stop) if each.count % RUN == 0]


def _place(number: int) -> int:
    """The place of a number among those of its user that make a match."""
    return number // USERS % RUN


def _matched(match: dict[str, list[int]]) -> Counted:
    numbers = [*match["first"], *match["more"], *match["last"]]
    assert numbers == list(range(numbers[0], numbers[-1] + 1, USERS)), numbers
    return Counted(numbers[-1], numbers[-1] % USERS, numbers[-1] // USERS + 1)


MATCH = (
    fp.Pattern.begin("first", fp.AfterMatchSkipStrategy.skip_past_last_event())
    .where(lambda number: _place(number) == 0)
    .next("more")
    .where(lambda number, ctx: _place(number) == 1 + len(list(ctx.get_events_for_pattern("more"))) < RUN - 1)
    .times(RUN - 2)
    .consecutive()
    .next("last")
    .where(lambda number: _place(number) == RUN - 1)
    .within(USERS * RUN)
)


def match_into(sink: Any, root: str, stop: int) -> None:
    """Write the last number of each match instead."""
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(root).set_parallelism(2).enable_checkpointing(20)
    source = fp.CounterSource(stop, per_epoch=PER_EPOCH)
    times = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda number, _: number)
    numbers: Any = env.from_source(source, times, "numbers").uid("numbers")
    matches = fp.CEP.pattern(numbers.key_by(lambda number: number % USERS, int), MATCH)
    matches.select(_matched, Counted).uid("matches").sink_to(sink).uid("out")
    env.execute("kills")


def count_into(sink: Any, root: str, stop: int) -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(root).set_parallelism(2).enable_checkpointing(20)
    source = fp.CounterSource(stop, per_epoch=PER_EPOCH)
    numbers: Any = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    counted = numbers.key_by(lambda number: number % USERS, int).process(Count(), Counted).uid("counts")
    counted.sink_to(sink).uid("out")
    env.execute("kills")


def main(system: str, address: str, root: str, stop: str, *death: str) -> None:
    from kills.systems import SYSTEMS

    if death:
        die_at(STEPS | STEPS_OF_TASKS, death[0], int(death[1]))
    SYSTEMS[system].run(address, root, int(stop))


if __name__ == "__main__":
    main(*sys.argv[1:])
