"""The jars of servers in Java, fetched by Maven, and other things that tests download once."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

BUILD = Path(__file__).parents[2] / "build"
QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Starts fast. Without these, compiling what ends soon takes half of the processors' time."""


def java(tool: str = "java") -> str:
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/{tool}" if home else tool


def jars(server: str, pom: Path) -> Path:
    """The directory of a server's jars, which the first call downloads. Skips the test where that is impossible."""
    place = BUILD / server / "libs"
    if shutil.which(java("javac")) is None:
        pytest.skip("needs a JDK: there is no javac")
    if not place.is_dir() and shutil.which("mvn") is None:
        pytest.skip(f"needs the jars of {server}, and there is no Maven (mvn) to fetch them")
    command = ["mvn", "--quiet", "--batch-mode", "--file", str(pom), "dependency:copy-dependencies"]
    return downloaded(place, lambda into: [*command, f"-DoutputDirectory={into}"], f"Maven cannot fetch the jars of {server}")


def compiled(source: Path, classpath: str) -> Path:
    """The directory of the classes of a Java program, which the first call compiles: that takes longer than many a test."""
    place = BUILD / "classes" / f"{source.stem}-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}"
    command = [java("javac"), "-cp", classpath, str(source)]
    return downloaded(place, lambda into: [*command, "-d", str(into)], f"{source.name} cannot be compiled")


def downloaded(place: Path, command: Callable[[Path], Sequence[str]], problem: str) -> Path:
    """A directory that a command fills, for the first caller. Skips the test where that fails, with ``problem`` and why."""
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    partial = place.with_name(f"{place.name}-{os.getpid()}")
    fetched = subprocess.run(command(partial), capture_output=True, text=True)
    if fetched.returncode:
        shutil.rmtree(partial, ignore_errors=True)
        pytest.skip(f"{problem}: {(fetched.stdout + fetched.stderr)[-500:]}")
    with suppress(OSError):  # another process was faster
        partial.rename(place)
    return place
