"""``python -m chaos``: faults for some minutes, and a table of them."""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from chaos.campaign import Campaign, Settings


@dataclass
class Tally:
    """What the workers have told so far."""

    began: float = field(default_factory=time.monotonic)
    faults: Counter[str] = field(default_factory=Counter)
    operations: dict[str, int] = field(default_factory=dict)
    tried: Counter[str] = field(default_factory=Counter)
    failures: list[dict[str, Any]] = field(default_factory=list)
    skipped: set[str] = field(default_factory=set)
    units: int = 0

    def add(self, message: dict[str, Any]) -> None:
        if "faults" in message:
            self.faults.update(message["faults"])
        if "operations" in message:
            self.operations[message["phase"]] = max(message["operations"], self.operations.get(message["phase"], 0))
            self.tried[message["phase"]] += message["tried"]
        if "failure" in message:
            self.failures.append({**message, "after_faults": self.faults.total()})
        if "skipped" in message:
            self.skipped.add(message["skipped"])
        self.units += "done" in message

    def table(self) -> Table:
        table = Table("fault", "times", box=None, pad_edge=False)
        table.columns[1].justify = "right"
        for kind, number in sorted(self.faults.items()):
            table.add_row(kind, str(number))
        table.add_section()
        table.add_row("all", str(self.faults.total()), style="bold")
        return table

    def as_json(self, settings: Settings) -> dict[str, Any]:
        return {
            "seed": settings.seed,
            "seconds": round(time.monotonic() - self.began, 1),
            "faults": self.faults.total(),
            "by_kind": dict(sorted(self.faults.items())),
            "units": self.units,
            "failures": self.failures,
            "operations": self.operations,
            "tried": dict(self.tried),
            "skipped": sorted(self.skipped),
        }


def main() -> int:
    settings, output = _arguments()
    tally = Tally()
    settings.directory.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that nothing goes on without us
    if output == "json":
        Campaign(settings, tally.add).run()
        print(json.dumps(tally.as_json(settings)))
    else:
        _shown(settings, tally)
    if not tally.failures:
        shutil.rmtree(settings.directory, ignore_errors=True)
    return 1 if tally.failures else 0


def _shown(settings: Settings, tally: Tally) -> None:
    console = Console()
    console.print(f"seed {settings.seed}, {settings.workers} workers, below {settings.directory}")
    told = 0
    with Live(console=console, auto_refresh=False, transient=True) as live:

        def on_message(message: dict[str, Any]) -> None:
            nonlocal told
            tally.add(message)
            for failure in tally.failures[told:]:
                told += 1
                if told <= 20:
                    live.console.print(_failure(settings, failure))
            if not message:
                live.update(_progress(settings, tally), refresh=True)

        Campaign(settings, on_message).run()
    console.print(tally.table())
    every = sum(tally.operations.values())
    covered = sum(min(tally.tried[phase], number) for phase, number in tally.operations.items())
    console.print(f"{covered} of {every} storage operations were hit by a fault of their own")
    if tally.skipped:
        console.print(f"left out here: {', '.join(sorted(tally.skipped))}")
    seconds = time.monotonic() - tally.began
    verdict = f"{len(tally.failures)} failures" if tally.failures else "nothing lost, nothing twice"
    console.print(f"{tally.faults.total()} faults in {seconds:.0f} s: {verdict}", style="bold")


def _progress(settings: Settings, tally: Tally) -> Group:
    seconds = time.monotonic() - tally.began
    line = Text(f"{seconds:4.0f} s  {tally.faults.total()} faults  ")
    line.append(f"{len(tally.failures)} failures", style="red" if tally.failures else "green")
    if settings.seconds is None:
        return Group(line)
    return Group(line, ProgressBar(total=settings.seconds, completed=min(seconds, settings.seconds), width=60))


def _failure(settings: Settings, failure: dict[str, Any]) -> Group:
    told = failure["told"]
    lines = [
        f"after {failure['after_faults']} faults, in {failure['unit']!r}:",
        failure["failure"],
        *([f"the job's directory: {failure['directory']}"] if failure["directory"] else []),
        f"again: SEED={settings.seed} ONLY={failure['unit']!r}",
        *(f"    {line}" for line in told[-30:]),
    ]
    return Group(Text(""), Text(lines[0], style="bold red"), *(Text(line) for line in lines[1:]))


def _arguments() -> tuple[Settings, str]:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long; 0 is the short form, the same each time")
    parser.add_argument("--seed", type=int, help="of a run that is to be repeated")
    parser.add_argument("--only", help="units whose names have this in them")
    parser.add_argument("--workers", type=int, default=(os.cpu_count() or 1) + 1)
    parser.add_argument("--directory", type=Path, default=Path(".chaos"), help="where the jobs are, and stay that failed")
    parser.add_argument("--no-spark", action="store_true", help="the local engine only; the short form never has more")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(10**6)
    seconds = given.minutes * 60 if given.minutes else None
    directory = given.directory.resolve() / f"seed-{seed}"
    return Settings(seed, directory, seconds, given.workers, given.only or None, not given.no_spark), given.output


if __name__ == "__main__":
    sys.exit(main())
