"""A real HTTP service on loopback that is slow, fails, dies, and counts."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from servers.process import free_port

PEOPLE = {"ann": 30, "bob": 40, "a/b ä?": 50}


class Service:
    """``/people/NAME`` answers ``{"name": …, "age": …, "since": …}``. Set ``failures`` (statuses for the next answers),
    ``seconds`` (how long each takes) and ``token`` (what the header "authorization" must be)."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/people/{{key}}"
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self.begin()

    def begin(self) -> None:
        self.failures: list[int] = []
        self.seconds = 0.0
        self.token: str | None = None
        self.asked: Counter[str] = Counter()
        self.clients: set[Any] = set()
        self.in_flight = self.most_in_flight = 0

    async def person(self, request: Request) -> Response:
        name = request.path_params["name"]
        self.asked[name] += 1
        self.clients.add(request.client)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.in_flight -= 1
        if self.token is not None and request.headers.get("authorization") != self.token:
            return Response("who are you?", status_code=401)
        if self.failures:
            return Response("not now", status_code=self.failures.pop(0))
        match name:
            case "nobody":
                return Response(status_code=204)
            case "null":
                return JSONResponse(None)
            case "text":
                return Response("<html>")
            case "moved":
                return RedirectResponse("/people/ann")
        if name not in PEOPLE:
            return JSONResponse({"error": "unknown"}, status_code=404)
        return JSONResponse({"name": name, "age": PEOPLE[name], "since": "2024-02-03T04:05:06Z"})

    async def in_city(self, request: Request) -> Response:
        return JSONResponse({"data": {"where": request.path_params["city"], "who": request.path_params["name"]}})

    def start(self) -> None:
        routes = [Route("/people/{name:path}", self.person), Route("/cities/{city}/{name}", self.in_city)]
        app = Starlette(routes=routes)
        self._server = uvicorn.Server(uvicorn.Config(app, port=self.port, log_level="error", **self._options))
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)

    def die(self) -> None:
        """Close all connections, whatever is under way."""
        assert self._server is not None
        assert self._thread is not None
        self._server.force_exit = self._server.should_exit = True
        self._thread.join()


@contextmanager
def serving(**options: Any) -> Iterator[Service]:
    """``options``: uvicorn's."""
    service = Service(**options)
    service.start()
    try:
        yield service
    finally:
        service.die()
