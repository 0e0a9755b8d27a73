"""A schema registry that keeps schemas in memory and answers the requests of Confluent's clients, with Confluent's error codes.

It takes all schemas: whether they are compatible is not what it is for.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

_IDENTITY = ("schema", "schemaType", "references")


@dataclass
class Registry:
    """What is registered, and the requests that were made."""

    url: str = ""
    ids: dict[str, int] = field(default_factory=dict)  # schema → id
    subjects: dict[str, list[int]] = field(default_factory=dict)  # subject → ids of its versions
    requests: list[str] = field(default_factory=list)
    fail_with: int | None = None

    def schema(self, id: int) -> dict[str, Any]:
        return json.loads(next(text for text, each in self.ids.items() if each == id))

    def answer(self, method: str, path: list[str], body: dict[str, Any]) -> tuple[int, Any]:
        if self.fail_with is not None:
            return self.fail_with, {"error_code": self.fail_with * 100 + 1, "message": "Told to fail"}
        if method == "GET" and path[:2] == ["schemas", "ids"]:
            if int(path[2]) not in self.ids.values():
                return 404, {"error_code": 40403, "message": "Schema not found"}
            return 200, self.schema(int(path[2]))
        subject = path[1]
        text = json.dumps({"schemaType": "AVRO"} | {k: body[k] for k in _IDENTITY if body.get(k)}, sort_keys=True)
        if method == "POST" and path[2:] == ["versions"]:
            id = self.ids.setdefault(text, len(self.ids) + 1)
            versions = self.subjects.setdefault(subject, [])
            if id not in versions:
                versions.append(id)
            return 200, {"id": id}
        if subject not in self.subjects:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        versions = self.subjects[subject]
        if method == "POST":
            if self.ids.get(text) not in versions:
                return 404, {"error_code": 40403, "message": "Schema not found"}
            version = versions.index(self.ids[text]) + 1
        else:
            version = len(versions) if path[3] == "latest" else int(path[3])
            if not 0 < version <= len(versions):
                return 404, {"error_code": 40402, "message": f"Version {version} not found."}
        id = versions[version - 1]
        return 200, {"subject": subject, "version": version, "id": id, **self.schema(id)}


@contextmanager
def schema_registry() -> Iterator[Registry]:
    """A registry at a URL of its own."""
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            path = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            registry.requests.append(f"{self.command} /{'/'.join(path)}")
            status, answer = registry.answer(self.command, path, json.loads(body) if body else {})
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _answer  # noqa: N815  (http.server's names)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
