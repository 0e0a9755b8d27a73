"""A real PostgreSQL, from Debian's package."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import psycopg

from servers.debian import debian
from servers.process import Server, free_port

_SETTINGS = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
wal_level = logical
max_wal_senders = 20
max_replication_slots = 20
max_connections = 50
shared_buffers = 32MB
max_prepared_transactions = 10
log_min_messages = fatal
"""


class Postgres(Server):
    """A server with the superuser "tests", password "secret", and a database of the same name."""

    user = "postgres" if os.getuid() == 0 else None

    def __init__(self, directory: Path, **settings: str) -> None:
        self._bin = Path(debian("postgresql", "/usr/lib/postgresql/*/bin/postgres")).parent
        directory.mkdir(parents=True)
        self.directory = directory
        self.data = directory / "data"
        self.port = free_port()
        if self.user is not None:
            _let_in(directory)
            shutil.chown(directory, self.user)
        (directory / "password").write_text("secret")
        (directory / "password").chmod(0o644)
        initialized = self.run(
            f"{self._bin}/initdb", "--no-sync", "-D", str(self.data), "-U", "tests", "--auth", "scram-sha-256",
            "--pwfile", str(directory / "password"), "--encoding", "UTF8", "--no-locale",
        ).wait()  # fmt: skip
        assert initialized == 0, (directory / "log").read_text()
        own = "".join(f"{name} = {value}\n" for name, value in settings.items())
        with open(self.data / "postgresql.conf", "a") as file:
            file.write(f"{_SETTINGS}port = {self.port}\n{own}")
        super().__init__(directory)
        self.execute("CREATE DATABASE tests")
        self.database = "tests"

    database = "postgres"

    def command(self) -> list[str]:
        return [f"{self._bin}/postgres", "-D", str(self.data)]

    def serves(self) -> bool:
        try:
            self.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def kill(self) -> None:
        """The server with all its processes, each of which has a session of its own."""
        pids = [int(pid) for pid in _children(self._process.pid)] if self._process else []
        super().kill()
        for pid in pids:
            _kill(pid)

    @property
    def url(self) -> str:
        """For SQLAlchemy."""
        return f"postgresql+psycopg://tests:secret@127.0.0.1:{self.port}/{self.database}"

    @property
    def dsn(self) -> str:
        """For libpq."""
        return f"host=127.0.0.1 port={self.port} user=tests password=secret dbname={self.database}"

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(self.dsn, autocommit=True, connect_timeout=5, **options)

    def execute(self, statement: str, *parameters: Any) -> list[Any]:
        """The rows of a statement, or none."""
        with self.connect() as connection:
            cursor = connection.execute(statement, parameters or None)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []


def _let_in(directory: Path) -> None:
    """Let other users reach a temporary directory of pytest's."""
    for parent in directory.parents:
        if parent.stat().st_uid == os.getuid() and not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)


def _children(pid: int) -> list[str]:
    return subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True).stdout.split()


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
