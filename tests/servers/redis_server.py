"""A real Redis server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import redis

from servers.debian import debian
from servers.process import Server, free_port


class Redis(Server):
    """A server with an append-only file in ``directory``. ``options``: of its command line."""

    def __init__(self, directory: Path, *options: str) -> None:
        directory.mkdir(parents=True)
        self.port = free_port()
        self._program = debian("redis-server", "redis-server")
        self._options = options
        self.client = redis.Redis(port=self.port, decode_responses=True)
        super().__init__(directory)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def command(self) -> Sequence[str]:
        own = [
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
        ]
        return [self._program, *own, *self._options]

    def serves(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.AuthenticationError:  # it wants a password
            return True
        except redis.ConnectionError:  # also while it loads its data
            return False
