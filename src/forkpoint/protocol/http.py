"""Requests over HTTP: the routes of a run's control port, and the carrier that calls it from the same machine."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from msgspec import DecodeError, json

from forkpoint.errors import ForkpointError
from forkpoint.protocol import messages as m
from forkpoint.protocol.client import Carrier, Pending, RunClient, Unreachable

if TYPE_CHECKING:
    from ssl import SSLContext

    from forkpoint.protocol.endpoint import Endpoint

TIMEOUT_SECONDS = 10.0

A = TypeVar("A", bound=m.Message)
L = TypeVar("L", bound=m.LongAnswer)


class Route(NamedTuple):
    """The method and path of a request, and the status code of its answer."""

    method: str
    path: str
    status: int = 200


ROUTES: Mapping[type[m.Request[Any]], Route] = {
    m.StatusRequest: Route("GET", "/v1/status"),
    m.JournalRequest: Route("GET", "/v1/journal"),
    m.MetricsRequest: Route("GET", "/v1/metrics"),
    m.SavepointRequest: Route("POST", "/v1/savepoints", 202),
    m.RescaleRequest: Route("POST", "/v1/rescale", 202),
    m.HandOverRequest: Route("POST", "/v1/hand-over", 202),
    m.StopRequest: Route("POST", "/v1/stop", 202),
    m.CancelRequest: Route("POST", "/v1/cancel", 202),
}
ANSWERS: Mapping[type[m.LongRequest[Any]], str] = {
    m.SavepointRequest: "/v1/savepoints",
    m.StopRequest: "/v1/savepoints",
    m.RescaleRequest: "/v1/rescale",
    m.HandOverRequest: "/v1/hand-over",
}
"""The directories of the answers to accepted requests, by id."""


@cache
def _no_tls() -> SSLContext:
    """Control ports speak plain HTTP. By default, httpx loads the system's certificates for each client, which takes longer than
    a request."""
    import ssl

    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class HttpCarrier(Carrier):
    """Calls a run's control port, on this machine."""

    def __init__(self, endpoint: Endpoint, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        import httpx  # its import takes a fifth of the time of a command that finds no job running

        super().__init__(endpoint)
        self._unreachable, self._late = httpx.TransportError, httpx.TimeoutException
        self._http = httpx.Client(
            base_url=f"http://{endpoint.host}:{endpoint.port}",
            headers={"authorization": f"Bearer {endpoint.token}"},
            timeout=timeout_seconds,
            trust_env=False,  # no proxy for the loopback interface
            verify=_no_tls(),
        )

    def close(self) -> None:
        self._http.close()

    def ask(self, request: m.Request[A]) -> A:
        route = ROUTES[type(request)]
        body = json.encode(request) if request.__struct_fields__ else None
        found: A = self._call(route.method, route.path, request.answer, body)
        if isinstance(found, m.StatusMessage) and found.run != self.endpoint.run:
            raise Unreachable(f"{self.who}: its port now belongs to run {found.run} of job {found.job!r}")
        return found

    def answer(self, pending: Pending[L]) -> L:
        found: L = self._call("GET", f"{ANSWERS[pending.kind]}/{pending.id}", pending.kind.outcome)
        return found

    def is_gone(self) -> bool:
        try:
            self.ask(m.StatusRequest())
        except Unreachable:
            return True
        return False

    def _call(self, method: str, path: str, expected: type[Any], body: bytes | None = None) -> Any:
        try:
            response = self._http.request(method, path, content=body)
        except self._late:
            raise ForkpointError(
                f"{self.who} (process {self.endpoint.pid}) does not answer at port {self.endpoint.port}; it may be "
                f"overloaded: try again, or check whether the process is alive{self.log}"
            ) from None
        except self._unreachable:
            raise Unreachable(f"{self.who}: its driver (process {self.endpoint.pid}) is gone") from None
        try:
            if response.is_success:
                return m.read(response.content, expected)
            error = m.read(response.content, m.ErrorMessage).error
        except DecodeError:
            raise Unreachable(
                f"{self.who}: its port {self.endpoint.port} now belongs to something other than a forkpoint driver"
            ) from None
        if error.code == "unauthorized":  # the port's current owner has another token
            raise Unreachable(f"{self.who}: its port {self.endpoint.port} now belongs to another driver")
        raise ForkpointError(f"{self.who}: {error.message}")


def over_http(endpoint: Endpoint, timeout_seconds: float = TIMEOUT_SECONDS) -> RunClient:
    """A client of a run that has a control port on this machine."""
    return RunClient(HttpCarrier(endpoint, timeout_seconds))
