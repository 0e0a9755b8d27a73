"""Views and clicks of posts, a file of JSON lines for each day of January 2026. Paid posts come on the 11th.

    python examples/dashboard/post_events.py EVENTS --days 1-10
    python examples/dashboard/post_events.py EVENTS --days 11-31

The events of a day are always the same. Up to the 10th, events have no field for paid posts.
"""

import argparse
import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
PAID_FROM = 11
EVENTS_A_DAY = 200
POSTS = 20


def events_of(day: int) -> Iterator[dict[str, Any]]:
    """A day's events in order of time."""
    rng = random.Random(day)
    start = FIRST + timedelta(days=day - 1)
    for second in sorted(rng.sample(range(24 * 3600), EVENTS_A_DAY)):
        post = rng.randrange(POSTS)
        event = {
            "time": int((start + timedelta(seconds=second)).timestamp() * 1000),
            "post": post,
            "kind": "click" if rng.random() < 0.2 else "view",
        }
        yield event if day < PAID_FROM else {**event, "paid": post % 4 == 0}


def write(directory: Path, days: range) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for day in days:
        hidden = directory / f".day-{day:02}.json"
        hidden.write_text("".join(json.dumps(event) + "\n" for event in events_of(day)))
        hidden.rename(directory / f"day-{day:02}.json")  # a file must be complete when it appears


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--days", default="1-31")
    arguments = parser.parse_args()
    first, last = map(int, arguments.days.split("-"))
    write(arguments.directory, range(first, last + 1))


if __name__ == "__main__":
    main()
