"""Slashes within a segment of a path. Names may have slashes; callers send them as %2F, which servers decode before routing."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

from fastapi.routing import APIRoute
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

_SLASH = "\udc2f"  # a lone surrogate, which no caller can send, because decoded bytes never contain one
_ENCODED = re.compile("%2f", re.IGNORECASE)


class KeepsSlashes:
    """Replaces slashes within segments of a path, for all its readers: the guard, the audit log and the routes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = (scope.get("raw_path") or b"").decode("latin-1")
        if scope["type"] == "http" and _ENCODED.search(raw):
            scope = {**scope, "path": _SLASH.join(unquote(part) for part in _ENCODED.split(raw))}
        await self._app(scope, receive, send)


class SegmentRoute(APIRoute):
    """A route whose parameters have the original slashes of their segments."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child = super().matches(scope)
        if "path_params" in child:
            child["path_params"] = {name: _decoded(value) for name, value in child["path_params"].items()}
        return match, child


def shown(path: str) -> str:
    """A path as text, for messages and logs."""
    return path.replace(_SLASH, "%2F")


def _decoded(value: Any) -> Any:
    return value.replace(_SLASH, "/") if isinstance(value, str) else value
