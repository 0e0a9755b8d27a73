"""Serves an application over HTTP, within limits, because any user of the machine can connect, with or without a token."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import threading
from typing import Any

import uvicorn
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 64
MAX_HEAD_BYTES = 16 << 10
MAX_BODY_BYTES = 64 << 10
REQUEST_SECONDS = 10.0

_log = logging.getLogger("forkpoint.control")
_log.setLevel(logging.ERROR)  # strangers must not write to the job's log


class Listening:
    """Serves on its own threads from ``start`` to ``close``. ``port``: 0 for any. ``certificate``, ``key``: for HTTPS, the PEM
    files of a certificate with its chain, and of its key."""

    def __init__(
        self, app: ASGIApp, host: str, port: int = 0, *, name: str, certificate: str | None = None, key: str | None = None
    ) -> None:
        self._address = host, port
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            http=LimitedProtocol,
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=2,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
        self._server = uvicorn.Server(config)
        # asyncio sets TCP_NODELAY only on sockets with an explicit TCP protocol. Without it, answers on a kept connection, which
        # are head and body, wait 40 ms for the client's acknowledgement.
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, name=name, daemon=True)

    def start(self) -> int:
        """Start serving; returns the port. Raises OSError if the port is taken, or the host is not an address of this machine."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(self._address)
        self._socket.listen(64)
        self._thread.start()
        port: int = self._socket.getsockname()[1]
        return port

    def close(self) -> None:
        """Stop serving, if started."""
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(5)
        self._socket.close()


def bearer(authorization: bytes) -> bytes:
    """The token in an authorization header; empty for another scheme."""
    scheme, _, token = authorization.partition(b" ")
    return token if scheme.lower() == b"bearer" else b""


async def read_body(request: Request) -> bytes:
    """The request's body. Raises HTTPException 413 once it is too long, without reading the rest."""
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > MAX_BODY_BYTES:
            raise HTTPException(413, f"the body is longer than {MAX_BODY_BYTES} bytes")
    return bytes(data)


class LimitedProtocol(H11Protocol):
    """One connection. A request has to arrive in full within ``REQUEST_SECONDS``. Beyond ``MAX_CONNECTIONS``, the server closes
    the oldest connection without a request, so that idle connections block no client."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = _log
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_request()
        if len(self.connections) > MAX_CONNECTIONS:
            waiting = [c for c in self.connections if isinstance(c, LimitedProtocol) and c._deadline is not None]
            min(waiting, key=LimitedProtocol._due)._give_up()

    def data_received(self, data: bytes) -> None:
        if self._deadline is None and self._is_idle():
            self._wait_for_request()
        super().data_received(data)
        if not self._is_idle() and not self.cycle.more_body:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        self._stop_waiting()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wait_for_request(self) -> None:
        self._deadline = self.loop.call_later(REQUEST_SECONDS, self._give_up)

    def _due(self) -> float:
        return self._deadline.when() if self._deadline is not None else math.inf

    def _give_up(self) -> None:
        self._stop_waiting()
        self.connections.discard(self)  # at once, because the transport closes later
        self.transport.abort()

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
