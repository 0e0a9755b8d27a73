"""The REST API under /v1, and the page at /, as one application."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, compile_path
from starlette.types import ASGIApp

from forkpoint.operations.roots import StateRoot
from forkpoint.server import errors
from forkpoint.server.access import Guard, Tokens
from forkpoint.server.commands import Commands
from forkpoint.server.context import Context
from forkpoint.server.programs import Programs
from forkpoint.server.requests import Requests
from forkpoint.server.routes import jobs, metrics, programs, savepoints, states, system
from forkpoint.server.segments import KeepsSlashes
from forkpoint.server.service import Service
from forkpoint.storage.places import plain_place

API = "/v1"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@dataclass(frozen=True)
class ServerOptions:
    """``programs``: the directory of uploaded programs."""

    roots: tuple[StateRoot, ...]
    tokens: Tokens
    programs: Path | None = None
    only: str | None = None


def application(options: ServerOptions, commands: Commands | None = None) -> ASGIApp:
    """The complete application of a server, with its guard. ``commands``: the caller closes them at the end."""
    service = Service(options.roots, options.only)
    programs = None if options.programs is None else Programs(options.programs)
    api = make_api(Context(service, Requests(service.changed), programs, commands or Commands()))
    files = page_files()
    return KeepsSlashes(Guard(api, options.tokens, lambda path: path in files or path == system.READY))


def job_application(state_root: str, job: str, token: str) -> ASGIApp:
    """The API and the page for one job, at its driver's own port."""
    tokens = Tokens(token)
    return application(ServerOptions((StateRoot(plain_place(state_root)),), tokens, only=job))


def make_api(context: Context) -> FastAPI:
    """The routes, without a guard."""
    api = FastAPI(
        title="forkpoint",
        version=version("forkpoint"),
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        generate_unique_id_function=lambda route: f"{route.tags[0] if route.tags else ''}-{route.name}",
        separate_input_output_schemas=True,
        redirect_slashes=False,
    )
    api.state.context = context

    @cache
    def methods() -> list[tuple[re.Pattern[str], list[str]]]:
        """The methods of each path; cached, because the API's description takes longer than the rest of a server's start."""
        paths = sorted(described(api)["paths"].items(), key=lambda item: "{" in item[0])
        return [(compile_path(path)[0], sorted(method.upper() for method in operations)) for path, operations in paths]

    errors.install(api, lambda path: next((names for pattern, names in methods() if pattern.fullmatch(path)), []))
    for router in (metrics.router, jobs.router, programs.router, savepoints.router, states.router, system.router):
        api.include_router(router, prefix=API)
    api.include_router(system.scraped)

    async def description(request: Request) -> Response:
        return JSONResponse(described(api))

    api.router.routes.append(Route(f"{API}/openapi.json", description, methods=["GET"]))
    api.router.routes.extend(_page(path, *file) for path, file in page_files().items())
    return api


def described(api: FastAPI) -> dict[str, Any]:
    """The API's description, with the token that all calls need."""
    found = api.openapi()
    found.setdefault("components", {})["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    found["security"] = [{"token": []}]
    for path in found["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)  # invalid requests are answered with 400
            for status, response in operation["responses"].items():
                if status.startswith(("4", "5")):  # including calls whose result is not JSON
                    response["content"] = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorAnswer"}}}
    return found


def commands_of(api: FastAPI) -> dict[str, list[str]]:
    """The calls that correspond to commands, by the command's name."""
    named: dict[str, list[str]] = {}
    for path, operations in described(api)["paths"].items():
        for method, operation in operations.items():
            if (name := operation.get("x-forkpoint-command")) is not None:
                named.setdefault(name, []).append(f"{method.upper()} {path}")
    return named


def page_files() -> dict[str, tuple[bytes, str]]:
    """The page's files, by path: content and media type."""
    found = {
        f"/{file.name}": (file.read_bytes(), _TYPES[Path(file.name).suffix])
        for file in resources.files("forkpoint.server").joinpath("page").iterdir()
        if Path(file.name).suffix in _TYPES
    }
    return {"/": found["/index.html"], **found} if "/index.html" in found else found


def _page(path: str, content: bytes, media_type: str) -> Route:
    async def page(request: Request) -> Response:
        return Response(content, media_type=media_type, headers={"cache-control": "no-cache"})

    return Route(path, page, methods=["GET"])
