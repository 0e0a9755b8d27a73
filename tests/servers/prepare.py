"""Fetches what the tests of `make test` download, before they start: inside a test, the download delays all tests behind it.

A test that finds nothing prepared still fetches it, or is skipped where that is impossible.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from servers.debian import install
from servers.jars import compiled, jars

TESTS = Path(__file__).parents[1]
PROGRAMS = {
    "chromium-headless-shell": "chromium-headless-shell",
    "fish": "fish",
    "mariadb-server": "mariadbd",
    "postgresql": "/usr/lib/postgresql/*/bin/postgres",
    "prometheus": "promtool",
    "zsh": "zsh",
}
JAVA = {
    "hadoop": TESTS / "cluster" / "hadoop" / "MiniHadoop.java",
    "flink-client": TESTS / "server" / "flink" / "FlinkClient.java",
}


def java_server(name: str, source: Path) -> None:
    compiled(source, f"{jars(name, source.parent / 'pom.xml')}/*")


def kafka() -> None:
    from servers.kafka import formatted

    formatted()


def pyflink() -> None:
    sys.path += [str(TESTS / "parity" / "pyflink")]
    from flink_examples import directory

    directory()


def run(name: str, step: Callable[[], None]) -> None:
    started = time.monotonic()
    try:
        step()
    except pytest.skip.Exception as impossible:
        print(f"prepare: {name}: {impossible}", flush=True)
    if (seconds := time.monotonic() - started) > 2:
        print(f"prepare: {name}: {seconds:.0f} s", flush=True)


def main() -> None:
    steps: dict[str, Callable[[], None]] = {
        "Debian's packages": partial(install, PROGRAMS),
        "Kafka": kafka,
        "PyFlink's examples": pyflink,
        **{name: partial(java_server, name, source) for name, source in JAVA.items()},
    }
    with ThreadPoolExecutor() as pool:
        list(pool.map(run, steps, steps.values()))


if __name__ == "__main__":
    main()
