"""A real HTTP server on loopback that is slow, fails, and counts; and the functions that ask it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import forkpoint as fp


@dataclass
class Seen:
    """What the server saw of one test."""

    url: str
    in_flight: int = 0
    most_in_flight: int = 0
    calls: Counter[int] = field(default_factory=Counter)
    clients: set[tuple[str, int]] = field(default_factory=set)
    finished: list[int] = field(default_factory=list)


class LookupServer:
    """``/square/N`` answers N squared. Query: ``sleep`` (seconds), ``after`` (so many others have been answered), ``fail``
    (the first so many times for this N)."""

    def __init__(self) -> None:
        self.seen = Seen("")

    def begin(self) -> Seen:
        """Count from zero; what is still under way is left out."""
        self.seen = Seen(self.seen.url)
        return self.seen

    async def square(self, request: Request) -> JSONResponse:
        seen, number = self.seen, request.path_params["number"]
        seen.calls[number] += 1
        seen.clients.add((request.client.host, request.client.port))
        seen.in_flight += 1
        seen.most_in_flight = max(seen.most_in_flight, seen.in_flight)
        try:
            await asyncio.sleep(float(request.query_params.get("sleep", 0)))
            while len(seen.finished) < int(request.query_params.get("after", 0)):
                await asyncio.sleep(0.01)
        finally:
            seen.in_flight -= 1
        if seen.calls[number] <= int(request.query_params.get("fail", 0)):
            return JSONResponse({"why": "not now"}, status_code=503)
        seen.finished.append(number)
        return JSONResponse({"square": number * number})


@contextlib.contextmanager
def serving() -> Iterator[LookupServer]:
    lookup = LookupServer()
    app = Starlette(routes=[Route("/square/{number:int}", lookup.square)])
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    lookup.seen.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    try:
        yield lookup
    finally:
        server.should_exit = True
        thread.join()


class Square(fp.AsyncFunction):
    """Elements: a number, or (number, query parameters)."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def open(self, runtime_context):
        self.client = httpx.AsyncClient(base_url=self.url, timeout=30)

    async def async_invoke(self, value) -> list[tuple[int, int]]:
        number, query = value if isinstance(value, tuple) else (value, {})
        response = await self.client.get(f"/square/{number}", params=query)
        response.raise_for_status()
        return [(number, response.json()["square"])]

    async def close(self):
        await self.client.aclose()
