"""A real MariaDB, from Debian's package."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pymysql

from servers.debian import debian
from servers.process import Server, free_port


class MariaDB(Server):
    """A server with the user "tests", password "secret", and a database of the same name."""

    user = "mysql" if os.getuid() == 0 else None

    def __init__(self, directory: Path) -> None:
        self._program = debian("mariadb-server", "mariadbd")
        directory = self.directory = self.own_directory(directory)
        self.port = free_port()
        installed = self.run(
            debian("mariadb-server", "mariadb-install-db"),
            "--no-defaults",
            f"--datadir={directory / 'data'}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ).wait()
        assert installed == 0, (directory / "log").read_text()
        (directory / "init.sql").write_text(
            "CREATE DATABASE IF NOT EXISTS tests;\nCREATE USER IF NOT EXISTS tests@'127.0.0.1' IDENTIFIED BY 'secret';\n"
            "GRANT ALL ON tests.* TO tests@'127.0.0.1';\n"
        )
        (directory / "init.sql").chmod(0o644)
        super().__init__(directory)

    def command(self) -> list[str]:
        return [
            self._program,
            "--no-defaults",
            f"--datadir={self.directory / 'data'}",
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            f"--socket={self.directory / 's'}",
            f"--init-file={self.directory / 'init.sql'}",
            "--innodb-buffer-pool-size=32M",
            "--innodb-log-file-size=16M",
            "--skip-name-resolve",
            "--max-allowed-packet=4M",
        ]

    def serves(self) -> bool:
        try:
            self.execute("SELECT 1")
        except pymysql.err.OperationalError:
            return False
        return True

    @property
    def url(self) -> str:
        """For SQLAlchemy."""
        return f"mysql+pymysql://tests:secret@127.0.0.1:{self.port}/tests"

    def execute(self, statement: str, *parameters: Any) -> list[Any]:
        """The rows of a statement, or none."""
        connection = pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user="tests",
            password="secret",
            database="tests",
            autocommit=True,
            connect_timeout=5,
        )
        with connection, connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            return list(cursor.fetchall())
