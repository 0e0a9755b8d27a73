"""A real PostgreSQL, from Debian's package."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
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
dynamic_shared_memory_type = mmap
shared_buffers = 32MB
max_prepared_transactions = 10
log_min_messages = fatal
"""


class Postgres(Server):
    """A server with the superuser "tests", password "secret", and a database of the same name."""

    user = "postgres" if os.getuid() == 0 else None

    def __init__(self, directory: Path, **settings: str) -> None:
        self._bin = Path(debian("postgresql", "/usr/lib/postgresql/*/bin/postgres")).parent
        directory = self.directory = self.own_directory(directory)
        self.data = directory / "data"
        self.port = free_port()
        (directory / "password").write_text("secret")
        (directory / "password").chmod(0o644)
        initialized = self.run(
            f"{self._bin}/initdb",
            "--no-sync",
            "-D",
            str(self.data),
            "-U",
            "tests",
            "--auth",
            "scram-sha-256",
            "--pwfile",
            str(directory / "password"),
            "--encoding",
            "UTF8",
            "--no-locale",
        ).wait()
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
        assert self._process is not None
        children = psutil.Process(self._process.pid).children()
        super().kill()
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(children)  # a server that starts while one of the old one lives gives up

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
