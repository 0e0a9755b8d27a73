"""Errors as answers: Flink's shape, ``errors``, and the command line's, ``error``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request

from forkpoint.errors import (
    ConfigError,
    EditRefused,
    ForkpointError,
    JobNotFound,
    RestoreRefused,
    SavepointCorrupt,
    SavepointNotFound,
    StateNotFound,
    Unavailable,
)
from forkpoint.server.programs import ProgramNotFound
from forkpoint.server.requests import Busy, Unknown
from forkpoint.server.segments import shown
from forkpoint.server.service import CheckpointNotFound, RootNotFound

_STATUS: tuple[tuple[tuple[type[ForkpointError], ...], int], ...] = (  # all others: 409, not possible in the current state
    ((JobNotFound, SavepointNotFound, StateNotFound, Unknown, RootNotFound, ProgramNotFound, CheckpointNotFound), 404),
    ((Busy, Unavailable), 503),
    ((RestoreRefused, SavepointCorrupt), 409),
    ((EditRefused, ConfigError), 400),
)
_NAMES = {400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 405: "MethodNotAllowed", 413: "TooLarge"}


class ErrorDetail(BaseModel):
    code: str
    message: str


class ErrorAnswer(BaseModel):
    """``errors``: for Flink's clients."""

    errors: list[str]
    error: ErrorDetail


def answer(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    body = ErrorAnswer(errors=[message], error=ErrorDetail(code=code, message=message))
    return JSONResponse(body.model_dump(), status, headers)


def described(error: BaseException) -> dict[str, Any]:
    """An error that ended a request."""
    return {"code": type(error).__name__, "message": str(error) or type(error).__name__}


def install(app: FastAPI, allowed: Callable[[str], Sequence[str]]) -> None:
    """Install the error handlers of an app. ``allowed``: the methods of a path."""

    @app.exception_handler(ForkpointError)
    async def _forkpoint(request: Request, error: ForkpointError) -> JSONResponse:
        status = next((status for kinds, status in _STATUS if isinstance(error, kinds)), 409)
        return answer(status, type(error).__name__, str(error))

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> JSONResponse:
        message = error.detail
        if error.status_code in (404, 405) and message in ("Not Found", "Method Not Allowed"):
            message = f"{request.method} {shown(request.url.path)} is not part of this API; see /v1/openapi.json"
        headers = {"allow": ", ".join(allowed(request.url.path))} if error.status_code == 405 else None
        return answer(error.status_code, _NAMES.get(error.status_code, "Error"), message, headers)

    @app.exception_handler(RequestValidationError)
    async def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        problems = [f"{'.'.join(map(str, found['loc']))}: {found['msg']}" for found in error.errors()]
        return answer(400, "BadRequest", "; ".join(problems))
