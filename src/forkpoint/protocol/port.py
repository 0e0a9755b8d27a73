"""A running driver's control port: HTTP on the loopback interface, served by its own thread."""

from __future__ import annotations

import hmac
import re
import secrets
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import json
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from forkpoint.protocol import messages as m
from forkpoint.protocol.endpoint import HOST
from forkpoint.protocol.exposition import CONTENT_TYPE, exposition
from forkpoint.protocol.http import ANSWERS, ROUTES
from forkpoint.protocol.listener import Listening, bearer, read_body

LINGER_SECONDS = 10.0
_CODES: dict[int, m.ErrorCode] = {401: "unauthorized", 404: "not-found", 405: "method-not-allowed", 409: "job-ended"}
_STATUS = {code: status for status, code in _CODES.items()} | {"bad-request": 400}

Rest = Callable[[str], ASGIApp]
_PAGE = re.compile(r"/([a-z]+\.(html|css|js|svg))?")  # the page asks its user for the token

_CALLS = (
    *(f"{route.method} {route.path}" for route in ROUTES.values()),
    *(f"GET {path}/ID" for path in dict.fromkeys(ANSWERS.values())),
    "GET /metrics",
)


class ControlPort:
    """The control port of one driver. ``rest``: creates the application for all other paths, given the token."""

    def __init__(self, job: str, driver: m.RequestHandler, rest: Rest | None = None) -> None:
        self.token = secrets.token_urlsafe(32)
        self._driver = driver
        own = _make_app(driver)
        if rest is not None:
            own.router.default = _WithRest(own.router.not_found, rest, self.token)
        guarded = _Guard(own, self.token, has_page=rest is not None)
        self._listening = Listening(guarded, HOST, name=f"forkpoint-control-{job}")

    def start(self) -> int:
        """Start serving; returns the port."""
        return self._listening.start()

    def close(self, linger_seconds: float = LINGER_SECONDS) -> None:
        """Stop serving once all answers to long requests have been fetched or the time has passed."""
        self._driver.wait_fetched(linger_seconds)
        self._listening.close()


def _make_app(driver: m.RequestHandler) -> Starlette:
    async def prometheus(_: Request) -> Response:
        measured = await run_in_threadpool(driver.ask, m.MetricsRequest())
        assert isinstance(measured, m.MetricsMessage)
        return Response(exposition([measured]), media_type=CONTENT_TYPE)

    async def answer(request: Request) -> Response:
        return _reply(await run_in_threadpool(driver.answer, request.path_params["request_id"]))

    async def internal_error(_: Request, error: Exception) -> Response:
        return _error(500, f"{type(error).__name__}: {error}")

    asked = [
        Route(route.path, partial(_asked, driver, kind, route.status), methods=[route.method]) for kind, route in ROUTES.items()
    ]
    answers = [Route(f"{path}/{{request_id}}", answer, methods=["GET"]) for path in dict.fromkeys(ANSWERS.values())]
    return Starlette(
        routes=[*asked, *answers, Route("/metrics", prometheus, methods=["GET"])],
        exception_handlers={HTTPException: _http_error, m.Refused: _refused, Exception: internal_error},
    )


async def _asked(driver: m.RequestHandler, kind: type[m.Request[Any]], status: int, request: Request) -> Response:
    data = await read_body(request) if kind.__struct_fields__ else b""
    return _reply(await run_in_threadpool(driver.ask, m.read_request(data or b"{}", kind)), status)


def _reply(message: m.Message, status: int = 200) -> Response:
    # A rejected request is not read in full, so the connection can't be reused.
    headers = {"connection": "close"} if status >= 400 else {}
    return Response(json.encode(message), status, headers, media_type="application/json")


def _error(status: int, message: str) -> Response:
    code: m.ErrorCode = _CODES.get(status, "internal" if status >= 500 else "bad-request")
    return _reply(m.ErrorMessage(m.ErrorDetail(code, message)), status)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = error.detail
    if error.status_code in (404, 405) and message in ("Not Found", "Method Not Allowed"):
        message = f"{request.method} {request.url.path} is not supported; there are {', '.join(_CALLS)}"
    return _error(error.status_code, message)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, m.Refused)
    return _error(_STATUS[error.detail.code], error.detail.message)


class _WithRest:
    """Passes on requests without a route of the driver. The application is created on first use: most jobs end without any."""

    def __init__(self, not_found: ASGIApp, rest: Rest, token: str) -> None:
        self._not_found, self._rest, self._token = not_found, rest, token
        self._made: ASGIApp | None = None
        self._lock = threading.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._not_found(scope, receive, send)
            return
        if self._made is None:
            await run_in_threadpool(self._make)
        assert self._made is not None
        await self._made(scope, receive, send)

    def _make(self) -> None:
        with self._lock:
            if self._made is None:
                self._made = self._rest(self._token)


class _Guard:
    """Requires the token, because any user of the machine and any web page can reach the port. Only the page's files need
    none."""

    def __init__(self, app: ASGIApp, token: str, has_page: bool) -> None:
        self._app = app
        self._expected = token.encode()
        self._has_page = has_page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = dict(scope.get("headers", ())).get(b"authorization", b"")
        reads = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        is_page = self._has_page and reads and _PAGE.fullmatch(scope["path"]) is not None
        if hmac.compare_digest(bearer(given), self._expected) or is_page:
            await self._app(scope, receive, send)
        else:
            refusal = _error(401, "the authorization header is missing or wrong; the run's endpoint.json has the token")
            await refusal(scope, receive, send)
