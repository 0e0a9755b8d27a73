"""Access control: a token for each role, compared in constant time; hosts and origins; the audit log.

All requests except those for the page's files and the readiness probe need a token, even on the loopback interface, which any
user of the machine and any page in a browser can reach. There are no cookies, so a page of another origin cannot use a user's
rights.
"""

from __future__ import annotations

import hmac
import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forkpoint.protocol.listener import bearer
from forkpoint.server.errors import answer
from forkpoint.server.segments import shown

Role = Literal["read", "operate"]

audit = logging.getLogger("forkpoint.audit")

UPLOADS = "/v1/programs"
MAX_UPLOAD_BYTES, MAX_BODY_BYTES = 16 << 20, 1 << 20
_NOTED_BYTES = 4096
_SECRET = frozenset(("arguments", "conf", "sql", "positions"))
_READING = ("GET", "HEAD", "OPTIONS")
# Read-only requests with a body. The entire path has to match: a job may be called "query".
_READING_POSTS = re.compile(r"/v1/(jobs/[^/]+/query|catalog/savepoints/[^/]+/query|catalog/diffs)")
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
)


@dataclass(frozen=True)
class Tokens:
    """``operate`` allows all requests, ``read`` only read-only ones. ``hosts``: the allowed names of this server; None for any
    name, so that only the token protects it."""

    operate: str
    read: str | None = None
    hosts: frozenset[str] | None = None

    def role(self, authorization: bytes) -> Role | None:
        """The role of a caller with this header."""
        given = bearer(authorization)
        operates = hmac.compare_digest(given, self.operate.encode())
        reads = hmac.compare_digest(given, (self.read or self.operate).encode())
        return "operate" if operates else "read" if reads else None


def required_role(method: str, path: str) -> Role:
    """The role that a request needs. Pure."""
    reads = method in _READING or (method == "POST" and _READING_POSTS.fullmatch(path) is not None)
    return "read" if reads else "operate"


def max_body(path: str) -> int:
    """The maximum size of a body for a path."""
    return MAX_UPLOAD_BYTES if path == UPLOADS else MAX_BODY_BYTES


def too_large(path: str) -> str:
    return f"the body is longer than {max_body(path):,} bytes"


class _Limited:
    """Receives a body of unknown length. Raises HTTPException once it is too long. ``head``: its first bytes."""

    def __init__(self, receive: Receive, path: str) -> None:
        self._receive, self._path, self._left = receive, path, max_body(path)
        self.head = b""

    async def __call__(self) -> Message:
        message = await self._receive()
        part = message.get("body", b"")
        self._left -= len(part)
        if self._left < 0:
            raise HTTPException(413, too_large(self._path))
        self.head += part[: _NOTED_BYTES + 1 - len(self.head)]
        return message


def asked_for(body: bytes) -> dict[str, Any] | None:
    """The loggable part of a JSON body, without fields that may have passwords; None for other bodies. Pure."""
    if len(body) > _NOTED_BYTES:
        return None
    try:
        sent = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return {name: "…" if name in _SECRET else value for name, value in sent.items()} if isinstance(sent, dict) else None


class Guard:
    """Rejects unauthorized requests and writes the audit log. ``is_public``: paths that need no token."""

    def __init__(self, app: ASGIApp, tokens: Tokens, is_public: Callable[[str], bool] = lambda path: False) -> None:
        self._app, self._tokens, self._is_public = app, tokens, is_public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope.get("headers", ()))
        method, path = scope["method"], scope["path"]
        refusal = self._refusal(method, path, headers)
        role = self._tokens.role(headers.get(b"authorization", b""))
        scope.setdefault("state", {})["role"] = role
        status, limited = 0, _Limited(receive, path)

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if method not in _READING:  # log before the caller gets the answer
                    self._audit(scope, headers, role, status, limited.head)
                message["headers"] = [*message.get("headers", []), *_HEADERS]
                if status >= 400:  # a refused request may not have been read to its end
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        try:
            await (self._app if refusal is None else answer(*refusal))(scope, limited, sending)
        finally:
            if method not in _READING and not status:  # it ended without an answer
                self._audit(scope, headers, role, status, limited.head)

    def _refusal(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> tuple[int, str, str] | None:
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name, colon, port = host.rpartition(":")
        bare = (name if colon and port.isdecimal() else host).strip("[]")
        if self._tokens.hosts is not None and bare not in self._tokens.hosts:
            return (403, "Forbidden", f"this server is not called {host!r}; start it with --allowed-host to give it that name")
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > max_body(path):
            return 413, "TooLarge", too_large(path)
        origin = headers.get(b"origin")
        if origin is not None and origin.decode("latin-1").lower().partition("://")[2] != host:
            return 403, "Forbidden", "requests from pages of other origins are refused"
        if self._is_public(path) and method in _READING:
            return None
        role = self._tokens.role(headers.get(b"authorization", b""))
        if role is None:
            return 401, "Unauthorized", "the authorization header is missing or wrong: Authorization: Bearer TOKEN"
        if role == "read" and required_role(method, path) == "operate":
            return 403, "Forbidden", f"this token may only read; {method} {shown(path)} needs one for the role operate"
        return None

    @staticmethod
    def _audit(scope: Scope, headers: Mapping[bytes, bytes], role: Role | None, status: int, body: bytes) -> None:
        client = scope.get("client")
        entry = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "role": role,
            "method": scope["method"],
            "path": shown(scope["path"]),
            "query": scope.get("query_string", b"").decode("latin-1") or None,
            "asked": None if role is None or scope["path"] == UPLOADS else asked_for(body),
            "status": status,
            "client": None if client is None else client[0],
            "user": headers.get(b"x-forwarded-user", b"").decode("latin-1") or None,
        }
        audit.info("%s", json.dumps(entry))
