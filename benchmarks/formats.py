"""How many messages a second one core reads and writes in a format: JSON and CSV, of 100 to 200 bytes each.

    python benchmarks/formats.py [--rows 200000] [--batch 10000]

Prints a line of JSON for each case: the best of five rounds.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

import forkpoint as fp
from forkpoint.types import type_of


class Order(NamedTuple):
    id: int
    customer: str
    item: str
    price: float
    quantity: int
    paid: bool
    note: str | None = None


class Nested(NamedTuple):
    id: int
    tags: list[str]
    price: float


@dataclass
class Batch:
    """What a sink is given: columns."""

    table: pa.RecordBatch
    type: Any
    timestamps: None = None

    @property
    def values(self) -> list[Any]:
        values: list[Any] = self.type.from_columns(self.table.columns)
        return values


def orders(rows: int) -> list[dict[str, Any]]:
    random.seed(1)
    return [
        {
            "id": n,
            "customer": f"customer-{random.randrange(10**6)}@mail.example.com",
            "item": f"item {random.randrange(1000)}",
            "price": round(random.random() * 100, 2),
            "quantity": random.randrange(10),
            "paid": random.random() < 0.5,
            "note": None if n % 3 else "to be left at the neighbour's door, or in the garage if nobody is there",
        }
        for n in range(rows)
    ]


def measure(case: str, work: Callable[[list[Any]], Any], batches: list[Any], rows: int, size: float) -> None:
    best = float("inf")
    for _ in range(5):
        start = time.process_time()
        work(batches)
        best = min(best, time.process_time() - start)
    print(json.dumps({"case": case, "bytes": round(size), "per_second": round(rows / best)}))


def reading(case: str, schema: Any, texts: list[bytes], batch: int) -> list[Any]:
    batches = [pa.array(texts[at : at + batch], pa.binary()) for at in range(0, len(texts), batch)]
    size = sum(map(len, texts)) / len(texts)
    measure(case, lambda each: [schema.deserialize_batch(b) for b in each], batches, len(texts), size)
    return [schema.deserialize_batch(b).elements for b in batches]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=10_000)
    arguments = parser.parse_args()
    pa.set_cpu_count(1)
    given = orders(arguments.rows)
    texts = [json.dumps(each, separators=(",", ":")).encode() for each in given]
    tables = reading("read JSON", fp.JsonRowDeserializationSchema(Order), texts, arguments.batch)
    bad = [b"{" if n % 1000 == 999 else text for n, text in enumerate(texts)]
    reading("read JSON, one in 1000 bad", fp.JsonRowDeserializationSchema(Order), bad, arguments.batch)
    nested = [json.dumps({"id": e["id"], "tags": [e["customer"]] * 5, "price": e["price"]}).encode() for e in given]
    reading("read JSON with lists", fp.JsonRowDeserializationSchema(Nested), nested, arguments.batch)
    lines = [
        f"{e['id']},{e['customer']},{e['item']},{e['price']},{e['quantity']},{str(e['paid']).lower()},{e['note'] or ''}".encode()
        for e in given
    ]
    reading("read CSV", fp.CsvRowDeserializationSchema(type_of(Order)), lines, arguments.batch)
    writes = fp.JsonRowSerializationSchema(Order)
    batches: list[Any] = [Batch(table, type_of(Order)) for table in tables]
    size = sum(map(len, texts)) / len(texts)
    measure("write JSON", lambda each: [writes.serialize_batch(b) for b in each], batches, len(texts), size)


if __name__ == "__main__":
    main()
