"""A job that counts per key and writes each count to a sink, for tests of sinks: started here, or by a program that dies."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import forkpoint as fp
from forkpoint.api.execution import Job, prepare
from forkpoint.api.launch import Launch
from forkpoint.graph.options import RestartStrategy
from programs import ENVIRONMENT, run_python

KEYS = 10


class KeyCount(NamedTuple):
    key: int
    seen: int


class Count(fp.KeyedProcessFunction):
    seen = fp.ValueStateDescriptor("seen", int)

    def process_element(self, number: int, ctx: fp.KeyedProcessFunction.Context) -> Any:
        seen = (self.seen.value() or 0) + 1
        self.seen.update(seen)
        yield KeyCount(number % KEYS, seen)


def build(env: fp.StreamExecutionEnvironment, elements: int, sink: Any, per_epoch: int = 50) -> None:
    """The sink has the uid "sink"."""
    numbers = env.from_source(fp.CounterSource(elements, per_epoch=per_epoch), fp.WatermarkStrategy.no_watermarks(), "numbers")
    counts = numbers.uid("numbers").key_by(lambda n: n % KEYS, int).process(Count(), KeyCount).uid("counts")
    counts.sink_to(sink).uid("sink")


def counts_of(elements: int) -> dict[int, list[int]]:
    """The counts of each key, in order."""
    return {key: list(range(1, len(range(key, elements, KEYS)) + 1)) for key in range(KEYS)}


def main(state_root: str, elements: int, sink: Any) -> None:
    """Run the job, as a program does."""
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(state_root).set_parallelism(2).enable_checkpointing(1)
    build(env, elements, sink)
    env.execute("key-counts")


def program(file: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a program, to its end."""
    return run_python([file, *arguments], env=ENVIRONMENT, capture_output=True, text=True)


def job(root: Path, to: Any, elements: int, *, name: str = "key-counts", parallelism: int = 2, **options: Any) -> Job:
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(str(root)).set_parallelism(parallelism)
    env.options = replace(env.options, restart=options.pop("restart", RestartStrategy.none()))
    build(env, elements, to, options.pop("per_epoch", 50))
    env.launch = Launch(options={"engine": "local"}, **options)
    return prepare(env, name)


def run(root: Path, to: Any, elements: int, **options: Any) -> Any:
    return job(root, to, elements, **options).begin()()


def run_elements(root: Path, to: Any, elements: list[Any], type: Any) -> Any:
    """Write elements in one epoch."""
    env = fp.StreamExecutionEnvironment.get_execution_environment().set_state_root(str(root))
    env.set_parallelism(1)
    env.options = replace(env.options, restart=RestartStrategy.none())
    env.from_collection(elements, type).uid("elements").sink_to(to).uid("sink")
    env.launch = Launch(options={"engine": "local"})
    return prepare(env, "elements").begin()()
