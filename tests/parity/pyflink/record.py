"""Runs the parity programs on PyFlink, twice each, and writes what came out to ``recorded/``; see docs/flink-parity.md.

    .flink/venv/bin/python tests/parity/pyflink/record.py [--check] [PROGRAM…]

With ``--check`` nothing is written, and the exit code tells whether PyFlink still gives what is recorded.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cloudpickle
import parity_programs
from parity_inputs import Input
from parity_programs import HERE, RECORDED, Program, by_key, encode, load, names
from py4j.protocol import Py4JJavaError
from pyflink.common import Configuration, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import (
    DataStream,
    MapFunction,
    ProcessFunction,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from pyflink.java_gateway import get_gateway
from pyflink.pyflink_gateway_server import _find_flink_home as flink_home

ELEMENT = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG(), Types.LONG()])
HEAD_START_SECONDS = 6  # that the elements of an input have ahead of those that come ``after`` it


class TimeOf(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


class Wait(MapFunction):
    """Holds the first element back."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds

    def map(self, value: Any) -> Any:
        time.sleep(self.seconds)
        self.seconds = 0
        return value


class Record(ProcessFunction):
    """An element as JSON, with its output's name and its timestamp."""

    def __init__(self, output: str) -> None:
        self.output = output

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[str]:
        yield json.dumps([self.output, ctx.timestamp(), encode(value)])


def turn(program: Program, name: str) -> int:
    """How many inputs one after the other come before this one."""
    return max((turn(program, other) + 1 for other in program.inputs[name].after), default=0)


def stream(env: StreamExecutionEnvironment, given: Input, turn: int) -> DataStream:
    elements = env.from_collection(list(given.rows), ELEMENT)
    if turn:
        elements = elements.map(Wait(turn * HEAD_START_SECONDS), ELEMENT)
    if given.bound_ms is None:
        strategy = WatermarkStrategy.no_watermarks()
    else:
        strategy = WatermarkStrategy(get_gateway().jvm.WatermarkAfterEachElement(given.bound_ms))
    return elements.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(TimeOf()))


def run(program: Program) -> dict[str, list[Any]]:
    configuration = Configuration()
    configuration.set_integer("python.fn-execution.bundle.size", 1)  # a watermark waits for the end of a bundle
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(1)
    env.set_runtime_mode(RuntimeExecutionMode[program.mode])
    env.set_python_executable(sys.executable)
    env.get_config().set_auto_watermark_interval(0)
    streams = {name: stream(env, given, turn(program, name)) for name, given in program.inputs.items()}
    outputs = program.outputs(**streams)
    first, *others = [output.process(Record(name), Types.STRING()) for name, output in outputs.items()]
    found: dict[str, list[Any]] = {name: [] for name in outputs}
    with (first.union(*others) if others else first).execute_and_collect(program.name) as records:
        for record in records:
            name, timestamp, value = json.loads(record)
            found[name].append([timestamp, value])
    return found


def write(program: Program, outputs: dict[str, list[Any]]) -> None:
    """One line for each element, so that a change is easy to see."""
    head = {
        "program": program.name,
        "flink": version("apache-flink"),
        "inputs": {name: given.describe() for name, given in program.inputs.items()},
    }
    parts = [f'"{key}": {json.dumps(value)}' for key, value in head.items()]
    listed = [
        f'"{name}": [' + ",".join("\n  " + json.dumps(record) for record in records) + "\n ]" for name, records in outputs.items()
    ]
    parts.append('"outputs": {\n ' + ",\n ".join(listed) + "\n}")
    (RECORDED / f"{program.name}.json").write_text("{" + ",\n".join(parts) + "}\n")


def compile_watermarks() -> None:
    """Put the Java class beside Flink's own jars, where the JVM of the run finds it."""
    lib = Path(flink_home()) / "lib"
    with tempfile.TemporaryDirectory() as classes:
        source = str(HERE / "watermarks" / "WatermarkAfterEachElement.java")
        subprocess.run(["javac", "--release", "17", "-cp", f"{lib}/*", "-d", classes, source], check=True)
        subprocess.run(["jar", "cf", str(lib / "parity-watermarks.jar"), "-C", classes, "."], check=True)


def same(program: Program, outputs: dict[str, list[Any]], others: dict[str, list[Any]]) -> bool:
    return all(by_key(program, outputs[name]) == by_key(program, others[name]) for name in outputs)


def main(names: list[str], check: bool) -> None:
    compile_watermarks()
    cloudpickle.register_pickle_by_value(parity_programs)
    failed = []
    for name in names:
        program = load(name, "pyflink")
        started = time.monotonic()
        try:
            first, second = run(program), run(load(name, "pyflink"))
        except Py4JJavaError as e:
            failed.append(f"{name}: {e}")
            continue
        print(f"{name}: {sum(map(len, first.values()))} elements, {time.monotonic() - started:.0f} s", flush=True)
        if not same(program, first, second):
            failed.append(f"{name}: two runs gave two results, so they are not recorded")
        elif not check:
            write(program, first)
        elif not same(program, first, json.loads((RECORDED / f"{name}.json").read_text())["outputs"]):
            failed.append(f"{name}: PyFlink gives something else than what is recorded")
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Records what the parity programs give on PyFlink.")
    parser.add_argument("--check", action="store_true", help="write nothing, compare with what is recorded")
    parser.add_argument("programs", nargs="*", help="all of them by default")
    arguments = parser.parse_args()
    main(arguments.programs or names(), arguments.check)
