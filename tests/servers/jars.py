"""The jars of servers in Java, fetched by Maven."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

BUILD = Path(__file__).parents[2] / "build"


def java(tool: str = "java") -> str:
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/{tool}" if home else tool


def jars(server: str, pom: Path) -> Path:
    """The directory of a server's jars, which the first call downloads. Skips the test where that is impossible."""
    place = BUILD / server / "libs"
    if shutil.which(java("javac")) is None:
        pytest.skip("needs a JDK: there is no javac")
    if place.is_dir():
        return place
    if shutil.which("mvn") is None:
        pytest.skip(f"needs the jars of {server}, and there is no Maven (mvn) to fetch them")
    place.parent.mkdir(parents=True, exist_ok=True)
    partial = place.with_name(f"libs-{os.getpid()}")
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={partial}"]
    command = ["mvn", "--quiet", "--batch-mode", "--file", str(pom), *goal]
    fetched = subprocess.run(command, capture_output=True, text=True)
    if fetched.returncode:
        shutil.rmtree(partial, ignore_errors=True)
        pytest.skip(f"Maven cannot fetch the jars of {server}: {(fetched.stdout + fetched.stderr)[-500:]}")
    with suppress(OSError):  # another process was faster
        partial.rename(place)
    return place
