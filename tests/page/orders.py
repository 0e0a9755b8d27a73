"""A shop's orders: four branches, one of which has stopped to report later times, so that the watermark waits for it."""

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import forkpoint as fp

VERSION = "v1"
BRANCHES = ("berlin", "lagos", "lima", "osaka")
STUCK = "lima"  # its clock stands still after a while
STEP_MS = 100
DRINKS = ("tea", "coffee", "juice", "water")


class Order(NamedTuple):
    branch: str
    drink: str
    cents: int
    at: int


class Total(NamedTuple):
    drink: str
    orders: int
    cents: int


def order(branch: str, number: int, start: int) -> Order:
    """The order of this number in a branch: the same whenever it is read."""
    at = start + STEP_MS * (min(number, 40) if branch == STUCK else number)
    is_late = branch == "osaka" and number % 50 == 49
    return Order(branch, DRINKS[number % 4], 150 + number % 7 * 25, at - 3_600_000 if is_late else at)


class Orders(fp.Source[Order]):
    def __init__(self, start: int, per_epoch: int) -> None:
        self.start, self.per_epoch = start, per_epoch

    @property
    def bounded(self) -> bool:
        return False

    def output_type(self) -> None:
        return None  # given to from_source

    def create_enumerator(self, position: Any) -> "Numbers":
        return Numbers(dict.fromkeys(BRANCHES, 0) if position is None else position, self.per_epoch)

    def create_reader(self) -> "Reader":
        return Reader(self.start)


class Numbers(fp.SplitEnumerator):
    def __init__(self, position: dict[str, int], per_epoch: int) -> None:
        self.at, self.per_epoch = dict(position), per_epoch

    def plan(self, max_rows: int, parallelism_hint: int = 2) -> list[fp.SplitRange]:
        planned = [fp.SplitRange(each, 0, n, n + self.per_epoch, self.per_epoch) for each, n in self.at.items()]
        self.at = {each: n + self.per_epoch for each, n in self.at.items()}
        return planned

    @property
    def position(self) -> dict[str, int]:
        return dict(self.at)

    @property
    def finished(self) -> bool:
        return False


class Reader(fp.SourceReader[Order]):
    def __init__(self, start: int) -> None:
        self.start = start

    def read(self, stretch: fp.SplitRange) -> Iterator[list[Order]]:
        yield [order(stretch.split, number, self.start) for number in range(stretch.start, stretch.end)]


def total(each: Order, state: Total | None) -> tuple[Total, Total]:
    old = state or Total(each.drink, 0, 0)
    new = Total(each.drink, old.orders + 1, old.cents + each.cents)
    return new, new


def build(env: fp.StreamExecutionEnvironment, start: int) -> None:
    strategy = fp.WatermarkStrategy.for_bounded_out_of_orderness(1_000).with_timestamp_assigner(lambda o, _: o.at)
    orders = env.from_source(Orders(start, per_epoch=20), strategy, "orders", Order).uid("orders")
    paid = orders.filter(lambda o: o.cents > 0).uid("paid")
    by_drink = paid.key_by(lambda o: o.drink, str)
    by_drink.map_with_state(total, Total).uid("totals").sink_to(fp.DiscardSink()).uid("ledger")
    windows = paid.key_by(lambda o: o.branch, str).window(fp.TumblingEventTimeWindows.of(60_000))
    windows.sum("cents").uid("per-minute").sink_to(fp.DiscardSink()).uid("dashboard")


if __name__ == "__main__":
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(500)
    build(env, int(sys.argv[1]))
    env.execute(sys.argv[2])
