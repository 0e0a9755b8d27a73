"""Events of Nexmark: persons, auctions and bids of an online auction, in the proportions 1 : 3 : 46.

They depend only on their number. Ids begin at 1000, most bids are for a few hot auctions and by a few hot bidders, and neighbours
are out of order by up to two seconds, within the four seconds of the watermark.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

START = datetime(2024, 2, 29, 5, 30)  # noqa: DTZ001 (TIMESTAMP has no time zone)
STEP_MS = 37
DISORDER_MS = 2000
FIRST_ID = 1000
_NAMES = ("Peter", "Paul", "Luke", "John", "Vicky", "Kate", "Julie", "Sarah")
_PLACES = (("Phoenix", "AZ"), ("Los Angeles", "CA"), ("Boise", "ID"), ("Portland", "OR"), ("Seattle", "WA"), ("Cheyenne", "WY"))
_CHANNELS = ("Google", "Facebook", "Baidu", "Apple", *(f"channel-{n}" for n in range(50)))


def events(count: int) -> Iterator[dict[str, Any]]:
    rng = random.Random(2008)
    persons = auctions = 0
    prices: set[int] = set()  # all different, so that rankings by price have one result
    for n in range(count):
        at = START + timedelta(milliseconds=n * STEP_MS - rng.randrange(0, DISORDER_MS, 50))
        place = n % 50
        if place == 0:
            persons += 1
            yield {"event_type": 0, "person": _person(rng, FIRST_ID + persons - 1, at)}
        elif place <= 3:
            auctions += 1
            seller = FIRST_ID + _recent(rng, persons)
            yield {"event_type": 1, "auction": _auction(rng, FIRST_ID + auctions - 1, seller, at)}
        else:
            auction, bidder = (FIRST_ID + _recent(rng, count) for count in (auctions, persons))
            price = int(10 ** rng.uniform(2, 8))
            while price in prices:
                price += 1
            prices.add(price)
            yield {"event_type": 2, "bid": _bid(rng, auction, bidder, price, at)}


def write(directory: Path, count: int) -> dict[str, list[dict[str, Any]]]:
    """Write events as files of JSON lines, and return the persons, auctions and bids."""
    directory.mkdir()
    found: dict[str, list[dict[str, Any]]] = {"person": [], "auction": [], "bid": []}
    lines = []
    for event in events(count):
        kind = ("person", "auction", "bid")[event["event_type"]]
        found[kind].append(event[kind])
        texts = {
            name: value.isoformat(timespec="milliseconds") if isinstance(value, datetime) else value
            for name, value in event[kind].items()
        }
        lines.append(json.dumps({"event_type": event["event_type"], kind: texts}))
    for nth, start in enumerate(range(0, len(lines), 10_000)):
        (directory / f"{nth:05}.json").write_text("\n".join(lines[start : start + 10_000]) + "\n")
    return found


def _recent(rng: random.Random, count: int) -> int:
    """One of so many things: half of the time a hot one, else one of the last hundred."""
    if rng.random() < 0.5:
        return (count - 1) // 100 * 100
    return rng.randrange(max(0, count - 100), count)


def _person(rng: random.Random, id: int, at: datetime) -> dict[str, Any]:
    name = f"{rng.choice(_NAMES)} {rng.choice('ABCDEFG')}."
    city, state = rng.choice(_PLACES)
    card = " ".join(f"{rng.randrange(10_000):04}" for _ in range(4))
    mail = f"{name[0].lower()}{id}@example.com"
    return {"id": id, "name": name, "emailAddress": mail, "creditCard": card, "city": city, "state": state} | _end(rng, at)


def _auction(rng: random.Random, id: int, seller: int, at: datetime) -> dict[str, Any]:
    first = rng.randrange(100, 10_000)
    found = {"id": id, "itemName": f"item {id}", "description": "words " * rng.randrange(5), "initialBid": first}
    expires = at + timedelta(milliseconds=rng.randrange(500, 20_000))
    found |= {"reserve": first + rng.randrange(10_000), "expires": expires, "seller": seller, "category": rng.randrange(10, 15)}
    return found | _end(rng, at)


def _bid(rng: random.Random, auction: int, bidder: int, price: int, at: datetime) -> dict[str, Any]:
    channel = rng.choice(_CHANNELS)
    url = f"https://www.nexmark.com/{rng.choice('abc')}/{rng.choice('def')}/{rng.choice('gh')}/item.htm?query=1"
    if rng.random() < 0.9:
        url += f"&channel_id={rng.randrange(2**30)}"
    return {"auction": auction, "bidder": bidder, "price": price, "channel": channel, "url": url} | _end(rng, at)


def _end(rng: random.Random, at: datetime) -> dict[str, Any]:
    return {"dateTime": at, "extra": "".join(rng.choices("abcdefgh", k=rng.randrange(5, 30)))}
