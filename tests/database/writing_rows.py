"""A program that counts per key and writes each key's count to a table; it can kill itself at a step of writing.

    python writing_rows.py URL TABLE STATE_ROOT ELEMENTS [STEP NUMBER]

The table has one row for each element (no key) if its name begins with "every", else one for each key. STEP: create, newest,
write, note or commit; it dies before the NUMBER-th, or, with a trailing "+", after it.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import forkpoint as fp
from deaths import die_at

KEYS = 10


class Counted(NamedTuple):
    number: int
    user: int
    count: int


class Count(fp.KeyedProcessFunction):
    seen = fp.ValueStateDescriptor("seen", int)

    def process_element(self, number: int, ctx: fp.KeyedProcessFunction.Context) -> Any:
        seen = (self.seen.value() or 0) + 1
        self.seen.update(seen)
        yield Counted(number, number % KEYS, seen)


def build(env: fp.StreamExecutionEnvironment, elements: int, sink: Any, per_epoch: int = 50) -> None:
    source = fp.CounterSource(elements, per_epoch=per_epoch)
    numbers = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    numbers.key_by(lambda n: n % KEYS, int).process(Count(), Counted).uid("counts").sink_to(sink).uid("rows")


def sink(url: str, table: str) -> Any:
    return fp.DatabaseSink(url, table, key=() if table.startswith("every") else "user")


def expected(table: str, elements: int) -> set[tuple[int, int, int]]:
    every = [(n, n % KEYS, n // KEYS + 1) for n in range(elements)]
    return set(every if table.startswith("every") else every[-KEYS:])


if __name__ == "__main__":
    url, table, root, elements, *death = sys.argv[1:]
    if death:
        from sqlalchemy.engine.default import DefaultDialect

        from forkpoint.connectors.database import committer, epochs

        steps = {
            "create": (epochs, "create"),
            "newest": (epochs, "newest"),
            "note": (epochs, "note"),
            "write": (committer.DatabaseCommitter, "_write"),
            "commit": (DefaultDialect, "do_commit"),
        }
        die_at(steps, death[0], int(death[1]))
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(root).set_parallelism(2).enable_checkpointing(1)
    build(env, int(elements), sink(url, table))
    env.execute("writing")
