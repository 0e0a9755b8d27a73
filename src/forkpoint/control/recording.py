"""Recording a run's program: its file, the modules beside it that are loaded, and how it was started."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forkpoint.checkpoint.format import checksum
from forkpoint.control.programs import Program, pack, save_program
from forkpoint.driver.run.job_driver import JobDriver
from forkpoint.extras import is_own
from forkpoint.graph.secrets import is_secret

ENGINE = "FORKPOINT_ENGINE"


@dataclass(frozen=True)
class StartedProgram:
    """``path``: the program's file. ``directories``: where its modules are. ``name``, ``options``: what its launcher overrides.
    ``submitted``: the Spark settings among them are those of the process, for sessions of the program's own, too."""

    path: str
    text: bytes
    directories: Sequence[str]
    arguments: Sequence[str]
    pyflink: bool
    name: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    submitted: bool = False

    def record(self, driver: JobDriver) -> None:
        """Save it with the driver's run, which is about to start."""
        archive = pack(self._files())
        program = Program(
            app=os.path.abspath(self.path), arguments=list(self.arguments), directory=os.getcwd(), name=self.name,
            options=_without_secrets(self.options), engine=os.environ.get(ENGINE), pyflink=self.pyflink,
            submitted=self.submitted, bytes=len(archive), checksum=checksum(archive),
        )  # fmt: skip
        save_program(driver.history.storage, driver.job, driver.run_id, program, archive)

    def _files(self) -> dict[str, bytes]:
        """The program and its loaded modules from its own directories, by relative path."""
        found: dict[str, bytes] = {}
        for qualified, module in list(sys.modules.items()):
            place = None if is_own(qualified) else getattr(module, "__file__", None)
            if isinstance(place, str) and place.endswith(".py") and place != os.path.abspath(self.path):
                name = _within(os.path.realpath(place), self.directories)
                if name is not None and (content := content_of(Path(place))) is not None:
                    found.setdefault(name, content)
        return {**found, os.path.basename(self.path): self.text}


def own_program(spark: Mapping[str, str]) -> StartedProgram | None:
    """What this process was started with, by `python app.py` or `spark-submit app.py`. None if it could not be started again from
    a record: without a file, as in a notebook; from a package (``-m``); by a script of another program.

    ``spark``: the settings that Spark was started with.
    """
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    if not isinstance(path, str) or not path.endswith(".py") or getattr(main, "__spec__", None) is not None:
        return None
    text = content_of(Path(path))
    if text is None:
        return None
    home = os.path.dirname(os.path.realpath(path))
    options = {"spark": dict(spark)} if spark else {}
    return StartedProgram(path, text, [home], sys.argv[1:], _runs_pyflink(), options=options, submitted=True)


def _runs_pyflink() -> bool:
    """Whether ``pyflink`` is forkpoint here."""
    spec = getattr(sys.modules.get("pyflink"), "__spec__", None)
    return type(getattr(spec, "loader", None)).__module__.startswith("forkpoint.")


def _without_secrets(options: Mapping[str, Any]) -> dict[str, Any]:
    """What may be recorded: credentials among Spark's settings are given anew each time."""
    spark = {name: value for name, value in options.get("spark", {}).items() if not _has_secret(name, value)}
    rest = {name: value for name, value in options.items() if name != "spark"}
    return {**rest, "spark": spark} if spark else rest


def _has_secret(name: str, value: str) -> bool:
    return is_secret(name) or (name.endswith("JavaOptions") and is_secret(value))


def content_of(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError:
        return None


def _within(place: str, directories: Sequence[str]) -> str | None:
    for directory in directories:
        path = Path(place)
        if path.is_relative_to(directory):
            parts = path.relative_to(directory).parts
            if "site-packages" not in parts:
                return "/".join(parts)
    return None
