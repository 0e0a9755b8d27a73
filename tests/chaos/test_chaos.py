"""The short form of ``make chaos``: the same faults, few of each, always the same ones."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.model import expected, random_events
from chaos.reading import difference


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nothing_is_lost_and_nothing_doubled(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "chaos", "--minutes", "0", "--seed", "1", "--workers", "2"]
    command += ["--directory", str(tmp_path), "--output", "json"]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True)
    told = json.loads(done.stdout)
    failures = [f"{failure['unit']}: {failure['failure']}" for failure in told["failures"]]
    assert not failures, "\n".join(failures)
    assert done.returncode == 0
    assert told["faults"] >= 50, told


# -- that the check itself would notice


def test_the_model_tells_what_is_lost_what_is_doubled_and_what_is_wrong() -> None:
    events = random_events(random.Random(3), 200)
    wanted = expected(events, drained_after=len(events)).lines
    assert not difference(wanted, wanted)
    assert all(wanted[sink] for sink in wanted), "each sink has something to lose"
    got = {sink: lines.copy() for sink, lines in wanted.items()}
    lost, doubled = next(iter(got["windows"])), next(iter(got["late"]))
    del got["windows"][lost]
    got["late"][doubled] += 1
    got["ranks"]["rank", -1, 1] = 1
    found = difference(wanted, got)
    assert dict(found.lost) == {("windows", lost): 1}
    assert dict(found.doubled) == {("late", doubled): 1}
    assert dict(found.wrong) == {("ranks", ("rank", -1, 1)): 1}


def test_the_model_of_input_that_was_cut_short_is_not_that_of_all_of_it() -> None:
    events = random_events(random.Random(3), 200)
    whole, part = expected(events), expected(events[:-1])
    assert difference(whole.lines, part.lines)
    assert (whole.totals, whole.read) != (part.totals, part.read)
    assert whole.windows
    assert whole.timers
