"""Nexmark's events as columns: persons, auctions and bids of an online auction, in the proportions 1 : 3 : 46.

The model is that of https://github.com/nexmark/nexmark: half of the bids are for a hot auction, three in four by a hot bidder,
and so on. An event depends on its number only; ``NexmarkOnFlink.java`` makes the same. Two things differ from the published
generator. Texts are drawn from pools, so that making events costs little on both sides. Bids that are near to each other have
different prices (their last 12 bits are those of the number), so that a ranking has one result.
"""

from __future__ import annotations

from datetime import datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.table.connectors.datagen import mixed

START = datetime(2024, 2, 29, 5, 30)  # noqa: DTZ001 (TIMESTAMP has no time zone)
START_MS = 1_709_184_600_000
FIRST_ID = 1000
FIRST_CATEGORY = 10
IN_FLIGHT, ACTIVE, LEAD, HOT = 100, 1000, 10, 100
"""Auctions that get bids, persons that are active, how many ids ahead of the last are drawn, and one hot one in so many."""

Numbers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
_TIME = pa.timestamp("ms")


def _letters(word: int, length: int) -> str:
    """So many letters, which depend on the word."""
    words = mixed(np.arange(length, dtype=np.uint64) + np.uint64(word << 10))
    return "".join(chr(ord("a") + each) for each in (words % np.uint64(26)).tolist())


def _pool(nth: int, size: int, length: int) -> pa.Array:
    """Texts of about this length, from 0.8 to 1.2 times."""
    return pa.array([_letters(nth * 100_000 + each, length * (80 + each % 41) // 100) for each in range(size)])


def _url(word: int) -> str:
    return f"https://www.nexmark.com/{'/'.join(_letters(word * 3 + part, 4) for part in range(3))}/item.htm?query=1"


NAMES = pa.array(
    [
        f"{first} {last}"
        for first in ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
        for last in ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
    ]
)
CITIES = pa.array(
    ["Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne"]
)
STATES = pa.array(["AZ", "CA", "ID", "OR", "WA", "WY"])
MAILS = pa.array([f"{_letters(700_000 + each, 6)}@{_letters(800_000 + each, 4)}.com" for each in range(1000)])
CARDS = pa.array([f"{each:04} {each * 7 % 10_000:04} {each * 13 % 10_000:04} {each * 31 % 10_000:04}" for each in range(1000)])
ITEMS, DESCRIPTIONS = _pool(1, 1000, 11), _pool(2, 1000, 50)
PERSON_EXTRAS, AUCTION_EXTRAS, BID_EXTRAS = _pool(3, 1000, 130), _pool(4, 1000, 400), _pool(5, 1000, 68)
HOT_CHANNELS = ["Google", "Facebook", "Baidu", "Apple"]
CHANNELS = pa.array(HOT_CHANNELS + [f"channel-{each}" for each in range(10_000)])
URLS = pa.array(
    [_url(each) for each in range(4)]
    + [_url(4 + each) + (f"&channel_id={each * 7919 % 1_000_003}" if each % 10 else "") for each in range(10_000)]
)


def events(numbers: Numbers, per_second: int, group: int = 1) -> pa.RecordBatch:
    """The events with these numbers, in columns ``event_type`` (0: person, 1: auction, 2: bid), ``person``, ``auction``, ``bid``.

    ``per_second``: of event time. ``group``: within each group of so many, events are in another order than their times.
    """
    if group > 1:
        numbers = numbers // group * group + numbers % group * 953 % group
    place = numbers % 50
    kinds = np.where(place == 0, 0, np.where(place <= 3, 1, 2)).astype(np.int32)
    with np.errstate(over="ignore"):
        first = mixed(numbers.astype(np.uint64) * np.uint64(2))
        second = mixed(numbers.astype(np.uint64) * np.uint64(2) + np.uint64(1))
    times_ms = START_MS + numbers * 1000 // per_second
    columns = [pa.array(kinds)]
    for kind, of in enumerate((_persons, _auctions)):
        rows = np.flatnonzero(kinds == kind)
        found = of(numbers[rows], first[rows], second[rows], times_ms[rows], per_second)
        at = np.full(len(numbers), -1, np.int64)
        at[rows] = np.arange(len(rows))
        columns.append(found.take(pa.array(at, mask=at < 0)))
    bids = _bids(numbers, first, second, times_ms)  # of all events, as nearly all are
    columns.append(pa.StructArray.from_arrays(bids.flatten(), fields=list(bids.type), mask=pa.array(kinds != 2)))
    return pa.RecordBatch.from_arrays(columns, names=["event_type", "person", "auction", "bid"])


def _last_person(numbers: Numbers) -> Numbers:
    return numbers // 50


def _last_auction(numbers: Numbers) -> Numbers:
    """The number of the last auction at this event."""
    last: Numbers = numbers // 50 * 3 + np.minimum(numbers % 50, 3) - 1
    return last


def _below(words32: Words, limits: Numbers) -> Numbers:
    """Words of 32 bits as numbers below the limits."""
    numbers: Numbers = ((words32 * limits.astype(np.uint64)) >> np.uint64(32)).astype(np.int64)
    return numbers


def _some_person(numbers: Numbers, words32: Words) -> Numbers:
    """One of the persons who are active, or will soon be there."""
    people = _last_person(numbers) + 1
    active = np.minimum(people, ACTIVE)
    return people - active + _below(words32, active + LEAD)


def _low(words: Words) -> Words:
    return words & np.uint64(0xFFFFFFFF)


def _bits(words: Words, start: int, count: int) -> Numbers:
    bits: Numbers = ((words >> np.uint64(start)) & np.uint64((1 << count) - 1)).astype(np.int64)
    return bits


def _prices(words: Words, start: int, numbers: Numbers) -> Numbers:
    """From 100 to 100 million, as many of each magnitude. 21 bits of the words."""
    exponent, fraction = _bits(words, start, 5) % 20, _bits(words, start + 5, 16)
    wide: Numbers = ((100 * (65536 + fraction)) << exponent) >> 16
    return (wide & ~4095) | (numbers & 4095)


def _of(pool: pa.Array, indices: Numbers) -> pa.Array:
    return pool.take(pa.array(indices % len(pool)))


def _persons(numbers: Numbers, first: Words, second: Words, times_ms: Numbers, per_second: int) -> pa.Array:
    columns = {
        "id": pa.array(FIRST_ID + _last_person(numbers)),
        "name": _of(NAMES, _bits(first, 0, 16)),
        "emailAddress": _of(MAILS, _bits(first, 16, 16)),
        "creditCard": _of(CARDS, _bits(first, 32, 16)),
        "city": _of(CITIES, _bits(first, 48, 8)),
        "state": _of(STATES, _bits(first, 56, 8)),
        "dateTime": pa.array(times_ms).cast(_TIME),
        "extra": _of(PERSON_EXTRAS, _bits(second, 0, 16)),
    }
    return pa.StructArray.from_arrays(list(columns.values()), list(columns))


def _auctions(numbers: Numbers, first: Words, second: Words, times_ms: Numbers, per_second: int) -> pa.Array:
    hot = _last_person(numbers) // HOT * HOT
    seller = np.where(_bits(first, 0, 2) > 0, hot, _some_person(numbers, _low(second)))
    initial = _prices(first, 2, numbers)
    ahead_ms = START_MS + (numbers + IN_FLIGHT * 50 // 3) * 1000 // per_second - times_ms
    lasts_ms = 1 + _below(second >> np.uint64(32), np.maximum(ahead_ms * 2, 1))
    columns = {
        "id": pa.array(FIRST_ID + _last_auction(numbers)),
        "itemName": _of(ITEMS, _bits(first, 44, 10)),
        "description": _of(DESCRIPTIONS, _bits(first, 48, 10)),
        "initialBid": pa.array(initial),
        "reserve": pa.array(initial + _prices(first, 23, numbers)),
        "dateTime": pa.array(times_ms).cast(_TIME),
        "expires": pa.array(times_ms + lasts_ms).cast(_TIME),
        "seller": pa.array(FIRST_ID + seller),
        "category": pa.array(FIRST_CATEGORY + _bits(first, 56, 8) % 5),
        "extra": _of(AUCTION_EXTRAS, _bits(first, 50, 14)),
    }
    return pa.StructArray.from_arrays(list(columns.values()), list(columns))


def _bids(numbers: Numbers, first: Words, second: Words, times_ms: Numbers) -> pa.Array:
    last = _last_auction(numbers)
    oldest = np.maximum(last - IN_FLIGHT, 0)
    some = oldest + _below(_low(second), last - oldest + 1 + LEAD)
    auction = np.where(_bits(first, 0, 1) > 0, last // HOT * HOT, some)
    hot = _last_person(numbers) // HOT * HOT + 1  # not a hot seller
    bidder = np.where(_bits(first, 1, 2) > 0, hot, _some_person(numbers, second >> np.uint64(32)))
    channel = pa.array(np.where(_bits(first, 3, 1) > 0, _bits(first, 4, 2), 4 + _bits(first, 6, 14) % 10_000))
    columns = {
        "auction": pa.array(FIRST_ID + auction),
        "bidder": pa.array(FIRST_ID + bidder),
        "price": pa.array(_prices(first, 20, numbers)),
        "channel": CHANNELS.take(channel),
        "url": URLS.take(channel),
        "dateTime": pa.array(times_ms).cast(_TIME),
        "extra": _of(BID_EXTRAS, _bits(first, 41, 16)),
    }
    return pa.StructArray.from_arrays(list(columns.values()), list(columns))


def tables(count: int, per_second: int, group: int = 1) -> dict[str, pa.Table]:
    """The first events as tables person, auction and bid."""
    found = events(np.arange(count, dtype=np.int64), per_second, group)
    by_kind = {}
    for kind, name in enumerate(("person", "auction", "bid")):
        rows = found.column(name).filter(pc.equal(found.column("event_type"), kind))
        by_kind[name] = pa.table(rows.flatten(), names=rows.type.names)
    return by_kind
