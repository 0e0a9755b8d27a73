"""The examples as tests run them: their modules by file, and each as a function from an engine to its results."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import forkpoint as fp
from forkpoint.api.launch import Launch
from forkpoint.graph.options import RestoreOptions
from patience import PATIENCE_S

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

EVENTS = [
    {"kind": "motion", "room": 1, "time": 500},
    {"kind": "activate", "room": 1, "time": 1_000},
    {"kind": "activate", "room": 2, "time": 2_000},
    {"kind": "motion", "room": 1, "time": 5_000},
    {"kind": "motion", "room": 3, "time": 6_000},
    {"kind": "deactivate", "room": 2, "time": 7_000},
    {"kind": "motion", "room": 2, "time": 8_000},
]
# Room 1's alarm has been on since 1 s; that of room 2 is switched on again, and rooms 2 and 3 are not known to be armed.
LATER_EVENTS = [
    {"kind": "motion", "room": 2, "time": 20_000},
    {"kind": "activate", "room": 2, "time": 21_000},
    {"kind": "motion", "room": 1, "time": 30_000},
    {"kind": "motion", "room": 1, "time": 31_001},
    {"kind": "motion", "room": 2, "time": 51_000},
    {"kind": "motion", "room": 2, "time": 51_001},
    {"kind": "motion", "room": 3, "time": 60_000},
]


def load(path: str) -> ModuleType:
    """An example as a module that tasks in other processes can import too."""
    file = EXAMPLES / path
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    if file.stem not in sys.modules:
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[file.stem] = module
        spec.loader.exec_module(module)
    return sys.modules[file.stem]


def environment(engine: str, parallelism: int = 2) -> fp.StreamExecutionEnvironment:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": engine})
    return env.set_parallelism(parallelism)


def averages(engine: str) -> list[Any]:
    return load("count_window_average.py").averages(environment(engine)).execute_and_collect(limit=100)


def digit_counts(engine: str) -> list[Any]:
    return sorted(map(tuple, load("counter.py").counts(environment(engine), stop=1_000).execute_and_collect()))


def alarms_of_both_versions(engine: str, directory: Path) -> dict[str, list[tuple[int, int]]]:
    """What each version raised: version 1 on EVENTS, stopped; version 2 on LATER_EVENTS; version 1 on them instead."""
    v1, v2 = load("alarm/alarm_v1.py"), load("alarm/alarm_v2.py")
    events = directory / "events"
    write_events(events / "1.json", EVENTS)
    first = start_alarm(v1, engine, directory, "v1")
    wait_until(lambda: read_alarms(directory / "v1") != [])
    savepoint = first.stop_with_savepoint().result(PATIENCE_S)
    write_events(events / "2.json", LATER_EVENTS)
    for name, module in (("v2", v2), ("v1-again", v1)):
        restored = start_alarm(module, engine, directory, name, savepoint=savepoint, parallelism=3)
        wait_until(lambda name=name: len(read_alarms(directory / name)) >= 1)
        restored.stop_with_savepoint().result(PATIENCE_S)
    return {name: read_alarms(directory / name) for name in ("v1", "v2", "v1-again")}


def start_alarm(
    module: ModuleType, engine: str, directory: Path, name: str, savepoint: str | None = None, parallelism: int = 2
) -> fp.JobClient:
    env = environment(engine, parallelism).set_state_root(str(directory / "state"))
    module.build(env, str(directory / "events"), str(directory / name))
    env.launch = Launch(restore=RestoreOptions(savepoint=savepoint), job_name=name)
    return env.execute_async("motion-alarm")


def write_events(path: Path, events: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}")
    hidden.write_text("".join(json.dumps(event) + "\n" for event in events))
    hidden.rename(path)


def read_alarms(directory: Path) -> list[tuple[int, int]]:
    lines = [line for file in directory.glob("*.jsonl") for line in file.read_text().splitlines()]
    return sorted((alarm["room"], alarm["time"]) for alarm in map(json.loads, lines))


def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.05)
