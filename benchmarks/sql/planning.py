"""How long it takes to parse and plan a script of 200 lines: eight sources, eight sinks, and as many joins with an aggregate.

    python benchmarks/sql/planning.py

Imports are left out, and so is the first of the runs.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings

from forkpoint import StreamExecutionEnvironment
from forkpoint.sql.errors import Text
from forkpoint.sql.parser import parse
from forkpoint.table.session import Session
from forkpoint.table.statements import execute

ROUNDS = 11
PART = """CREATE TABLE orders{n} (
  id BIGINT,
  customer STRING,
  cents BIGINT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (
  'connector' = 'filesystem',
  'path' = '/orders/{n}',
  'format' = 'json'
);
CREATE TABLE totals{n} (
  customer STRING,
  orders BIGINT,
  cents BIGINT
) WITH (
  'connector' = 'print'
);
INSERT INTO totals{n}
SELECT o.customer, COUNT(*), SUM(o.cents)
FROM orders{n} AS o
JOIN orders{other} AS p ON o.id = p.id
WHERE o.cents > 5
GROUP BY o.customer
HAVING COUNT(*) > 1;
"""


def seconds(text: str) -> float:
    began = time.perf_counter()
    source = Text(text, "script.sql")
    session = Session(StreamExecutionEnvironment.get_execution_environment())
    session.name = "script"
    for statement in parse(source):
        execute(session, statement, source)
    return time.perf_counter() - began


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    warnings.simplefilter("ignore")
    text = "".join(PART.format(n=n, other=max(n - 1, 0)) for n in range(8))
    times = [seconds(text) for _ in range(ROUNDS)][1:]
    print(f"parse and plan of {text.count(chr(10))} lines: {1000 * statistics.median(times):.0f} ms")


if __name__ == "__main__":
    main()
