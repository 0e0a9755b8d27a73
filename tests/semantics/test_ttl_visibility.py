"""Who sees an expired entry, and how often: as Flink's TtlValueState, TtlListState and TtlMapState have it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import forkpoint as fp
from forkpoint.testing import KeyedProcessHarness, ManualClock

Config = fp.StateTtlConfig


def ttl(*, returned: bool, on_read: bool = False, event_time: bool = True, ms: int = 10) -> fp.StateTtlConfig:
    builder = Config.new_builder(timedelta(milliseconds=ms))
    builder = builder.return_expired_if_not_cleaned_up() if returned else builder.never_return_expired()
    builder = builder.update_ttl_on_read_and_write() if on_read else builder.update_ttl_on_create_and_write()
    return (builder.use_event_time() if event_time else builder.use_processing_time()).build()


class Latest(fp.AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + value

    def get_result(self, accumulator: int) -> int:
        return accumulator * 10

    def merge(self, a: int, b: int) -> int:
        return a + b


class States(fp.KeyedProcessFunction):
    """Elements are the names of what to do; reads are yielded."""

    def __init__(self, config: fp.StateTtlConfig) -> None:
        self.config = config

    def open(self, ctx: Any) -> None:
        def described(descriptor: Any) -> Any:
            return descriptor.enable_time_to_live(self.config)

        self.value = ctx.get_state(described(fp.ValueStateDescriptor("value", int)))
        self.list = ctx.get_list_state(described(fp.ListStateDescriptor("list", int)))
        self.map = ctx.get_map_state(described(fp.MapStateDescriptor("map", str, int)))
        self.sum = ctx.get_reducing_state(described(fp.ReducingStateDescriptor("sum", lambda a, b: a + b, int)))
        self.mean = ctx.get_aggregating_state(described(fp.AggregatingStateDescriptor("mean", Latest(), int)))

    def process_element(self, e: tuple[str, str], ctx: Any) -> Any:
        what, argument = e
        if what == "write":
            number = int(argument)
            self.value.update(number)
            self.list.add(number)
            self.map.put(argument, number)
            self.sum.add(number)
            self.mean.add(number)
        elif what == "add":
            self.list.add(int(argument))
            self.sum.add(int(argument))
            self.mean.add(int(argument))
        elif what == "read":
            yield {
                "value": lambda: self.value.value(),
                "list": lambda: list(self.list.get()),
                "map": lambda: sorted(self.map.items()),
                "get": lambda: self.map.get("1"),
                "contains": lambda: self.map.contains("1"),
                "empty": lambda: self.map.is_empty(),
                "sum": lambda: self.sum.get(),
                "mean": lambda: self.mean.get(),
            }[argument]()


Step = tuple[str, str] | int


def run(config: fp.StateTtlConfig, steps: list[Step], *, one_epoch: bool) -> list[Any]:
    """Elements in one epoch between two moves of the clock, or each in one of its own; a number moves the clock."""
    clock = ManualClock(1000)
    with KeyedProcessHarness(States(config), key=lambda _: "k", key_type=str, clock=clock) as h:
        h.process_watermark(1000)
        waiting: list[Any] = []

        def flush() -> None:
            h.process_elements([(e, None) for e in waiting])
            waiting.clear()

        for step in steps:
            if isinstance(step, int):
                flush()
                h.process_watermark(1000 + step)
                h.set_processing_time(1000 + step)
            else:
                waiting.append(step)
                if not one_epoch:
                    flush()
        flush()
        return h.output


EXPECTED = [
    ("value", [1, None, None], [None, None, None]),
    ("list", [[1], [], []], [[], [], []]),
    ("map", [[("1", 1)], [], []], [[], [], []]),
    ("get", [1, None, None], [None, None, None]),
    ("contains", [True, False, False], [False, False, False]),
    ("empty", [False, False, False], [True, True, True]),  # isEmpty() asks the map itself, and removes nothing
    ("sum", [1, None, None], [None, None, None]),
    ("mean", [10, None, None], [None, None, None]),
]


@pytest.mark.parametrize(("what", "shown", "hidden"), EXPECTED)
@pytest.mark.parametrize("one_epoch", [True, False])
@pytest.mark.parametrize("on_read", [True, False])
@pytest.mark.parametrize("event_time", [True, False])
def test_an_expired_entry_is_shown_once(
    what: str, shown: list[Any], hidden: list[Any], one_epoch: bool, on_read: bool, event_time: bool
) -> None:
    steps: list[Step] = [("write", "1"), 10, *[("read", what)] * 3]
    for returned, expected in ((True, shown), (False, hidden)):
        config = ttl(returned=returned, on_read=on_read, event_time=event_time)
        if not event_time and returned:
            config = Config(config.ttl_ms, config.update_type, config.state_visibility, config.time_characteristic, False)
        assert run(config, steps, one_epoch=one_epoch) == expected


@pytest.mark.parametrize("one_epoch", [True, False])
def test_a_list_shows_expired_elements_until_all_have_expired(one_epoch: bool) -> None:
    read = ("read", "list")
    steps: list[Step] = [("add", "1"), 5, ("add", "2"), 10, read, read, 15, read, read]
    assert run(ttl(returned=True), steps, one_epoch=one_epoch) == [[1, 2], [1, 2], [1, 2], []]
    assert run(ttl(returned=False), steps, one_epoch=one_epoch) == [[2], [2], [], []]


@pytest.mark.parametrize("one_epoch", [True, False])
def test_reading_a_list_renews_only_what_has_not_expired(one_epoch: bool) -> None:
    read = ("read", "list")
    steps: list[Step] = [("add", "1"), 5, ("add", "2"), 10, read, read, 19, read, 29, read, read]
    assert run(ttl(returned=True, on_read=True), steps, one_epoch=one_epoch) == [[1, 2], [2], [2], [2], []]
    assert run(ttl(returned=False, on_read=True), steps, one_epoch=one_epoch) == [[2], [2], [2], [], []]


@pytest.mark.parametrize("one_epoch", [True, False])
@pytest.mark.parametrize(("what", "shown", "hidden"), [("sum", 3, 2), ("mean", 30, 20)])
def test_adding_to_an_expired_value_that_is_still_there(what: str, shown: int, hidden: int, one_epoch: bool) -> None:
    steps: list[Step] = [("add", "1"), 10, ("add", "2"), 19, ("read", what)]
    assert run(ttl(returned=True), steps, one_epoch=one_epoch) == [shown]
    assert run(ttl(returned=False), steps, one_epoch=one_epoch) == [hidden]


@pytest.mark.parametrize("what", [name for name, _, _ in EXPECTED])
def test_what_may_be_seen_does_not_go_with_epochs(what: str) -> None:
    """Nothing sweeps behind the reader's back where entries age by event time."""
    steps: list[Step] = [("write", "1"), 10, ("write", "2"), *range(11, 19), ("read", what)]
    alone = run(ttl(returned=True), steps, one_epoch=True)
    crowded: list[Step] = [s for step in steps for s in (step, ("nothing", ""), 0)]
    assert run(ttl(returned=True), crowded, one_epoch=False) == alone


def test_a_written_value_that_expires_within_its_epoch_is_still_seen() -> None:
    """One epoch in which time passes: what is written early and expired at its end is there in the next."""

    class Write(fp.KeyedProcessFunction):
        value = fp.ValueStateDescriptor("value", int).enable_time_to_live(ttl(returned=True))

        def process_element(self, e: str, ctx: Any) -> Any:
            if e == "write":
                self.value.update(1)
                ctx.timer_service().register_event_time_timer(1100)
            else:
                yield self.value.value()

        def on_timer(self, timestamp: int, ctx: Any) -> Any:
            yield self.value.value()
            self.value.update(2)

    with KeyedProcessHarness(Write(), key=lambda _: "k", key_type=str) as h:
        h.process_watermark(1000)
        h.process_element("write")
        h.process_watermark(1200)
        assert h.take() == [1]
        h.process_watermark(2000)
        for e in ("read", "read"):
            h.process_element(e)
        assert h.output[1:] == [2, None]
