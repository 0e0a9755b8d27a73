"""A running driver's control port: REST on the loopback interface, served by its own thread."""

from __future__ import annotations

import hmac
import re
import secrets
import threading
from collections.abc import Callable
from typing import TypeVar

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from forkpoint.control.commands import Commands, Refused, bad_request
from forkpoint.control.endpoint import HOST
from forkpoint.control.exposition import CONTENT_TYPE, exposition
from forkpoint.control.limits import bearer, read_body
from forkpoint.control.listening import Listening
from forkpoint.control.messages import (
    ErrorCode,
    ErrorDetail,
    ErrorMessage,
    HandOverBody,
    Message,
    RequestBody,
    RescaleBody,
    SavepointBody,
    StopBody,
)

LINGER_SECONDS = 10.0
_CODES: dict[int, ErrorCode] = {401: "unauthorized", 404: "not-found", 405: "method-not-allowed", 409: "job-ended"}
_STATUS = {code: status for status, code in _CODES.items()} | {"bad-request": 400}

Rest = Callable[[str], ASGIApp]
_PAGE = re.compile(r"/([a-z]+\.(html|css|js|svg))?")  # asks for the token itself

B = TypeVar("B", bound=RequestBody)


class ControlServer:
    """The control port of one driver. ``rest``: makes the application for all other paths, given the token."""

    def __init__(self, job: str, commands: Commands, rest: Rest | None = None) -> None:
        self.token = secrets.token_urlsafe(32)
        self._commands = commands
        own = _make_app(commands)
        if rest is not None:
            own.router.default = _WithRest(own.router.not_found, rest, self.token)
        self._listening = Listening(
            _Guard(own, self.token, has_page=rest is not None), HOST, name=f"forkpoint-control-{job}"
        )

    def start(self) -> int:
        """Start serving; returns the port."""
        return self._listening.start()

    def close(self, linger_seconds: float = LINGER_SECONDS) -> None:
        """Stop serving once all answers to savepoint requests have been fetched or the time has passed."""
        self._commands.wait_fetched(linger_seconds)
        self._listening.close()


def _make_app(commands: Commands) -> Starlette:
    async def status(request: Request) -> Response:
        return _reply(await run_in_threadpool(commands.status))

    async def metrics(request: Request) -> Response:
        return _reply(await run_in_threadpool(commands.metrics))

    async def prometheus(request: Request) -> Response:
        text = exposition([await run_in_threadpool(commands.metrics)])
        return Response(text, media_type=CONTENT_TYPE)

    async def savepoint(request: Request) -> Response:
        return _reply(commands.request(await _body(request, SavepointBody)), 202)

    async def answer(request: Request) -> Response:
        return _reply(await run_in_threadpool(commands.answer, request.path_params["request_id"]))

    async def rescale(request: Request) -> Response:
        return _reply(commands.request(await _body(request, RescaleBody)), 202)

    async def hand_over(request: Request) -> Response:
        return _reply(commands.request(await _body(request, HandOverBody)), 202)

    async def stop(request: Request) -> Response:
        return _reply(commands.request(await _body(request, StopBody)), 202)

    async def journal(request: Request) -> Response:
        return _reply(await run_in_threadpool(commands.journal))

    async def cancel(request: Request) -> Response:
        return _reply(await run_in_threadpool(commands.cancel), 202)

    return Starlette(
        routes=[
            Route("/v1/status", status, methods=["GET"]),
            Route("/v1/journal", journal, methods=["GET"]),
            Route("/v1/metrics", metrics, methods=["GET"]),
            Route("/metrics", prometheus, methods=["GET"]),
            Route("/v1/savepoints", savepoint, methods=["POST"]),
            Route("/v1/savepoints/{request_id}", answer, methods=["GET"]),
            Route("/v1/rescale", rescale, methods=["POST"]),
            Route("/v1/rescale/{request_id}", answer, methods=["GET"]),
            Route("/v1/hand-over", hand_over, methods=["POST"]),
            Route("/v1/hand-over/{request_id}", answer, methods=["GET"]),
            Route("/v1/stop", stop, methods=["POST"]),
            Route("/v1/cancel", cancel, methods=["POST"]),
        ],
        exception_handlers={HTTPException: _http_error, Refused: _refused, Exception: _internal_error},
    )


async def _body(request: Request, model: type[B]) -> B:
    data = await read_body(request)
    try:
        return model.model_validate_json(data or b"{}")
    except ValidationError as error:
        raise bad_request(error, model) from None


def _reply(message: Message, status: int = 200) -> Response:
    # A rejected request is not read in full, so the connection can't be reused.
    headers = {"connection": "close"} if status >= 400 else {}
    return Response(message.model_dump_json(by_alias=True), status, headers, media_type="application/json")


def _error(status: int, message: str) -> Response:
    code: ErrorCode = _CODES.get(status, "internal" if status >= 500 else "bad-request")
    return _reply(ErrorMessage(error=ErrorDetail(code=code, message=message)), status)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = error.detail
    if error.status_code in (404, 405) and message in ("Not Found", "Method Not Allowed"):
        message = (
            f"{request.method} {request.url.path} is not supported; there are GET /v1/status, GET /v1/metrics, GET /metrics, "
            "POST /v1/savepoints, GET /v1/savepoints/ID, POST /v1/rescale, GET /v1/rescale/ID, POST /v1/stop and POST /v1/cancel"
        )
    return _error(error.status_code, message)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return _error(_STATUS[error.detail.code], error.detail.message)


async def _internal_error(request: Request, error: Exception) -> Response:
    return _error(500, f"{type(error).__name__}: {error}")


class _WithRest:
    """Passes on what the driver itself has no route for. The application is made when it is first needed: most jobs end without
    anybody looking."""

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
    """Requires the token: any user of the machine, and any web page, can reach the port. Only the page's own files need none."""

    def __init__(self, app: ASGIApp, token: str, has_page: bool) -> None:
        self._app = app
        self._expected = token.encode()
        self._has_page = has_page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = dict(scope.get("headers", ())).get(b"authorization", b"")
        if hmac.compare_digest(bearer(given), self._expected) or (self._has_page and _is_page(scope)):
            await self._app(scope, receive, send)
        else:
            refusal = _error(401, "the authorization header is missing or wrong; the run's endpoint.json has the token")
            await refusal(scope, receive, send)


def _is_page(scope: Scope) -> bool:
    return scope["type"] == "http" and scope["method"] in ("GET", "HEAD") and _PAGE.fullmatch(scope["path"]) is not None
