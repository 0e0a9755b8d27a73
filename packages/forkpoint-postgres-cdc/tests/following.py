"""A program that writes each change of a table to files, numbered by key; it can kill itself at a step.

    python following.py DSN TABLE STATE_ROOT OUTPUT [STEP NUMBER]

STEP: one of STEPS, before (or with a trailing "+", after) which it dies the NUMBER-th time.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import forkpoint as fp
from deaths import die_at
from forkpoint.checkpoint.history import History
from forkpoint_postgres_cdc import chunks, feed, slot
from forkpoint_postgres_cdc.enumerator import PostgresEnumerator

STEPS = {
    "create": (slot, "_create"),
    "export": (feed, "oldest_running"),
    "plan": (PostgresEnumerator, "plan"),
    "commit": (History, "commit"),
    "committed": (PostgresEnumerator, "committed"),
    "advance": (feed, "advance"),
    "peek": (feed._SlotFollower, "_check_slot"),
    "chunk": (chunks.Chunk, "to_json"),
}


class Seen(NamedTuple):
    id: int
    number: int
    kind: str
    version: int


class Numbered(fp.KeyedProcessFunction):
    count = fp.ValueStateDescriptor("count", int)

    def process_element(self, change: Any, ctx: fp.KeyedProcessFunction.Context) -> Any:
        number = (self.count.value() or 0) + 1
        self.count.update(number)
        row = change.after or change.before
        yield Seen(row.id, number, change.kind.name, row.version)


def following(env: fp.StreamExecutionEnvironment, source: fp.PostgresSource, output: str) -> None:
    changes = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "changes").uid("changes")
    by_id = changes.key_by(lambda change: (change.after or change.before).id, int)
    by_id.process(Numbered(), Seen).uid("numbered").sink_to(fp.FileSink.json(output)).uid("files")


if __name__ == "__main__":
    dsn, table, root, output, *death = sys.argv[1:]
    if death:
        die_at(STEPS, death[0], int(death[1]))
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(root).set_parallelism(2).set_max_epoch_rows(100).enable_checkpointing(1)
    following(env, fp.PostgresSource(dsn, [table], table, split_size=20), output)
    env.execute("following")
