"""An S3 server that can fail: a proxy in front of a real one, whose faults are switched while clients use it.

Requests are told apart by kind: "create" (a put that must not replace), "put", "get", "head", "list", "delete".
"""

from __future__ import annotations

import http.client
import logging
import random
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.request import Request, urlopen

BUCKET = "state"
KINDS = ("create", "put", "get", "head", "list", "delete")


@dataclass
class Fault:
    """``kind``: "hang" never answers; "delay" waits for ``seconds`` ± ``jitter`` first; "error" answers with ``status``
    without doing anything, "late error" does what is asked before; "cut" closes the connection, "lost answer" does what is asked
    before; "truncated" sends half of the answer's body; "throttled" sends it at so many bytes per second.

    ``on``: a pattern for "KIND PATH". ``times``: how often, None for each time. ``share``: of the requests, chosen at random.
    """

    kind: Literal["hang", "delay", "error", "late error", "cut", "lost answer", "truncated", "throttled"]
    on: str = ""
    times: int | None = None
    share: float = 1.0
    seconds: float = 0.0
    jitter: float = 0.0
    status: int = 503
    bytes_per_second: int = 100_000


class UnreliableProxy:
    """Passes requests on to an S3 server as its faults allow. ``met``: how often each fault was met, by "FAULT KIND"."""

    def __init__(self, upstream: tuple[str, int], host: str = "127.0.0.1") -> None:
        self._upstream = upstream
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self.released = threading.Event()  # requests that hang end with it
        self.met: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()
        self._server: _Server | None = _Server((host, 0), self)
        self.host, self.port = host, self._server.server_address[1]

    @property
    def endpoint(self) -> str:
        return f"http://{self.host}:{self.port}"

    def refuse(self) -> None:
        """From now on nobody listens, and open connections are reset."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
            self.met["refused"] += 1
        self.reset_connections()

    def listen(self) -> None:
        if self._server is None:
            self._server = _Server((self.host, self.port), self)

    def reset_connections(self) -> None:
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            with suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.shutdown(socket.SHUT_RDWR)

    def inject(self, *faults: Fault) -> None:
        with self._lock:
            self._faults += faults

    def heal(self) -> None:
        """No faults any more; requests that hang lose their connection."""
        with self._lock:
            self._faults = []
        self.released.set()
        self.released = threading.Event()
        self.listen()

    def close(self) -> None:
        self.refuse()
        self.released.set()

    def fault_for(self, kind: str, path: str) -> Fault | None:
        """The fault that a request meets."""
        with self._lock:
            self.requests[kind] += 1
            for fault in self._faults:
                meets = fault.times != 0 and re.search(fault.on, f"{kind} {path}")
                if meets and (fault.share == 1.0 or random.random() < fault.share):
                    if fault.times is not None:
                        fault.times -= 1
                    self.met[f"{fault.kind} {kind}"] += 1
                    return fault
        return None

    def forward(self, method: str, path: str, headers: dict[str, str], body: bytes) -> _Answer:
        connection = http.client.HTTPConnection(*self._upstream, timeout=60)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return _Answer(answer.status, answer.getheaders(), answer.read())
        finally:
            connection.close()

    @contextmanager
    def connected(self, connection: socket.socket) -> Iterator[None]:
        with self._lock:
            self._connections.add(connection)
        try:
            yield
        finally:
            with self._lock:
                self._connections.discard(connection)


@dataclass(frozen=True)
class _Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], proxy: UnreliableProxy) -> None:
        self.proxy = proxy
        super().__init__(address, _Handler)
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients may go, and connections are cut on purpose."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def handle(self) -> None:
        with self.server.proxy.connected(self.connection):
            super().handle()

    def _pass_on(self) -> None:
        proxy = self.server.proxy
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        fault = proxy.fault_for(self._kind(), self.path)
        kind = None if fault is None else fault.kind
        if fault is not None and kind == "delay":
            time.sleep(max(0.0, fault.seconds + random.uniform(-fault.jitter, fault.jitter)))
        if kind == "hang":
            proxy.released.wait()
        if fault is not None and kind == "error":
            self._answer(_Answer(fault.status, [], b"<Error><Code>SlowDown</Code></Error>"))
            return
        if kind in ("cut", "hang"):
            self._cut()
            return
        answer = proxy.forward(self.command, self.path, dict(self.headers), body)
        if fault is not None and kind == "late error":
            answer = _Answer(fault.status, [], b"<Error><Code>InternalError</Code></Error>")
        if kind == "lost answer":
            self._cut()
            return
        self._answer(answer, fault)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on  # noqa: N815

    def _kind(self) -> str:
        match self.command:
            case "GET":
                return "list" if "list-type=" in self.path else "get"
            case "PUT":
                return "create" if self.headers.get("if-none-match") == "*" else "put"
            case "HEAD":
                return "head"
        return "delete"

    def _answer(self, answer: _Answer, fault: Fault | None = None) -> None:
        self.send_response_only(answer.status)
        for name, value in answer.headers:
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        length = {name.lower(): value for name, value in answer.headers}.get("content-length", "0")
        self.send_header("Content-Length", length if self.command == "HEAD" else str(len(answer.body)))
        self.end_headers()
        body = answer.body
        if fault is not None and fault.kind == "truncated":
            self.wfile.write(body[: len(body) // 2])
            self._cut()
        elif fault is not None and fault.kind == "throttled":
            for start in range(0, len(body), 1000):
                self.wfile.write(body[start : start + 1000])
                time.sleep(1000 / fault.bytes_per_second)
        else:
            self.wfile.write(body)

    def _cut(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_: object) -> None:
        """Tests look at what is `met`."""


@contextmanager
def s3_server(host: str = "127.0.0.1") -> Iterator[tuple[str, int]]:
    """The address of an S3 server that has the bucket."""
    from moto.server import ThreadedMotoServer  # takes a second

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address=host, port=0, verbose=False)
    server.start()
    try:
        address = server.get_host_and_port()
        with urlopen(Request(f"http://{address[0]}:{address[1]}/{BUCKET}", method="PUT")):
            yield address
    finally:
        server.stop()


def s3_settings(endpoint: str) -> dict[str, str]:
    """For `open_storage`."""
    return {"endpoint": endpoint, "access_key_id": "test", "secret_access_key": "test", "region": "us-east-1"}


def s3_environment(endpoint: str) -> dict[str, str]:
    """The same as environment variables."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
