"""The benchmark's two generators of Nexmark's events, in Python and in Java, make the same: else it would compare nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[2] / "benchmarks"
COUNT, PER_SECOND = 6_000, 700
FIELDS = {
    "person": "id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING",
    "auction": "id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING",
}
AFTER = {"auction": "expires TIMESTAMP(3), seller BIGINT, category BIGINT, "}


@pytest.mark.slow
@pytest.mark.parametrize("group", [1, 50])
def test_events_in_python_and_java_are_the_same(group: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(HERE)
    monkeypatch.syspath_prepend(HERE / "nexmark")
    from nexmark_events import tables
    from nexmark_queries import source
    from sides import running

    columns = ", ".join(
        f"{kind} ROW<{fields}, `dateTime` TIMESTAMP(3), {AFTER.get(kind, '')}extra STRING>" for kind, fields in FIELDS.items()
    )
    table = f"CREATE TABLE datagen (event_type INT, {columns}) WITH ({source(COUNT, PER_SECOND, group)})"
    wanted = tables(COUNT, PER_SECOND, group)
    with running(["flink-heap"], 1, tmp_path) as (flink,):
        for number, (kind, rows) in enumerate(wanted.items()):
            read = ", ".join(f"{kind}.`{name}`" for name in rows.column_names)
            found = flink.ask([table, f"SELECT {read} FROM datagen WHERE event_type = {number}"])
            texts = [
                [
                    f"{value:%Y-%m-%dT%H:%M:%S.}{value.microsecond // 1000:03}" if hasattr(value, "hour") else str(value)
                    for value in row.values()
                ]
                for row in rows.to_pylist()
            ]
            assert Counter(found) == Counter("\x1f".join(["1", *text]) for text in texts), kind
    assert sum(rows.num_rows for rows in wanted.values()) == COUNT
