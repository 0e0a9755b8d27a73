"""A network that can fail: a proxy of TCP between clients and a server, whose faults are switched while they talk.

``unreliable.UnreliableProxy`` knows HTTP, and fails single requests; this one knows bytes only.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

_CHUNK = 16_384


class Network:
    """Passes bytes between clients and a port of this machine. ``port``: where clients connect to."""

    def __init__(self, upstream: int) -> None:
        self.upstream = upstream
        self._latency_s = 0.0
        self._bytes_per_second = float("inf")
        self._passes = threading.Event()
        self._passes.set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

    def slow(self, latency_s: float, bytes_per_second: float) -> None:
        """Delay what is sent in each direction, and limit each connection."""
        self._latency_s, self._bytes_per_second = latency_s, bytes_per_second

    def vanish(self) -> None:
        """Let nothing through: no data, no end of a connection, no reset. Connections stay open on both sides."""
        self._passes.clear()

    def heal(self) -> None:
        """Work as a network should; what was held back arrives late, as TCP sends it again."""
        self._latency_s, self._bytes_per_second = 0.0, float("inf")
        self._passes.set()

    def close(self) -> None:
        self.heal()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            self._start(self._connect, client)

    def _connect(self, client: socket.socket) -> None:
        self._passes.wait()
        try:
            server = socket.create_connection(("127.0.0.1", self.upstream))
        except OSError:
            client.close()
            return
        for each in (client, server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._start(self._pass_on, client, server)
        self._pass_on(server, client)

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        """One direction of a connection, up to its end. An end is held back as data is."""
        with suppress(OSError):
            while data := source.recv(_CHUNK):
                time.sleep(self._latency_s + len(data) / self._bytes_per_second)
                self._passes.wait()
                target.sendall(data)
        self._passes.wait()
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _start(self, function: Callable[..., None], *arguments: object) -> None:
        threading.Thread(target=function, args=arguments, daemon=True).start()
