"""A real OpenSearch node, from Maven's jars."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from servers.jars import QUICK_JVM, jars, java
from servers.process import Server, free_port

HERE = Path(__file__).parent
POM = HERE / "poms" / "opensearch.xml"
_JVM = ["-Xms384m", "-Xmx384m", *QUICK_JVM, "-Djava.security.manager=allow"]
_SETTINGS = {
    "http.type": "netty4",
    "transport.type": "netty4",
    "network.host": "127.0.0.1",
    "discovery.type": "single-node",
    "cluster.name": "tests",
    "node.name": "node",
    "cluster.routing.allocation.disk.threshold_enabled": "false",
}


class OpenSearch(Server):
    """A node with its data in ``directory``."""

    def __init__(self, directory: Path) -> None:
        (directory / "config").mkdir(parents=True)
        self._port = free_port()
        own = {"path.home": directory, "http.port": self._port, "transport.port": free_port()}
        self._command = [
            java(),
            *_JVM,
            "-cp",
            f"{jars('opensearch', POM)}/*",
            str(HERE / "opensearch" / "SearchNode.java"),
            *(f"{name}={value}" for name, value in {**_SETTINGS, **own}.items()),
        ]
        super().__init__(directory)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def command(self) -> Sequence[str]:
        return self._command

    def serves(self) -> bool:
        try:
            found = httpx.get(f"{self.url}/_cluster/health", params={"wait_for_status": "yellow", "timeout": "1s"}, timeout=5)
        except httpx.TransportError:
            return False
        return found.status_code == 200 and found.json()["status"] != "red"

    # -- a client

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """The answer's JSON."""
        answer = httpx.request(method, f"{self.url}/{path}", json=body, timeout=60)
        answer.raise_for_status()
        return answer.json()

    def documents(self, index: str) -> dict[str, Any]:
        """All documents of an index, by id."""
        self.request("POST", f"{index}/_refresh")
        found = self.request("POST", f"{index}/_search?size=10000", {"query": {"match_all": {}}})
        return {hit["_id"]: hit["_source"] for hit in found["hits"]["hits"]}
