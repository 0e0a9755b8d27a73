"""Checks whether this machine and the hosts of a cluster have what drivers and tasks need."""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from forkpoint.driver.start.preflight import HostReport, try_hosts
from forkpoint.errors import AlreadyExists, ConfigError, ForkpointError, NotFound
from forkpoint.graph.options import JobOptions
from forkpoint.operations.launch.recorded import pack
from forkpoint.operations.observer import SILENT, Observer
from forkpoint.operations.roots import StateRoot
from forkpoint.runtime.tasks.preflight import PROBES
from forkpoint.storage.base import LocalStorage, Storage

LEAST_JAVA = 17
LEAST_MEMORY_GB = 2.5  # Spark's driver takes 2 GB by default
LEAST_DISK_GB = 1.0
LEAST_FILES = 1024
MAX_CLOCK_SKEW_MS = 10_000
_WRITERS = 8
_GB = 1e9


@dataclass(frozen=True)
class Check:
    """``found``: a version, size or path, for people. ``problem``: the problem and its remedy, if any."""

    name: str
    found: str
    problem: str | None = None


def check_machine(state_root: str | None = None) -> list[Check]:
    """Check the needs of a driver on this machine: programs, memory, limits, ports, and the guarantees of the state root."""
    storage = StateRoot(state_root).storage
    kinds: dict[str, Callable[[], Check]] = {
        "Java": _java,
        "memory": _memory,
        "open files": _open_files,
        "temporary files": lambda: _space("temporary files", tempfile.gettempdir(), "free some, or set TMPDIR"),
        "ports": _ports,
        "state root": lambda: check_storage(storage),
    }
    found = [Check("Python", f"{platform.python_version()} ({sys.executable}), forkpoint {version('forkpoint')}")]
    for name, check in kinds.items():
        try:
            found.append(check())
        except (ForkpointError, OSError) as error:
            found.append(Check(name, "unknown", str(error)))
    return found


def _java() -> Check:
    from forkpoint.spark.session import java_program  # loads PySpark

    try:
        program = java_program()
    except ConfigError as error:
        return Check("Java", "none", f"{error}. Without it, only the local engine works (--engine local)")
    try:
        output = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    except (OSError, subprocess.SubprocessError) as error:
        return Check("Java", str(program), f"{program} does not run: {error}; install a JDK, or correct JAVA_HOME")
    found = java_version(output)
    text = f"{'unknown' if found is None else found} ({program}), PySpark {version('pyspark')}"
    if found is not None and found < LEAST_JAVA:
        return Check("Java", text, f"Spark needs Java {LEAST_JAVA} or newer; install one, and set JAVA_HOME")
    return Check("Java", text)


def java_version(output: str) -> int | None:
    """The feature version in the output of ``java -version``: 17 for "17.0.15", 8 for "1.8.0"."""
    found = re.search(r'version "(?:1\.)?(\d+)', output)
    return None if found is None else int(found[1])


def _memory() -> Check:
    try:
        gb = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / _GB
    except (ValueError, OSError):
        return Check("memory", "unknown")
    limit = None  # of the control group
    for file in ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max"):
        with suppress(OSError, ValueError):
            limit = int(Path(file).read_text()) / _GB
    found = f"{gb:.1f} GB" if limit is None or limit >= gb else f"{limit:.1f} GB (the container's limit)"
    if min(gb, limit or gb) < LEAST_MEMORY_GB:
        return Check("memory", found, "Spark's driver takes 2 GB by default; lower spark.driver.memory, or use --engine local")
    return Check("memory", found)


def _open_files() -> Check:
    try:
        import resource
    except ImportError:  # Windows
        return Check("open files", "unknown")
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return Check("open files", "without limit")
    problem = f"raise the limit to {LEAST_FILES} at least (ulimit -n)" if limit < LEAST_FILES else None
    return Check("open files", f"up to {limit}", problem)


def _space(name: str, directory: str, remedy: str) -> Check:
    free_gb = shutil.disk_usage(directory).free / _GB
    problem = f"less than {LEAST_DISK_GB:.0f} GB is free; {remedy}" if free_gb < LEAST_DISK_GB else None
    return Check(name, f"{directory}, {free_gb:.1f} GB free", problem)


def _ports() -> Check:
    """Commands connect to drivers, and Spark to its Python workers, through ports of the loopback interface."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass
    try:
        socket.getaddrinfo(socket.gethostname(), None)
    except OSError as error:
        return Check(
            "ports",
            "loopback works",
            f"this host's name, {socket.gethostname()!r}, has no address ({error}), which Spark's driver needs; add it to "
            "/etc/hosts, or set SPARK_LOCAL_IP=127.0.0.1",
        )
    return Check("ports", "loopback works")


def check_storage(storage: Storage) -> Check:
    """Check the guarantees of ``Storage``, as far as one machine can: of several concurrent creations of a file, one succeeds;
    written files are visible, and deleted ones are gone."""
    directory = f"{PROBES}/{uuid.uuid4().hex}"
    try:
        problems = [*_semantics(storage, directory)]
    finally:
        storage.delete_prefix(directory)
    if isinstance(storage, LocalStorage) and not problems:
        return _space("state root", storage.root, "free some, or choose another directory")
    return Check("state root", storage.url, "; ".join(problems) or None)


def _semantics(storage: Storage, directory: str) -> Iterator[str]:
    file = f"{directory}/created"

    def create(number: int) -> bool:
        try:
            storage.create(file, str(number).encode())
        except AlreadyExists:
            return False
        return True

    began_ms = time.time_ns() // 10**6
    with ThreadPoolExecutor(_WRITERS) as pool:
        created = [number for number, succeeded in enumerate(pool.map(create, range(_WRITERS))) if succeeded]
    ended_ms = time.time_ns() // 10**6
    if len(created) != 1:
        yield (
            f"{len(created)} of {_WRITERS} writers could create the same file, so two drivers could both lead a job; use a "
            "storage with conditional writes"
        )
    elif storage.read(file) != str(created[0]).encode():
        yield "a file has other content than its writer wrote"
    written_ms = storage.modified_ms(file)
    skew_ms = max(began_ms - written_ms, written_ms - ended_ms, 0)
    if skew_ms > MAX_CLOCK_SKEW_MS:
        yield f"its clock differs by {skew_ms / 1000:.0f} s from this machine's; synchronize them (NTP)"
    if storage.list(directory) != [file]:
        yield "a listing lacks a file that was just written"
    storage.put(file, b"other")
    if storage.read(file) != b"other":
        yield "a replaced file still has its old content"
    storage.delete(file)
    with suppress(NotFound):
        storage.read(file)
        yield "a deleted file can still be read"


def doctor(
    *,
    spark: Mapping[str, str],
    directories: Sequence[str] = (),
    ship_env: bool = False,
    pass_env: Sequence[str] = (),
    state_root: str | None = None,
    observer: Observer = SILENT,
) -> list[HostReport]:
    """Check a job's needs on each host that runs Spark's tasks: versions, the state root, shared directories, disk, clock.

    ``spark``: settings by name ("spark.master"). ``directories``: of sinks. ``ship_env``, ``pass_env``: see ``RunRequest``.
    Starts a SparkSession, or uses the active one, and leaves it running.
    """
    from forkpoint.spark.executor import make_spark_executor  # loads PySpark
    from forkpoint.spark.shipping.provisions import Provisions

    provisions = Provisions(ship_env, JobOptions(pass_env=pass_env).pass_env)
    pack(ship_env, observer)
    with observer.steps("starting Spark") as step:
        executor, _ = make_spark_executor(None, spark, provisions)
        step("checking the hosts")
        return try_hosts(executor, StateRoot(state_root).storage, {name: name for name in directories}, tempfile.gettempdir())
