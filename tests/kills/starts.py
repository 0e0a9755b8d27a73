"""Kills around the starts of a job: of upgrades whose driver then comes up late, of leaders with two standbys, and of drivers
that publish the output of a drain.

    python -m kills.starts [--upgrades N] [--standbys N] [--drains N] [--seed N]

Every number must be in the output once, and every standby that was not killed must be alive.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.manifest import Manifest
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.cli import main as forkpoint
from forkpoint.storage.base import open_storage
from programs import ENVIRONMENT, Python

PROGRAM = """
import sys
from typing import NamedTuple

import forkpoint as fp
from kills.drains import die_in_drain


class Line(NamedTuple):
    what: str
    number: int


class Count(fp.KeyedProcessFunction):
    seen = fp.ValueStateDescriptor("seen", int)

    def process_element(self, number, ctx):
        if self.seen.value() is None:
            ctx.timer_service().register_event_time_timer(10**15)  # fires when the job is drained
        self.seen.update((self.seen.value() or 0) + 1)
        yield Line("number", number)

    def on_timer(self, timestamp, ctx):
        yield Line("key", ctx.get_current_key())


stop, *death = sys.argv[1:]
die_in_drain(*death)
env = fp.StreamExecutionEnvironment.get_execution_environment()
env.enable_checkpointing(20).set_parallelism(4)
strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda number, _: number)
numbers = env.from_source(fp.CounterSource(int(stop) or None, per_epoch=40), strategy, "numbers").uid("numbers")
counted = numbers.key_by(lambda number: number % 20, int).process(Count(), Line).uid("counts")
counted.sink_to(fp.FileSink.csv("out")).uid("out")
env.execute("counting")
"""
JOB, KEYS = "counting", 20
READY_SECONDS = 120.0


class Wrong(AssertionError):
    pass


@dataclass
class Place:
    """A directory with a job of its own."""

    directory: Path
    rng: random.Random
    pids: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.directory.mkdir()
        (self.directory / "counting.py").write_text(PROGRAM)
        (self.directory / "changed.py").write_text(PROGRAM + "# changed\n")

    @property
    def root(self) -> str:
        return str(self.directory / ".forkpoint")

    def command(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "forkpoint.cli", "--state-root", self.root, *arguments]
        options: dict[str, Any] = {
            "cwd": self.directory,
            "env": ENVIRONMENT,
            "text": True,
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
            "start_new_session": True,
        }
        # The driver of an upgrade must be a child of the command, to be found in the middle of its start.
        return subprocess.Popen(command, **options) if arguments[0] == "upgrade" else Python(command[1:], **options)

    def end(self, *arguments: str, codes: tuple[int, ...] = (0,)) -> str:
        process = self.command(*arguments)
        said, _ = process.communicate()
        if process.returncode not in codes:
            raise Wrong(f"{arguments} ended with {process.returncode}: {said[-2000:]}")
        return said

    def start(self, *arguments: str) -> dict[str, Any]:
        said = self.end("--output", "json", "run", "-d", *arguments)
        found: dict[str, Any] = json.loads(said[said.index("{") :])
        self.pids.append(found["pid"])
        return found

    def jobs(self) -> list[dict[str, Any]]:
        done = CliRunner().invoke(forkpoint, ["--state-root", self.root, "--output", "json", "list"])
        found: list[dict[str, Any]] = json.loads(done.stdout)["jobs"]
        return found

    def wait(self, what: str, found: Any) -> Any:
        until = time.monotonic() + READY_SECONDS
        while time.monotonic() < until:
            if result := found():
                return result
            time.sleep(0.05)
        raise Wrong(f"{what}: not within {READY_SECONDS:.0f} s; {self.jobs()}")

    def history(self) -> History:
        return History(open_storage(self.root), JobPaths(JOB))

    def newest(self) -> Manifest:
        found = self.history().newest()
        assert found is not None
        return found

    def read(self) -> int:
        """How many numbers the job has read."""
        return sum(split.count for split in self.newest().sources["numbers"].splits.values())

    def more(self) -> str:
        """The number at which a run that reads a little more stops."""
        return str(self.read() + 400)

    def wait_epochs(self, more: int) -> None:
        newest = self.history().newest()
        first = 0 if newest is None else newest.epoch
        self.wait(f"{more} more epochs", lambda: (m := self.history().newest()) is not None and m.epoch >= first + more)

    def kill_all(self) -> None:
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)

    def check(self) -> None:
        """Every number that is committed is published once, and every key, if the timers have fired: drained, or at the end."""
        newest, read = self.newest(), self.read()
        files = [path for path in (self.directory / "out").rglob("part-*") if path.is_file()]
        lines = [line for path in files for line in path.read_text().replace('"', "").splitlines()[1:]]
        wanted = [f"number,{n}" for n in range(read)]
        wanted += (
            [f"key,{key}" for key in range(min(KEYS, read))]
            if newest.kind == "end" or (newest.drained and not newest.withheld)
            else []
        )
        lost, twice = Counter(wanted) - Counter(lines), Counter(lines) - Counter(wanted)
        if lost or twice:
            raise Wrong(f"{lost.total()} of {len(wanted)} lines lost, {twice.total()} twice, in {self.directory}")


def upgrade(place: Place) -> str:
    """An upgrade is killed once it has started its driver, which is suspended somewhere in its start. Somebody starts the job by
    hand, and it ends; then the driver goes on."""
    first = place.start("counting.py", "--", "0")
    place.wait_epochs(2)
    command = place.command("upgrade", "--stop-first", JOB, "changed.py", "--", "0")
    late = place.wait("the new driver", lambda: _child(command.pid))
    place.pids.append(late)
    time.sleep(place.rng.choice((0.0, place.rng.uniform(0, 2.5))))
    os.kill(command.pid, signal.SIGKILL)
    command.communicate()
    with suppress(ProcessLookupError):
        os.killpg(late, signal.SIGSTOP)
    led = place.newest().run != first["run"]
    place.end("run", "-s", "latest", "counting.py", "--", place.more(), codes=(0, 1, 3, 4))
    with suppress(ProcessLookupError):
        os.killpg(late, signal.SIGCONT)
    if led:  # it had come up in time, so it leads; else it must see that it came too late
        place.end("cancel", JOB, codes=(0, 5))
    place.wait("the end of the late driver", lambda: not _lives(late) or (not led and _leads(place, late)))
    if _lives(late):
        place.end("cancel", JOB)
    if place.newest().withheld:  # cancelled while it was on trial: the next run decides about its output
        place.end("run", "counting.py", "--", place.more())
    place.check()
    return "upgrade, already leading" if led else "upgrade"


def standbys(place: Place, times: int) -> int:
    """A leader is killed while two stand by, time and again: in half of the cases both see at the same moment that it is gone."""
    leader = place.start("--standby", "counting.py", "--", "0")
    waiting = [place.start("--standby", "counting.py", "--", "0") for _ in range(2)]
    for _ in range(times):
        place.wait_epochs(2)
        together = place.rng.random() < 0.5
        for each in waiting if together else ():
            os.killpg(each["pid"], signal.SIGSTOP)
        os.killpg(leader["pid"], signal.SIGKILL)
        if together:
            time.sleep(3.2)  # longer than a lease
            for each in waiting:
                os.killpg(each["pid"], signal.SIGCONT)
        runs = {each["run"]: each for each in waiting}
        led = place.wait("a leader", partial(_leader, place, runs))
        place.wait_epochs(2)
        states = {each["run"]: each["state"] for each in place.jobs()}
        if sorted(states.get(run, "gone") for run in runs) != ["running", "standby"]:
            raise Wrong(f"of two standbys: {states}, in {place.directory}")
        leader = runs.pop(led)
        waiting = [*runs.values(), place.start("--standby", "counting.py", "--", "0")]
    place.end("cancel", JOB)
    place.check()
    return times


def drain(place: Place) -> str:
    """A driver dies at a step of the end of ``stop --drain``, and so do some of those that follow it."""
    step = place.rng.choice(("manifest", "rename"))
    place.start("counting.py", "--", "0", step, str(place.rng.randrange(1, 5)))
    place.wait_epochs(2)
    said = place.end("stop", "--drain", JOB, codes=(0, 3))
    newest = place.newest()
    drained = newest.drained_early and not newest.withheld
    if not drained:
        place.start("counting.py", "--", "0")
        place.end("cancel", JOB)
    elif not place.rng.randrange(3):
        place.end("run", "counting.py", "--", "0", codes=(4,))
    elif not place.rng.randrange(2):
        place.end("run", "--standby", "counting.py", "--", "0", codes=(4,))
    else:
        shown = [problem["text"] for each in place.jobs() for problem in each["problems"]]
        if not all(any("forkpoint publish" in text for text in texts) for texts in ([said], shown)):
            raise Wrong(f"nobody says what to do: {said}")
        place.end("publish", JOB)
    place.check()
    if any(each["problems"] for each in place.jobs()) and drained:
        raise Wrong(f"published, and still shown: {place.jobs()}")
    return f"drain, {step}"


def _child(parent: int) -> int | None:
    """The driver that a command has started."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            after = path.read_text().rsplit(")", 1)[1].split()
            if int(after[1]) == parent and b"--driver-report-fd" in (path.parent / "cmdline").read_bytes():
                return int(path.parent.name)
    return None


def _leader(place: Place, runs: Collection[str]) -> str | None:
    return next((each["run"] for each in place.jobs() if each["state"] == "running" and each["run"] in runs), None)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _leads(place: Place, pid: int) -> bool:
    return any(each["pid"] == pid and each["state"] == "running" and each["epoch"] for each in place.jobs())


def campaign(directory: Path, *, upgrades: int, standby_kills: int, drains: int, seed: int) -> Counter[str]:
    """Run them; how many there were of each kind. Raises Wrong, and keeps the directory."""
    rng, done = random.Random(seed), Counter[str]()
    kinds = [upgrade] * upgrades + [drain] * drains
    for number, kind in enumerate(kinds):
        place = Place(directory / f"{kind.__name__}-{number}", rng)
        try:
            done[kind(place)] += 1
        finally:
            place.kill_all()
        shutil.rmtree(place.directory)
    for number in range(0, standby_kills, 10):
        place = Place(directory / f"standbys-{number}", rng)
        try:
            done["standbys"] += standbys(place, min(10, standby_kills - number))
        finally:
            place.kill_all()
        shutil.rmtree(place.directory)
    return done


def main() -> int:
    parser = argparse.ArgumentParser(prog="kills.starts")
    parser.add_argument("--upgrades", type=int, default=20)
    parser.add_argument("--standbys", type=int, default=10)
    parser.add_argument("--drains", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="forkpoint-kills-"))
    try:
        done = campaign(
            directory,
            upgrades=options.upgrades,
            standby_kills=options.standbys,
            drains=options.drains,
            seed=options.seed,
        )
    except Wrong as wrong:
        print(f"{wrong}\nkept: {directory}")
        return 1
    print(", ".join(f"{count} {kind}" for kind, count in done.items()) + ": nothing lost, nothing twice, no standby gone")
    shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
