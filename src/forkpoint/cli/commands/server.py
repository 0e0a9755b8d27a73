"""The `server` command."""

from __future__ import annotations

import errno
import logging
import os
import secrets
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from forkpoint import logs
from forkpoint.checkpoint.paths import PROGRAMS
from forkpoint.cli.settings import Command, current
from forkpoint.errors import ConfigError
from forkpoint.extras import require
from forkpoint.operations.roots import StateRoot
from forkpoint.storage.private import make_directories, open_new

if TYPE_CHECKING:
    from forkpoint.protocol.listener import Listening

OPERATE_TOKEN, READ_TOKEN = "FORKPOINT_SERVER_TOKEN", "FORKPOINT_SERVER_READ_TOKEN"
PORT = 8081
MIN_TOKEN = 16
_LOOPBACK = frozenset(("127.0.0.1", "::1", "localhost"))


@click.command(cls=Command)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="The port; 0: any that is free.")
@click.option(
    "--root", "roots", metavar="PATH|URL", multiple=True, help="A further state root whose jobs are served; repeatable."
)
@click.option("--tls-cert", metavar="FILE", type=click.Path(exists=True, dir_okay=False), help="A certificate, in PEM.")
@click.option("--tls-key", metavar="FILE", type=click.Path(exists=True, dir_okay=False), help="Its key, in PEM.")
@click.option(
    "--insecure",
    is_flag=True,
    help="Serve other hosts without TLS; without an encrypting proxy, their tokens can then be intercepted.",
)
@click.option(
    "--allowed-host",
    "hosts",
    metavar="NAME",
    multiple=True,
    help="A name that callers may use for this server; repeatable. [default: at a loopback address, that one; else any]",
)
@click.option("--audit-log", metavar="FILE", help="The file of the audit log. [default: audit.log below a local state root]")
def server(
    host: str,
    port: int,
    roots: tuple[str, ...],
    tls_cert: str | None,
    tls_key: str | None,
    insecure: bool,
    hosts: tuple[str, ...],
    audit_log: str | None,
) -> None:
    """Serve a web page, REST and metrics for all jobs below the state root, until Ctrl-C.

    Callers need a token: FORKPOINT_SERVER_TOKEN for all requests, FORKPOINT_SERVER_READ_TOKEN for read-only ones. Without the
    former, the server generates a token and prints it.
    """
    require("fastapi", "forkpoint server")
    from forkpoint.protocol.listener import Listening  # takes a moment to load
    from forkpoint.server.access import Tokens
    from forkpoint.server.app import ServerOptions, application
    from forkpoint.server.commands import Commands

    logs.begin()
    _check_tls(host, tls_cert, tls_key, insecure)
    root = current().state_root
    places = dict.fromkeys((root.place, *(StateRoot(each).place for each in roots)))
    keep = Path(root.log_directory)
    _audit_to(audit_log or str(keep / "audit.log"))
    operate, read = _token(OPERATE_TOKEN) or secrets.token_urlsafe(24), _token(READ_TOKEN)
    if read == operate:
        raise ConfigError(f"{READ_TOKEN} is the same as {OPERATE_TOKEN}, so readers could operate jobs; choose another")
    allowed = frozenset(each.lower() for each in hosts) or (_LOOPBACK if host in _LOOPBACK else None)
    options = ServerOptions(tuple(StateRoot(place) for place in places), Tokens(operate, read, allowed), programs=keep / PROGRAMS)
    commands = Commands()
    app = application(options, commands)
    listening = Listening(app, host, port, name="forkpoint-server", certificate=tls_cert, key=tls_key)
    ended, hurried = threading.Event(), threading.Event()

    def on_signal(*_: object) -> None:
        (hurried if ended.is_set() else ended).set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        scheme, name = "http" if tls_cert is None else "https", f"[{host}]" if ":" in host else host
        url = f"{scheme}://{name}:{_port(listening, host, port)}"
        token = None if os.environ.get(OPERATE_TOKEN) else operate
        data = {"url": url, "token": token, "roots": list(places)}
        current().output.event("serving", data, _said(url, token))
        ended.wait()
    finally:
        listening.close()
        commands.close(hurried)
        for number, handler in before.items():
            signal.signal(number, handler)


def _port(listening: Listening, host: str, port: int) -> int:
    """Start listening; returns the port. Raises ConfigError if that fails."""
    try:
        return listening.start()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"port {port} of {host} is in use, perhaps by another forkpoint server; give another one with --port (0: any "
                "that is free), or end what has it"
            ) from None
        raise ConfigError(f"cannot listen at {host}, port {port}: {error.strerror or error}") from None


def _said(url: str, token: str | None) -> str:
    if token is None:
        return f"forkpoint server at {url}, with the token in {OPERATE_TOKEN}"
    return f"forkpoint server: {url}/#token={token}\nset {OPERATE_TOKEN} to keep a token across restarts"


def _check_tls(host: str, certificate: str | None, key: str | None, insecure: bool) -> None:
    if (certificate is None) != (key is None):
        raise click.UsageError("give --tls-cert and --tls-key together")
    if certificate is None and host not in _LOOPBACK and not insecure:
        raise click.UsageError(
            f"at {host} other hosts can reach this server: give --tls-cert and --tls-key, or --insecure behind a proxy that "
            "encrypts"
        )


def _token(variable: str) -> str | None:
    """The token in an environment variable, because all users of the machine can see a command line."""
    token = os.environ.get(variable)
    if token is not None and (len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable()):
        raise ConfigError(f"{variable} must have at least {MIN_TOKEN} printable ASCII characters; leave it out to have one made")
    return token or None


def _audit_to(file: str) -> None:
    from forkpoint.server.access import audit

    make_directories(os.path.dirname(os.path.abspath(file)))
    handler = logging.StreamHandler(os.fdopen(open_new(file, append=True), "a"))
    handler.setFormatter(logging.Formatter("%(message)s"))
    audit.addHandler(handler)
    audit.setLevel(logging.INFO)
    audit.propagate = False
