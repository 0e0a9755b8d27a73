"""State beyond memory on forkpoint and on Flink 2.3 in Java (RocksDB, ForSt), in turn, each in a control group of limited memory.

    python benchmarks/large_state/against_flink.py [--keys N] [--passes N] [--seconds N] [--memory-mib N] [--sides NAME …]

A KeyedProcessFunction counts and adds up by key, as ``benchmarks/functions`` does, for so many keys that their state is a
multiple of the memory. ``uniform``: each event is of any key; ``zipf``: the n-th key has a share of about 1/n. A side ends after
``--seconds``, or with its events; throughput is that of the last third of its time. The limit counts the page cache. Needs root.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import psutil

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))
import flink_in_turn  # noqa: E402

MIB = 1 << 20
FLINK = {"flink-rocksdb": "rocksdb", "flink-forst": "forst"}
SIDES = ["local", "spark", *FLINK]
SAMPLE_SECONDS = 0.5


class Limited:
    """A control group with a memory limit, of either version of Linux' groups."""

    def __init__(self, limit_mib: int) -> None:
        v1, v2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
        old = v1.is_dir()
        self._group = (v1 if old else v2) / f"forkpoint-{os.getpid()}"
        self._group.mkdir()
        limit = "memory.limit_in_bytes" if old else "memory.max"
        (self._group / limit).write_text(str(limit_mib * MIB))
        self._anonymous = "rss" if old else "anon"

    def enter(self) -> None:
        (self._group / "cgroup.procs").write_text(str(os.getpid()))

    def anonymous_mib(self) -> int:
        stat = dict(line.split() for line in (self._group / "memory.stat").read_text().splitlines())
        return int(stat[self._anonymous]) // MIB

    def written_mib(self) -> dict[int, int]:
        """What each process has written to disks."""
        found = {}
        for pid in map(int, (self._group / "cgroup.procs").read_text().split()):
            try:
                found[pid] = psutil.Process(pid).io_counters().write_bytes // MIB
            except psutil.Error:
                continue
        return found

    def kill(self) -> None:
        """All its processes."""
        while pids := (self._group / "cgroup.procs").read_text().split():
            for pid in map(int, pids):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(SAMPLE_SECONDS)

    def remove(self) -> None:
        self.kill()
        self._group.rmdir()


@contextmanager
def limited(limit_mib: int) -> Iterator[Limited]:
    group = Limited(limit_mib)
    try:
        yield group
    finally:
        group.remove()


def command_of(side: str, job: str, given: argparse.Namespace, directory: Path) -> list[str]:
    events, keys, parallelism = given.keys * given.passes, str(given.keys), str(given.parallelism)
    if side in FLINK:
        of_job = (job, str(events), keys, parallelism, str(given.memory_mib // 3), directory.as_uri(), FLINK[side])
        command = flink_in_turn.java_command("flink-large-state", HERE / "FlinkLargeState.java", *of_job)
        return [f"-Xmx{given.memory_mib // 3}m" if each.startswith("-Xmx") else each for each in command]
    given_to_program = [job, events, keys, parallelism, side, given.store, directory, given.epoch_rows, given.subtask_mib]
    return [sys.executable, str(HERE / "program.py"), *map(str, given_to_program)]


def measure(side: str, job: str, given: argparse.Namespace) -> str:
    with limited(given.memory_mib) as group, tempfile.TemporaryDirectory(prefix="large-state-", dir=given.directory) as name:
        environment = {**os.environ, "TMPDIR": name, "SPARK_MASTER": f"local[{given.parallelism}]"}
        anonymous, written = 0, dict[int, int]()
        marks: list[list[bytes]] = []
        with subprocess.Popen(
            command_of(side, job, given, Path(name)), env=environment, cwd=name, stdout=subprocess.PIPE, preexec_fn=group.enter
        ) as process:
            output = process.stdout
            assert output is not None
            reader = threading.Thread(target=lambda: marks.extend(line.split() for line in output))
            reader.start()
            until_s = time.monotonic() + given.seconds
            while process.poll() is None and time.monotonic() < until_s:
                time.sleep(SAMPLE_SECONDS)
                anonymous = max(anonymous, group.anonymous_mib())
                written.update(group.written_mib())
            ended = process.poll()
            group.kill()
            reader.join()
        if ended:
            return f"ended with {ended} after {int(marks[-1][1]) if marks else 0:,} events, {anonymous} MiB"
        return _described([(int(at_ms), int(events)) for at_ms, events in marks], anonymous, sum(written.values()) * MIB)


def _described(marks: list[tuple[int, int]], anonymous_mib: int, written: int) -> str:
    """``marks``: the number of processed events at times in ms."""
    first = {events: at_ms for at_ms, events in reversed(marks)}
    times = sorted((at_ms, events) for events, at_ms in first.items() if events)
    (began_ms, _), (last_ms, total) = times[0], times[-1]
    since_ms, since = next(mark for mark in times if mark[0] >= last_ms - (last_ms - began_ms) / 3)
    longest_ms = max(after[0] - before[0] for before, after in pairwise(times))
    return (
        f"{(total - since) / (last_ms - since_ms) * 1000:12,.0f} events/s, {total / (last_ms - began_ms) * 1000:,.0f} from the "
        f"beginning on, {total:,} in all; longest without progress {longest_ms / 1000:.1f} s; anonymous memory up to "
        f"{anonymous_mib} MiB; {written / total:.0f} bytes written an event"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=50_000_000)
    parser.add_argument("--passes", type=int, default=3, help="events for each key")
    parser.add_argument("--seconds", type=int, default=300, help="at most, for each side")
    parser.add_argument("--memory-mib", type=int, default=1024)
    parser.add_argument("--epoch-rows", type=int, default=1_000_000)
    parser.add_argument("--subtask-mib", type=int, default=300, help="forkpoint's memory per subtask; 0 for no limit")
    parser.add_argument("--store", default="rocksdb")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--directory", help="a directory on the disk to measure")
    parser.add_argument("--jobs", nargs="+", choices=["uniform", "zipf"], default=["uniform", "zipf"])
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=["local", "flink-rocksdb"])
    given = parser.parse_args()
    for job in given.jobs:
        for side in given.sides:
            print(f"{job:8} {side:14}{measure(side, job, given)}", flush=True)


if __name__ == "__main__":
    main()
