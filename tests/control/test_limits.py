"""Callers that send too much, too slowly or nothing at all, through raw sockets."""

from __future__ import annotations

import http.client
import resource
import socket
import statistics
import time
from collections.abc import Iterator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import forkpoint as fp
from forkpoint.api.launch import Launch
from forkpoint.driver.serve.commands import Commands
from forkpoint.protocol import listener as limits
from forkpoint.protocol.endpoint import HOST
from forkpoint.protocol.port import ControlPort


@pytest.fixture
def server(tmp_path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ControlPort]:
    """A job's own port."""
    monkeypatch.setattr(limits, "REQUEST_SECONDS", 1.0)
    servers = []

    def on_driver(driver):
        servers.append(ControlPort(driver.job, Commands(driver)))
        servers[0].port = servers[0].start()
        return lambda outcome: servers[0].close(0)

    env = fp.StreamExecutionEnvironment.get_execution_environment()
    numbers = env.from_source(fp.CounterSource(per_epoch=1), fp.WatermarkStrategy.no_watermarks(), "n").uid("n")
    numbers.sink_to(fp.DiscardSink()).uid("out")
    env.launch = Launch({"state_root": str(tmp_path), "engine": "local"}, on_driver=on_driver)
    job = env.execute_async("limited")
    yield servers[0]
    job.cancel().result()


def connect(server: ControlPort) -> socket.socket:
    return socket.create_connection((HOST, server.port))


def head(server: ControlPort, *lines: str, token: str | None = None) -> bytes:
    first = ["POST /v1/savepoints HTTP/1.1", "host: x", f"authorization: Bearer {token or server.token}"]
    return "\r\n".join([*first, *lines, "", ""]).encode()


def answer(sock: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    found = b""
    try:
        while part := sock.recv(1 << 16):
            found += part
    except ConnectionResetError:
        pass
    return found


def send(sock: socket.socket, part: bytes, times: int) -> int:
    """How many of the parts went through before the other side closed."""
    for sent in range(times):
        try:
            sock.sendall(part)
        except (ConnectionError, TimeoutError):
            return sent
    return times


def works(server: ControlPort) -> bool:
    with connect(server) as sock:
        sock.sendall(head(server, "content-length: 0", "connection: close").replace(b"POST /v1/savepoints", b"GET /v1/status"))
        return answer(sock).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("token", [None, "wrong"])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_without_end_is_refused_and_not_kept(server: ControlPort, token: str | None, chunked: bool) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    size = 200 << 20
    part = b"x" * (1 << 20)
    with connect(server) as sock:
        if chunked:
            sock.sendall(head(server, "transfer-encoding: chunked", token=token))
            part = b"%x\r\n%b\r\n" % (len(part), part)
        else:
            sock.sendall(head(server, f"content-length: {size}", token=token))
        assert send(sock, part, 200) < 100
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 << 10  # in KiB
    assert works(server)


def test_what_is_too_long_is_told(server: ControlPort) -> None:
    with connect(server) as sock:
        sock.sendall(head(server, f"content-length: {limits.MAX_BODY_BYTES + 1}") + b"x" * (limits.MAX_BODY_BYTES + 1))
        assert answer(sock).startswith(b"HTTP/1.1 413")
    with connect(server) as sock:
        send(sock, head(server, f"x: {'y' * (1 << 20)}"), 1)
        assert answer(sock).startswith(b"HTTP/1.1 400")
    with connect(server) as sock:
        sock.sendall(b"\x16\x03\x01 not http\r\n\r\n")
        assert answer(sock).startswith(b"HTTP/1.1 400")
    assert works(server)


@pytest.mark.slow
@pytest.mark.parametrize("sent", ["nothing", "half a head", "a head without its body", "a second request's half"])
def test_half_open_connections_are_closed(server: ControlPort, sent: str) -> None:
    with connect(server) as sock:
        if sent == "half a head":
            sock.sendall(b"POST /v1/stop HTTP/1.1\r\nhost")
        elif sent == "a head without its body":
            sock.sendall(head(server, "content-length: 100") + b"{")
        elif sent == "a second request's half":
            whole = head(server, "content-length: 0").replace(b"POST /v1/savepoints", b"GET /v1/status")
            sock.sendall(whole)
            first = b""
            while not first.endswith(b"}"):
                first += sock.recv(1 << 16)
            assert first.startswith(b"HTTP/1.1 200")
            sock.sendall(whole[:20])
        began = time.monotonic()
        assert answer(sock) == b""
        assert time.monotonic() - began >= 0.5


def test_drop_by_drop_is_half_open_too(server: ControlPort) -> None:
    with connect(server) as sock:
        sock.sendall(head(server, "content-length: 1000"))
        while send(sock, b" ", 1):  # until the other side closes
            time.sleep(0.05)


def test_those_who_only_hold_connections_keep_nobody_out(server: ControlPort, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REQUEST_SECONDS", 600.0)
    held = []
    for _ in range(limits.MAX_CONNECTIONS + 20):
        held.append(connect(server))
        assert len(server._listening._server.server_state.connections) <= limits.MAX_CONNECTIONS + 1
    assert works(server)
    for sock in held:
        sock.close()


def test_a_slow_answer_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is for sending the request; working on it may take longer."""
    import asyncio
    import threading

    import uvicorn

    monkeypatch.setattr(limits, "REQUEST_SECONDS", 0.3)

    async def slow(request: Request) -> Response:
        await asyncio.sleep(1)
        return Response("done")

    app = Starlette(routes=[Route("/", slow)])
    served = uvicorn.Server(uvicorn.Config(app, http=limits.LimitedProtocol, log_config=None, lifespan="off"))
    listening = socket.create_server((HOST, 0))
    thread = threading.Thread(target=served.run, kwargs={"sockets": [listening]})
    thread.start()
    with socket.create_connection(listening.getsockname()) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert answer(sock).endswith(b"done")
    served.should_exit = True
    thread.join()


def test_a_kept_connection_is_answered_without_delay(server: ControlPort) -> None:
    """Head and body of an answer must not wait for the client to acknowledge each other: 40 ms on Linux."""
    connection = http.client.HTTPConnection(HOST, server.port)
    seconds = []
    for _ in range(15):
        began = time.monotonic()
        connection.request("GET", "/v1/status", headers={"authorization": f"Bearer {server.token}"})
        connection.getresponse().read()
        seconds.append(time.monotonic() - began)
    connection.close()
    assert statistics.median(seconds) < 0.03
