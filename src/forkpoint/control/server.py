"""A running driver's control port: REST on the loopback interface, served by its own thread."""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import threading
import uuid
from concurrent.futures import Future
from typing import Any, TypeVar

import uvicorn
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from forkpoint.control.limits import MAX_HEAD_BYTES, LimitedProtocol, read_body
from forkpoint.control.messages import (
    Accepted,
    Answer,
    ErrorDetail,
    ErrorMessage,
    Message,
    RescaleBody,
    SavepointBody,
    SavepointProgress,
    StatusMessage,
    StopBody,
)
from forkpoint.driver.epochs import wall_clock_ms
from forkpoint.driver.job_driver import JobDriver

HOST = "127.0.0.1"
LINGER_SECONDS = 10.0
SLOW_EPOCH_MS = 2_000
M = TypeVar("M", bound=Message)
_CODES: dict[int, Any] = {401: "unauthorized", 404: "not-found", 405: "method-not-allowed", 409: "job-ended"}


class Answers:
    """The requests of a run for savepoints and rescaling, by id, and whether their answers have been fetched."""

    def __init__(self) -> None:
        self._futures: dict[str, Future[str] | Future[int]] = {}
        self._fetched: set[str] = set()
        self._changed = threading.Condition()

    def add(self, future: Future[str] | Future[int]) -> str:
        request_id = uuid.uuid4().hex
        with self._changed:
            self._futures[request_id] = future
        return request_id

    def get(self, request_id: str, progress: SavepointProgress | None, doing: str | None) -> Answer | None:
        """None for an unknown id."""
        with self._changed:
            future = self._futures.get(request_id)
            if future is None:
                return None
            if not future.done():
                return Answer(status="IN_PROGRESS", progress=progress, doing=doing)
            self._fetched.add(request_id)
            self._changed.notify_all()
        error = future.exception()
        if error is not None:
            return Answer(status="FAILED", failure=str(error) or type(error).__name__)
        result = future.result()
        return Answer(
            status="COMPLETED", location=result if isinstance(result, str) else None,
            epoch=result if isinstance(result, int) else None,
        )  # fmt: skip

    def wait_fetched(self, seconds: float) -> bool:
        """Wait until every answer has been fetched; False if the time passed first."""
        with self._changed:
            return self._changed.wait_for(lambda: self._futures.keys() <= self._fetched, seconds)


class ControlServer:
    """The control port of one driver."""

    def __init__(self, driver: JobDriver) -> None:
        self.token = secrets.token_urlsafe(32)
        self._answers = Answers()
        config = uvicorn.Config(
            _Guard(_make_app(driver, self._answers), self.token), log_config=None, access_log=False, lifespan="off",
            http=LimitedProtocol, ws="none", server_header=False, timeout_graceful_shutdown=2,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._thread = threading.Thread(
            target=self._server.run,
            kwargs={"sockets": [self._socket]},
            name=f"forkpoint-control-{driver.job}",
            daemon=True,
        )

    def start(self) -> int:
        """Start serving; returns the port."""
        self._socket.bind((HOST, 0))
        self._socket.listen(64)
        self._thread.start()
        port: int = self._socket.getsockname()[1]
        return port

    def close(self, linger_seconds: float = LINGER_SECONDS) -> None:
        """Stop serving once all answers to savepoint requests have been fetched or the time has passed."""
        self._answers.wait_fetched(linger_seconds)
        self._server.should_exit = True
        self._thread.join(5)
        self._socket.close()


def _make_app(driver: JobDriver, answers: Answers) -> Starlette:
    async def status(request: Request) -> Response:
        return _reply(await run_in_threadpool(status_message, driver))

    async def requested(request: Request, model: type[Message], *, stop: bool) -> Response:
        body = await _body(request, model)
        _refuse_ended(driver)
        made = driver.savepoint(**dict(body), stop=stop)  # the messages' fields are its parameters
        return _reply(Accepted(request_id=answers.add(made.done)), 202)

    async def savepoint(request: Request) -> Response:
        return await requested(request, SavepointBody, stop=False)

    async def answer(request: Request) -> Response:
        request_id = request.path_params["request_id"]
        found = answers.get(request_id, _progress(driver), await run_in_threadpool(_doing, driver))
        if found is None:
            raise HTTPException(
                404, f"there is no request {request_id!r}; /v1/savepoints, /v1/rescale and /v1/stop return ids"
            )
        return _reply(found)

    async def rescale(request: Request) -> Response:
        body = await _body(request, RescaleBody)
        _refuse_ended(driver)
        return _reply(Accepted(request_id=answers.add(driver.rescale(body.parallelism).done)), 202)

    async def stop(request: Request) -> Response:
        return await requested(request, StopBody, stop=True)

    async def cancel(request: Request) -> Response:
        _refuse_ended(driver)
        driver.cancel()
        return _reply(await run_in_threadpool(status_message, driver), 202)

    return Starlette(
        routes=[
            Route("/v1/status", status, methods=["GET"]),
            Route("/v1/savepoints", savepoint, methods=["POST"]),
            Route("/v1/savepoints/{request_id}", answer, methods=["GET"]),
            Route("/v1/rescale", rescale, methods=["POST"]),
            Route("/v1/rescale/{request_id}", answer, methods=["GET"]),
            Route("/v1/stop", stop, methods=["POST"]),
            Route("/v1/cancel", cancel, methods=["POST"]),
        ],
        exception_handlers={HTTPException: _http_error, Exception: _internal_error},
    )


def status_message(driver: JobDriver) -> StatusMessage:
    status = driver.status()
    return StatusMessage(
        job=status.job, run=status.run, state=status.state, epoch=status.epoch, started_ms=status.started_ms,
        now_ms=wall_clock_ms(), restarts=status.restarts, parallelism=driver.parallelism, records=dict(status.records),
        sources=[o.uid for o in driver.graph.sources], late_records_dropped=dict(status.late_records_dropped),
        ignored_files=dict(status.ignored_files), watermarks=dict(status.watermarks),
        savepoint_progress=_progress(driver), rescaling_to=status.rescaling_to, failure=status.failure,
        pid=os.getpid(), doing=_doing(driver),
    )  # fmt: skip


def _progress(driver: JobDriver) -> SavepointProgress | None:
    progress = driver.status().savepoint_progress
    return None if progress is None else SavepointProgress(done=progress[0], total=progress[1])


def _doing(driver: JobDriver) -> str | None:
    """A description of a long-running epoch; else None, as asking the engine takes a moment."""
    return driver.doing() if driver.epoch_ms > SLOW_EPOCH_MS else None


def _refuse_ended(driver: JobDriver) -> None:
    if driver.status().state == "ended":
        raise HTTPException(409, f"job {driver.job!r} has ended; run {driver.run_id} no longer accepts requests")


async def _body(request: Request, model: type[M]) -> M:
    data = await read_body(request)
    try:
        return model.model_validate_json(data or b"{}")
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, problem['loc'])) or 'the body'}: {problem['msg']}"
            for problem in error.errors(include_url=False)
        ]
        raise HTTPException(400, f"{'; '.join(problems)}. It takes {', '.join(model.model_fields)}") from None


def _reply(message: Message, status: int = 200) -> Response:
    # A rejected request is not read in full, so the connection can't be reused.
    headers = {"connection": "close"} if status >= 400 else {}
    return Response(message.model_dump_json(by_alias=True), status, headers, media_type="application/json")


def _error(status: int, message: str) -> Response:
    code = _CODES.get(status, "internal" if status >= 500 else "bad-request")
    return _reply(ErrorMessage(error=ErrorDetail(code=code, message=message)), status)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = error.detail
    if error.status_code in (404, 405) and message in ("Not Found", "Method Not Allowed"):
        message = (
            f"{request.method} {request.url.path} is not supported; there are GET /v1/status, POST /v1/savepoints, "
            "GET /v1/savepoints/ID, POST /v1/rescale, GET /v1/rescale/ID, POST /v1/stop and POST /v1/cancel"
        )
    return _error(error.status_code, message)


async def _internal_error(request: Request, error: Exception) -> Response:
    return _error(500, f"{type(error).__name__}: {error}")


class _Guard:
    """Requires the token: any user of the machine, and any web page, can reach the port."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = dict(scope.get("headers", ())).get(b"authorization", b"")
        if hmac.compare_digest(given, self._expected):
            await self._app(scope, receive, send)
        else:
            refusal = _error(401, "the authorization header is missing or wrong; the run's endpoint.json has the token")
            await refusal(scope, receive, send)
