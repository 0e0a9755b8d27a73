"""A process that dies at a lookup: every element is joined once, and each key has one answer."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from looking_up import KEYS

from programs import ENVIRONMENT, run_python

PROGRAM = Path(__file__).with_name("looking_up.py")
ELEMENTS = 600


@pytest.mark.slow
@pytest.mark.parametrize("step", ["ask 1", "ask+ 2", "ask+ 3", "ask+ 7"])
def test_a_process_that_is_killed_at_a_lookup(tmp_path: Path, step: str) -> None:
    root, out = tmp_path / "root", tmp_path / "out"
    root.mkdir()
    arguments = [PROGRAM, root, out, ELEMENTS]
    assert run_python([*arguments, *step.split()], env=ENVIRONMENT, capture_output=True).returncode == -9
    again = run_python(arguments, env=ENVIRONMENT, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    pairs = [json.loads(line) for file in out.rglob("*.json*") for line in file.read_text().splitlines()]
    assert sorted(number for number, _ in pairs) == list(range(ELEMENTS))
    answers: dict[int, set[int]] = {}
    for number, found in pairs:
        answers.setdefault(number % KEYS, set()).add(found)
    assert {key: len(found) for key, found in answers.items()} == dict.fromkeys(range(KEYS), 1)
    asked = Counter(map(int, (root / "asked").read_text().split()))
    assert set(asked) == set(range(KEYS))
    assert max(asked.values()) <= 2, "only the epoch that was under way has asked again"
