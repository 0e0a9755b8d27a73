"""The contract of sinks, kept by OpenSearch's."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

import forkpoint as fp
from connectors.contract_rows import Line
from forkpoint.testing import Row, SinkContract
from servers.opensearch_server import OpenSearch


class TestOpenSearchSink(SinkContract):
    type = Line
    server: OpenSearch

    @pytest.fixture(autouse=True)
    def use(self, search: OpenSearch) -> None:
        self.server = search

    def create(self) -> str:
        return f"i{uuid.uuid4().hex[:12]}"

    def sink(self, target: str) -> Any:
        return fp.OpenSearchSink(self.server.url, target)

    @staticmethod
    def element(row: Row) -> Line:
        return Line(*row)

    def read(self, target: str) -> list[Row]:
        if target not in (each["index"] for each in self.server.request("GET", "_cat/indices?format=json")):
            return []
        return [(each["number"], each["text"]) for each in self.server.documents(target).values()]
