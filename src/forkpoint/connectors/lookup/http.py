"""HttpLookup looks up JSON of an HTTP service."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from http import HTTPStatus
from string import Formatter
from typing import TYPE_CHECKING, Any, overload
from urllib.parse import quote

from forkpoint.connectors.formats.json import JsonText
from forkpoint.connectors.formats.records import Unreadable, shorten
from forkpoint.connectors.lookup.converter import Converter
from forkpoint.errors import ConfigError, ForkpointError, JobFailed, SystemUnavailable
from forkpoint.functions import AsyncLookupFunction, RuntimeContext, to_ms
from forkpoint.types import TypeInformation, TypeLike, type_of
from forkpoint.types.variables import V

if TYPE_CHECKING:
    from httpx import AsyncClient, Response

_CONNECTIONS = 5  # per client: httpx takes more time per request with more connections
_REQUEST_TIMEOUT = timedelta(seconds=10)
_TEMPORARY = {408, 421, 425, 429, 500, 502, 503, 504, 507, 509, 520, 521, 522, 523, 524, 529}


class HttpLookup(AsyncLookupFunction[Any, V]):
    """Looks up JSON of an HTTP service, with one GET per key, many concurrently.

    ``url_template``: ``"https://host/customers/{key}"``; for keys that are tuples, ``"https://host/{0}/{1}"``. Keys are
    percent-encoded. ``headers`` are sent with every request, such as ``{"Authorization": "Bearer …"}``.

    The result is the JSON, or a value of ``result_type``, whose fields match by name; other fields are ignored. First,
    ``extract(json)`` selects the part to use. A key is missing if the response has one of ``missing_statuses`` or 204, or its
    JSON or extracted part is null.

    ``capacity``: the maximum number of a subtask's requests in flight. ``request_timeout`` (timedelta or int ms) applies to one
    attempt. ``client_options`` go to ``httpx.AsyncClient``, such as ``auth``, or ``verify`` with the path of a
    file of trusted certificates.

    Raises SystemUnavailable if the service does not answer, is overloaded (429) or fails (5xx); ConfigError if it refuses the
    credentials (401, 403, 407); JobFailed for other responses.
    """

    max_batch_size = 1

    @overload
    def __init__(
        self,
        url_template: str,
        *,
        headers: Mapping[str, str] | None = None,
        result_type: TypeLike[V],
        extract: Callable[[Any], Any] | None = None,
        missing_statuses: Collection[int] = (404,),
        capacity: int = 100,
        request_timeout: timedelta | int = _REQUEST_TIMEOUT,
        client_options: Mapping[str, Any] | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: HttpLookup[Any],
        url_template: str,
        *,
        headers: Mapping[str, str] | None = None,
        result_type: Any = None,
        extract: Callable[[Any], Any] | None = None,
        missing_statuses: Collection[int] = (404,),
        capacity: int = 100,
        request_timeout: timedelta | int = _REQUEST_TIMEOUT,
        client_options: Mapping[str, Any] | None = None,
    ) -> None: ...
    def __init__(
        self,
        url_template: str,
        *,
        headers: Mapping[str, str] | None = None,
        result_type: Any = None,
        extract: Callable[[Any], Any] | None = None,
        missing_statuses: Collection[int] = (404,),
        capacity: int = 100,
        request_timeout: timedelta | int = _REQUEST_TIMEOUT,
        client_options: Mapping[str, Any] | None = None,
    ) -> None:
        _check_template(url_template)
        self._template = url_template
        self._headers = dict(headers or {})
        self._type = None if result_type is None else type_of(result_type)
        self._extract = extract
        self._missing = frozenset(missing_statuses) | {204}
        self.capacity = capacity
        self._timeout_ms = to_ms(request_timeout, "request_timeout", minimum_ms=1)
        self._options = dict(client_options or {})

    def get_produced_type(self) -> TypeInformation[Any] | None:
        return self._type

    async def open(self, runtime_context: RuntimeContext, /) -> None:  # type: ignore[override]
        import ssl

        import httpx

        self._json = JsonText(self._type)
        self._convert = Converter(self._type, as_encoded=True).convert
        limits = httpx.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS)
        options = {"follow_redirects": True, "limits": limits, "timeout": None, "verify": True, **self._options}
        self._clients: list[AsyncClient] = []
        try:
            if isinstance(options["verify"], str):
                options["verify"] = ssl.create_default_context(cafile=options["verify"])
            elif options["verify"] is True:
                options["verify"] = httpx.create_ssl_context()  # once, because it takes milliseconds
            for _ in range(-(-self.capacity // _CONNECTIONS)):
                self._clients.append(httpx.AsyncClient(headers=self._headers, **options))
        except (TypeError, ValueError, OSError) as error:
            raise ConfigError(f"HttpLookup({self._template!r}): client_options or headers are wrong: {error}") from error
        self._free = [client for client in self._clients for _ in range(_CONNECTIONS)]

    async def async_lookup(self, keys: Sequence[Any], /) -> Mapping[Any, V]:
        return {key: found for key in keys if (found := await self._get(key)) is not None}

    async def close(self) -> None:  # type: ignore[override]
        for client in self._clients:
            await client.aclose()

    async def _get(self, key: Any) -> Any:
        import asyncio

        import httpx

        url = self._url(key)
        where = f"GET {url.partition('?')[0]}"
        client = self._free.pop()
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                response = await client.get(url)
        except TimeoutError:
            raise SystemUnavailable(f"{where}: no answer within {self._timeout_ms} ms") from None
        except (httpx.UnsupportedProtocol, httpx.InvalidURL, httpx.TooManyRedirects) as error:
            raise ConfigError(f"{where}: {error}. Correct the URL of HttpLookup") from error
        except httpx.DecodingError as error:
            raise JobFailed(f"{where}: the answer cannot be decoded: {error}") from error
        except httpx.TransportError as error:
            raise _transport_error(error, where) from error
        finally:
            self._free.append(client)
        if response.status_code in self._missing:
            return None
        if not response.is_success:
            raise _refusal(response, where)
        return self._found(response.content, where)

    def _url(self, key: Any) -> str:
        parts = key if isinstance(key, tuple) else (key,)
        try:
            return self._template.format(*map(_encoded, parts), key=_encoded(key))
        except IndexError:
            raise JobFailed(
                f"key {key!r} has {len(parts)} parts, fewer than the URL {self._template!r}; correct the key of lookup_join, or "
                "the URL"
            ) from None

    def _found(self, body: bytes, where: str) -> Any:
        try:
            value = self._json.decode(body)
        except Unreadable as error:
            raise JobFailed(
                f"{where}: the answer is not JSON ({error}): {shorten(repr(body), 100)}. Correct the URL of HttpLookup, or write "
                "an AsyncLookupFunction"
            ) from None
        if self._extract is not None:
            value = self._extract(value)
        if value is None:
            return None
        values, problem = self._convert([value])
        if problem is not None:
            raise JobFailed(f"{where}: {shorten(problem)}. Correct the result_type, or pass extract=")
        return values[0]


def _encoded(part: Any) -> str:
    return quote(str(part), safe="")


def _check_template(template: str) -> None:
    try:
        fields = [name for _, name, _, _ in Formatter().parse(template) if name is not None]
    except ValueError as error:
        raise ConfigError(f"HttpLookup({template!r}): {error}; write a brace as {{{{ or }}}}") from None
    if not fields or not all(name == "key" or name.isdecimal() for name in fields):
        raise ConfigError(
            f"HttpLookup({template!r}): the URL has the fields {fields}; write {{key}} where the key goes, or {{0}}, {{1}} … for "
            "the parts of a tuple"
        )


def _transport_error(error: Exception, where: str) -> ForkpointError:
    import ssl

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return ConfigError(
                f"{where}: {cause}. Pass client_options={{'verify': 'ca.pem'}}, a file with the authority's certificate"
            )
        cause = cause.__cause__ or cause.__context__
    return SystemUnavailable(f"{where} does not work: {type(error).__name__}: {error}".removesuffix(": "))


def _refusal(response: Response, where: str) -> ForkpointError:
    status = response.status_code
    phrase = HTTPStatus(status).phrase if status in HTTPStatus.__members__.values() else ""
    message = f"{where} answers {status} {phrase}: {shorten(response.text, 200)}".removesuffix(": ")
    if status in (401, 403, 407):
        return ConfigError(f"{message}. The credentials are wrong or missing; correct the headers of HttpLookup, or its auth")
    if status in _TEMPORARY:
        return SystemUnavailable(message)
    return JobFailed(f"{message}. Correct the URL of HttpLookup, or add the status to missing_statuses")
