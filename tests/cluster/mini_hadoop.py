"""A real HDFS, and YARN if wanted, in one JVM: Hadoop's own mini clusters."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest

from servers.jars import QUICK_JVM, compiled, jars, java

HERE = Path(__file__).parent / "hadoop"


class MiniHadoop:
    """``settings``: what clients need."""

    def __init__(self, directory: Path, *services: str) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        path = f"{jars('hadoop', HERE / 'pom.xml')}/*"
        command = [
            java(),
            "--add-opens",
            "java.base/java.lang=ALL-UNNAMED",
            f"-Xmx{1024 if services else 384}m",
            *QUICK_JVM,
            "-cp",
            f"{compiled(HERE / 'MiniHadoop.java', path)}:{path}",
            "MiniHadoop",
            str(directory),
            *services,
        ]
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

    def __getstate__(self) -> dict[str, Any]:
        """For processes that use it and do not stop it."""
        return {name: value for name, value in vars(self).items() if name != "_process"}

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


def _xml(settings: Mapping[str, str]) -> str:
    rows = [f"<property><name>{name}</name><value>{escape(value)}</value></property>" for name, value in settings.items()]
    return "\n".join(["<configuration>", *rows, "</configuration>"])
