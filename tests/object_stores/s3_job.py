"""A program that reads numbers from files and writes counts per key to files; it can kill itself at a step.

    python s3_job.py INPUT OUTPUT STATE_ROOT [STEP NUMBER]

STEP: one of STEPS, before (or with a trailing "+", after) which it dies the NUMBER-th time; or, with "sleep-" before it, stops
until somebody continues it (SIGCONT).
"""

from __future__ import annotations

import itertools
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import forkpoint as fp
from deaths import die_at
from forkpoint.checkpoint.history import History
from forkpoint.connectors.files import s3, sink, staged

KEYS = 10
EPOCH_ROWS = 20  # a file of 40 numbers counts as 10, by its size
STEPS = {
    "upload": (s3._Parts, "_begin"),
    "part": (s3._Parts, "_send"),
    "staged": (s3._Upload, "finish"),
    "checked": (sink.FileSink, "check"),
    "manifest": (History, "commit"),
    "mark": (s3.S3Files, "begin"),
    "complete": (s3.S3Files, "publish"),
    "cleanup": (sink.FileSink, "cleanup"),
    "move": (staged.MovedFiles, "publish"),
    "moved": (staged._Staged, "finish"),
}


def sleep_at(step: str, number: int) -> None:
    """Stop this process before the ``number``-th call of a step."""
    owner, name = STEPS[step]
    real, calls = getattr(owner, name), itertools.count(1)

    def sleeps(*args: Any, **options: Any) -> Any:
        if next(calls) == number:
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # this thread, at once
        return real(*args, **options)

    setattr(owner, name, sleeps)


class Number(NamedTuple):
    number: int


class Counted(NamedTuple):
    key: int
    seen: int


class Count(fp.KeyedProcessFunction):
    seen = fp.ValueStateDescriptor("seen", int)

    def process_element(self, value: Number, ctx: fp.KeyedProcessFunction.Context) -> Iterator[Any]:
        seen = (self.seen.value() or 0) + 1
        self.seen.update(seen)
        yield Counted(value.number % KEYS, seen)


def build(env: fp.StreamExecutionEnvironment, source: Any, output: str, **options: Any) -> None:
    numbers = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    counts = numbers.key_by(lambda n: n.number % KEYS, int).process(Count(), Counted).uid("counts")
    counts.sink_to(fp.FileSink.json(output, **options)).uid("out")


if __name__ == "__main__":
    source, output, root, *death = sys.argv[1:]
    if death:
        step, times = death[0], int(death[1])
        if step.startswith("sleep-"):
            sleep_at(step.removeprefix("sleep-"), times)
        else:
            die_at(STEPS, step, times)
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(root).set_parallelism(2).enable_checkpointing(1).set_max_epoch_rows(EPOCH_ROWS)
    build(env, fp.FileSource.json(source, Number, bounded=True), output)
    env.execute("files")
