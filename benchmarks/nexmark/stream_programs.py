"""Seven of Nexmark's queries as programs of streams: what somebody writes who reads forkpoint's documentation.

Each takes the stream of all events, and returns that of its results, whose times are ints in milliseconds, like all times here.
"""

# ruff: noqa: N815  (fields have the published names)

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from connector import NexmarkSource

import forkpoint as fp
from forkpoint.types import type_of

TEN_SECONDS = timedelta(seconds=10)


class Person(NamedTuple):
    id: int
    name: str
    emailAddress: str
    creditCard: str
    city: str
    state: str
    dateTime: int
    extra: str


class Auction(NamedTuple):
    id: int
    itemName: str
    description: str
    initialBid: int
    reserve: int
    dateTime: int
    expires: int
    seller: int
    category: int
    extra: str


class Bid(NamedTuple):
    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    dateTime: int
    extra: str


class Event(NamedTuple):
    """One of the three."""

    event_type: int
    person: Person | None
    auction: Auction | None
    bid: Bid | None


IN_TIME: fp.WatermarkStrategy[Any] = fp.WatermarkStrategy.for_bounded_out_of_orderness(
    timedelta(seconds=4)
).with_timestamp_assigner(lambda each, _: each.dateTime)


def persons(events: fp.DataStream[Event]) -> fp.DataStream[Person]:
    found: fp.DataStream[Any] = events.filter(lambda event: event.event_type == 0).map(lambda event: event.person, Person)
    return found.assign_timestamps_and_watermarks(IN_TIME)


def auctions(events: fp.DataStream[Event]) -> fp.DataStream[Auction]:
    found: fp.DataStream[Any] = events.filter(lambda event: event.event_type == 1).map(lambda event: event.auction, Auction)
    return found.assign_timestamps_and_watermarks(IN_TIME)


def bids(events: fp.DataStream[Event]) -> fp.DataStream[Bid]:
    found: fp.DataStream[Any] = events.filter(lambda event: event.event_type == 2).map(lambda event: event.bid, Bid)
    return found.assign_timestamps_and_watermarks(IN_TIME)


# -- q0, q1, q2: without state


class Passed(NamedTuple):
    auction: int
    bidder: int
    price: int
    dateTime: int
    extra: str


class Converted(NamedTuple):
    auction: int
    bidder: int
    price: Decimal
    dateTime: int
    extra: str


class Price(NamedTuple):
    auction: int
    price: int


def q0(events: fp.DataStream[Event]) -> fp.DataStream[Passed]:
    return bids(events).map(lambda bid: Passed(bid.auction, bid.bidder, bid.price, bid.dateTime, bid.extra), Passed)


EUROS = Decimal("0.908")


def in_euros(bid: Bid) -> Converted:
    return Converted(bid.auction, bid.bidder, EUROS * bid.price, bid.dateTime, bid.extra)


def q1(events: fp.DataStream[Event]) -> fp.DataStream[Converted]:
    return bids(events).map(in_euros)


def q2(events: fp.DataStream[Event]) -> fp.DataStream[Price]:
    return bids(events).filter(lambda bid: bid.auction % 123 == 0).map(lambda bid: Price(bid.auction, bid.price), Price)


# -- q4: the average price of a category


class Sold(NamedTuple):
    category: int
    price: int


class Winning(fp.KeyedCoProcessFunction):
    """Emits an auction's highest bid when the auction has expired."""

    auction = fp.ValueStateDescriptor("auction", Auction)
    highest = fp.ValueStateDescriptor("highest", int, default_value=0)
    early = fp.ListStateDescriptor("early", Bid)
    """Bids that have come before their auction, as long as that may still come."""

    def process_element1(self, auction: Auction, ctx: fp.KeyedCoProcessFunction.Context) -> None:
        self.auction.update(auction)
        for bid in self.early.get():
            self._take(auction, bid)
        self.early.clear()
        ctx.timer_service().register_event_time_timer(auction.expires)

    def process_element2(self, bid: Bid, ctx: fp.KeyedCoProcessFunction.Context) -> None:
        auction = self.auction.value()
        if auction is not None:
            self._take(auction, bid)
        elif bid.dateTime > ctx.timer_service().current_watermark():
            self.early.add(bid)
            ctx.timer_service().register_event_time_timer(bid.dateTime)

    def _take(self, auction: Auction, bid: Bid) -> None:
        if auction.dateTime <= bid.dateTime <= auction.expires and bid.price > self.highest.value():
            self.highest.update(bid.price)

    def on_timer(self, timestamp: int, ctx: fp.KeyedCoProcessFunction.OnTimerContext) -> Iterator[Sold]:
        auction = self.auction.value()
        if auction is None:
            self.early.update([bid for bid in self.early.get() if bid.dateTime > timestamp])
        elif timestamp == auction.expires:
            if self.highest.value():
                yield Sold(auction.category, self.highest.value())
            self.auction.clear()
            self.highest.clear()


class Average(NamedTuple):
    category: int
    price: int


def q4(events: fp.DataStream[Event]) -> fp.DataStream[Average]:
    by_auction = auctions(events).connect(bids(events)).key_by("id", "auction")
    prices = by_auction.process(Winning(), Sold).uid("winning")
    totals = prices.key_by("category").agg(total=fp.Sum("price"), count=fp.Count()).uid("totals")
    return totals.map(lambda so_far: Average(so_far.category, so_far.total // so_far.count), Average)


# -- q5: the auctions with the most bids of the last ten seconds


class Hot(NamedTuple):
    auction: int
    num: int


class Hottest(fp.ProcessWindowFunction):
    def process(self, key: int, context: fp.ProcessWindowFunction.Context, elements: Iterable[Any]) -> Iterator[Hot]:
        counts = list(elements)
        most = max(each.num for each in counts)
        for each in counts:
            if each.num == most:
                yield Hot(each.auction, each.num)


def q5(events: fp.DataStream[Event]) -> fp.DataStream[Hot]:
    slide = timedelta(seconds=2)
    windows = bids(events).key_by("auction").window(fp.SlidingEventTimeWindows.of(TEN_SECONDS, slide))
    counts = windows.agg(end=fp.WindowEnd(), num=fp.Count()).uid("counts")
    return counts.key_by("end").window(fp.TumblingEventTimeWindows.of(slide)).process(Hottest(), Hot).uid("hottest")


# -- q8: who has auctions in the ten seconds in which they came


class Newcomer(NamedTuple):
    id: int
    name: str
    stime: int


def sellers(persons: list[Person], auctions: list[Auction]) -> Iterator[Newcomer]:
    if auctions:
        for person in persons:
            yield Newcomer(person.id, person.name, person.dateTime // 10_000 * 10_000)


def q8(events: fp.DataStream[Event]) -> fp.DataStream[Newcomer]:
    both = persons(events).co_group(auctions(events)).where("id").equal_to("seller")
    return both.window(fp.TumblingEventTimeWindows.of(TEN_SECONDS)).apply(sellers).uid("newcomers")


# -- q11: how many bids a bidder makes without a break of ten seconds


def q11(events: fp.DataStream[Event]) -> fp.DataStream[Any]:
    sessions = bids(events).key_by("bidder").window(fp.EventTimeSessionWindows.with_gap(TEN_SECONDS))
    return sessions.agg(bid_count=fp.Count(), starttime=fp.WindowStart(), endtime=fp.WindowEnd()).uid("sessions")


PROGRAMS: dict[str, Callable[[fp.DataStream[Event]], fp.DataStream[Any]]] = {
    each.__name__: each for each in (q0, q1, q2, q4, q5, q8, q11)
}


def streamed(
    query: str, env: fp.StreamExecutionEnvironment, count: int, per_second: int, group: int = 1, per_epoch: int = 1_000_000
) -> fp.DataStream[Any]:
    """A program's results over the first events; the numbers are those of ``queries.source``."""
    source = NexmarkSource(type_of(Event), count, per_second, group, per_epoch)
    events = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "events").uid("events")
    return PROGRAMS[query](events)
