"""The API's types, as mypy (strict) and pyright see them: in the examples, in each family of the API, and in programs with
mistakes, all of which have to be found. One run of each checker serves all tests."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
MISTAKES = HERE / "mistakes.py"


class Found(NamedTuple):
    file: Path
    line: int
    message: str


def mypy() -> list[Found]:
    files = [*sorted(ROOT.glob("examples/**/*.py")), *sorted(HERE.glob("[fm]*.py"))]
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", "--output=json", *map(str, files)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode < 2, done.stdout + done.stderr
    messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [Found(ROOT / m["file"], m["line"], m["message"]) for m in messages if m["severity"] == "error"]


def pyright() -> list[Found]:
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "--project", str(HERE)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode < 2, done.stdout + done.stderr
    messages = json.loads(done.stdout)["generalDiagnostics"]
    return [Found(Path(m["file"]), m["range"]["start"]["line"] + 1, m["message"]) for m in messages if m["severity"] == "error"]


@pytest.mark.parametrize("checker", [mypy, pyright], ids=["mypy", "pyright"])
def test_the_api_has_the_types_that_it_says_and_every_mistake_is_found(checker: Callable[[], list[Found]]) -> None:
    found = checker()
    assert [each for each in found if each.file != MISTAKES] == []
    lines = MISTAKES.read_text(encoding="utf-8").splitlines()
    made = {number for number, line in enumerate(lines, 1) if line.endswith("# mistake")}
    messages = {each.line: each.message for each in found if each.file == MISTAKES}
    assert len(made) > 20
    assert messages.keys() == made, messages


def test_the_package_says_that_it_has_types() -> None:
    assert (ROOT / "src/forkpoint/py.typed").exists()
