"""What an epoch costs the driver, the network and the state root, as a function of the number of subtasks.

    python benchmarks/scale.py
    python benchmarks/scale.py --subtasks 4 1024 --stages 3

The subtasks run one after the other in this process, over few rows, which does not change what is measured: the driver's own
time in an epoch (all but the tasks'), the context that is sent with every task, the manifest, the requests to the state
root. One line of JSON for each number of subtasks.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import forkpoint as fp
from forkpoint.api.launch import Launch
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.driver.observe.events import EpochCommitted, EpochReached, Event
from forkpoint.driver.run.job_driver import JobDriver
from forkpoint.local.executor import LocalExecutor
from forkpoint.runtime.exchange.control import EpochContext, JobSpec, divide, encode_context, encode_part
from forkpoint.storage.base import LocalStorage

ROWS = 2_000
KEYS = 100_000


class TimedExecutor(LocalExecutor):
    """Measures what the tasks take, and what they are sent."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self.subtasks = 0
        self.context_bytes: list[int] = []
        self.part_bytes: list[int] = []
        self.result_bytes: list[int] = []

    def start(self, spec: JobSpec) -> None:
        self.subtasks = spec.parallelism
        super().start(spec)

    def run_epoch(self, ctx: EpochContext, source_tasks: Sequence[bytes], frame: Any = None) -> list[bytes]:
        began = time.perf_counter()
        common, parts = divide(ctx, self.subtasks)
        self.context_bytes.append(len(encode_context(common)))
        self.part_bytes.append(sum(len(encode_part(part)) for part in parts))
        blobs = super().run_epoch(ctx, source_tasks, frame)
        self.result_bytes.append(sum(map(len, blobs)))
        self.seconds.append(time.perf_counter() - began)
        return blobs


class Observer:
    def __init__(self, epochs: int) -> None:
        self.epochs = epochs
        self.executor = TimedExecutor()
        self.seconds: list[float] = []
        self.driver: JobDriver | None = None
        self._began = 0.0

    def attach(self, driver: JobDriver) -> Any:
        self.driver, driver.executor = driver, self.executor
        return lambda ended: None

    def on_event(self, event: Event) -> None:
        if isinstance(event, EpochReached) and event.phase == "planned":
            self._began = time.perf_counter()
        if isinstance(event, EpochCommitted):
            self.seconds.append(time.perf_counter() - self._began)
            if len(self.seconds) == self.epochs and self.driver is not None:
                self.driver.cancel()


requests: Counter[str] = Counter()


def counted(name: str) -> None:
    """Count the calls of a method of local storage."""
    method: Callable[..., Any] = getattr(LocalStorage, name)

    def call(self: LocalStorage, *arguments: Any, **named: Any) -> Any:
        requests[name] += 1
        result = method(self, *arguments, **named)
        if name == "list":
            requests["listed files"] += len(result)
        return result

    setattr(LocalStorage, name, call)


def key(stage: int, number: int) -> int:
    return number * 1_000_003 % (KEYS + stage)


def count(number: int, state: int | None) -> tuple[int, int]:
    return (state or 0) + 1, (state or 0) + 1


def measure(subtasks: int, stages: int, epochs: int, rows: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="forkpoint-scale-") as root:
        env = fp.StreamExecutionEnvironment.get_execution_environment()
        env.set_state_root(root).set_max_parallelism(4096).set_parallelism(subtasks).enable_checkpointing(1)
        stream = env.from_source(fp.CounterSource(per_epoch=rows), fp.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
        for stage in range(stages):
            keyed = stream.key_by(partial(key, stage), int)
            stream = keyed.map_with_state(count, int, int).uid(f"counts-{stage}")
        stream.sink_to(fp.DiscardSink()).uid("discard")
        observer = Observer(epochs)
        env.launch = Launch(options={"engine": "local"}, listeners=[observer], on_driver=observer.attach)
        began = requests.copy()
        env.execute("scale")
        done = requests - began
        manifests = sorted(Path(root, JobPaths("scale").checkpoints).glob("*.json"))
        return {
            "subtasks": subtasks,
            "stages": stages,
            "driver_ms": round(
                1000
                * statistics.median(
                    all_ - tasks for all_, tasks in zip(observer.seconds, observer.executor.seconds, strict=False)
                ),
                1,
            ),
            "task_ms": round(1000 * statistics.median(observer.executor.seconds) / subtasks / stages, 2),
            "context_bytes": observer.executor.context_bytes[-1],
            "part_bytes": round(observer.executor.part_bytes[-1] / subtasks),
            "context_bytes_of_all_tasks": (
                observer.executor.context_bytes[-1] * subtasks * (stages + 1) + observer.executor.part_bytes[-1] * stages
            ),
            "result_bytes": observer.executor.result_bytes[-1],
            "manifest_bytes": manifests[-1].stat().st_size,
            "requests": {name: round(number / epochs, 1) for name, number in sorted(done.items())},
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subtasks", type=int, nargs="+", default=[4, 16, 64, 256])
    parser.add_argument("--stages", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=45)
    parser.add_argument("--rows", type=int, default=ROWS, help="in each epoch; with more, subtasks write files")
    arguments = parser.parse_args()
    for name in ("read", "put", "create", "list", "delete"):
        counted(name)
    for subtasks in arguments.subtasks:
        print(json.dumps(measure(subtasks, arguments.stages, arguments.epochs, arguments.rows)), flush=True)


if __name__ == "__main__":
    main()
