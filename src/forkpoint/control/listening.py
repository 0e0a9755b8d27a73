"""A port that serves an application over HTTP, within the limits of ``limits``."""

from __future__ import annotations

import socket
import threading

import uvicorn
from starlette.types import ASGIApp

from forkpoint.control.limits import MAX_HEAD_BYTES, LimitedProtocol


class Listening:
    """Serves on threads of its own from ``start`` to ``close``. ``port``: 0 for any. ``certificate``, ``key``: the
    files of a certificate, with those that sign it, and of its key, in PEM, for HTTPS."""

    def __init__(
        self,
        app: ASGIApp,
        host: str,
        port: int = 0,
        *,
        name: str,
        certificate: str | None = None,
        key: str | None = None,
    ) -> None:
        self._address = host, port
        config = uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="off", http=LimitedProtocol, ws="none", server_header=False,
            timeout_graceful_shutdown=2, h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            ssl_certfile=certificate, ssl_keyfile=key,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        # asyncio sends without delay (TCP_NODELAY) on sockets of this protocol only: with it left out, a kept connection's
        # answers, which are head and body, wait 40 ms for the client's acknowledgement.
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name=name, daemon=True
        )

    def start(self) -> int:
        """Start serving; returns the port. Raises OSError if it is taken, or the host is none of this machine."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(self._address)
        self._socket.listen(64)
        self._thread.start()
        port: int = self._socket.getsockname()[1]
        return port

    def close(self) -> None:
        """Stop serving, if it does."""
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(5)
        self._socket.close()
