"""The contract of sinks, kept by Redis's."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

import forkpoint as fp
from forkpoint.testing import Row, SinkContract
from servers.redis_server import Redis


class TestRedisSink(SinkContract):
    server: Redis

    @pytest.fixture(autouse=True)
    def use(self, server: Redis) -> None:
        self.server = server

    def create(self) -> str:
        return uuid.uuid4().hex

    def sink(self, target: str) -> Any:
        return fp.RedisSink(self.server.url, lambda row: ("RPUSH", target, row[0], row[1]))

    @staticmethod
    def element(row: Row) -> Row:
        return row

    def read(self, target: str) -> list[Row]:
        found = self.server.client.lrange(target, 0, -1)
        return [(int(number), text) for number, text in zip(found[::2], found[1::2], strict=True)]
