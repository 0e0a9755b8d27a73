"""A real HDFS, and YARN if wanted, in one JVM: Hadoop's own mini clusters."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

HERE = Path(__file__).parent / "hadoop"
LIBRARIES = Path(__file__).parents[2] / "build" / "hadoop"


def java(tool: str = "java") -> str:
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/{tool}" if home else tool


def libraries() -> Path:
    """The directory of Hadoop's jars, which the first call downloads. Skips the test where that is impossible."""
    place = LIBRARIES / "libs"
    if shutil.which(java("javac")) is None:
        pytest.skip("needs a JDK: there is no javac")
    if place.is_dir():
        return place
    if shutil.which("mvn") is None:
        pytest.skip("needs Hadoop's jars, and there is no Maven (mvn) to fetch them")
    LIBRARIES.mkdir(parents=True, exist_ok=True)
    partial = LIBRARIES / f"libs-{os.getpid()}"
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={partial}"]
    command = ["mvn", "--quiet", "--batch-mode", "--file", str(HERE / "pom.xml"), *goal]
    fetched = subprocess.run(command, capture_output=True, text=True)
    if fetched.returncode:
        shutil.rmtree(partial, ignore_errors=True)
        pytest.skip(f"Maven cannot fetch Hadoop's jars: {(fetched.stdout + fetched.stderr)[-500:]}")
    with suppress(OSError):  # another process was faster
        partial.rename(place)
    return place


class MiniHadoop:
    """``settings``: what clients need."""

    def __init__(self, directory: Path, *services: str) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        command = [java(), "--add-opens", "java.base/java.lang=ALL-UNNAMED", f"-Xmx{1024 if services else 384}m",
                   "-cp", f"{libraries()}/*",
                   str(HERE / "MiniHadoop.java"), str(directory), *services]  # fmt: skip
        with open(directory / "log", "wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=directory
            )
        self.settings: dict[str, str] = {}
        assert self._process.stdout is not None
        for line in self._process.stdout:
            name, equals, value = line.strip().partition("=")
            if equals:
                self.settings[name] = value
            if name == "ready":
                break
        else:
            pytest.fail((directory / "log").read_text()[-3000:])
        self.configuration = directory / "conf"
        self.configuration.mkdir()
        for file in ("core-site.xml", "yarn-site.xml"):
            (self.configuration / file).write_text(_xml(self.settings))

    @property
    def hdfs(self) -> str:
        """The URL of its file system."""
        return self.settings["fs.defaultFS"]

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


def _xml(settings: Mapping[str, str]) -> str:
    rows = [
        f"<property><name>{name}</name><value>{escape(value)}</value></property>" for name, value in settings.items()
    ]
    return "\n".join(["<configuration>", *rows, "</configuration>"])
