"""The processes of a driver on Spark: its JVM, and the Python workers of that. Found in /proc."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    command: tuple[str, ...]

    @property
    def is_jvm(self) -> bool:
        return bool(self.command) and Path(self.command[0]).name == "java"

    @property
    def is_python(self) -> bool:
        return any(".daemon" in word for word in self.command)


def jvm_of(driver: int) -> int | None:
    """The JVM that a driver has started, once there is one."""
    return next((each.pid for each in _below(driver) if each.is_jvm), None)


def workers_of(driver: int) -> list[int]:
    """The Python workers of a driver's JVM: processes that Spark's daemon has forked."""
    below = {each.pid: each for each in _below(driver)}
    return [each.pid for each in below.values() if each.is_python and each.parent in below and below[each.parent].is_python]


def _below(ancestor: int) -> Iterator[Process]:
    """The children of a process, their children, and so on."""
    processes = list(_all())
    left = [ancestor]
    while left:
        parent = left.pop()
        for each in processes:
            if each.parent == parent:
                left.append(each.pid)
                yield each


def _all() -> Iterator[Process]:
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            command = (place / "cmdline").read_bytes().decode(errors="replace").split("\0")
            # The name, in parentheses, may contain anything.
            parent = int((place / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
            yield Process(int(place.name), parent, tuple(command))
