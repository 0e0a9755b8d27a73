"""Converts AWS errors to forkpoint's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from forkpoint.errors import ConfigError, ForkpointError, JobFailed, SystemUnavailable

_THROTTLED = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "LimitExceededException",
        "KMSThrottlingException",
        "ThrottlingException",
        "Throttling",
        "RequestLimitExceeded",
        "TooManyRequestsException",
        "SlowDown",
    }
)
_TEMPORARY = frozenset(
    {
        "InternalFailure",
        "InternalFailureException",
        "InternalServerError",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "RequestTimeout",
        "RequestTimeoutException",
        "ResourceInUseException",
        "ExpiredNextTokenException",
        "ExpiredIteratorException",
    }
)
_REFUSED = frozenset(
    {
        "UnrecognizedClientException",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "SignatureDoesNotMatch",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "IncompleteSignature",
        "IncompleteSignatureException",
        "AuthFailure",
        "OptInRequired",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidAccessKeyId",
    }
)


class IncompleteAnswer(Exception):
    """The connection was cut in the middle of a response, and the client took the response for complete."""


def field(answer: Any, name: str) -> Any:
    """A field that every response has. Raises IncompleteAnswer if it is missing."""
    if name not in answer:
        raise IncompleteAnswer(f"a response was cut off: it has no {name}")
    return answer[name]


def code_of(error: BaseException) -> str:
    """The code of an error response; "" for other errors."""
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


def is_throttled(error: BaseException) -> bool:
    """Whether the service rejected too many requests or too much data."""
    return code_of(error) in _THROTTLED


def is_expired(error: BaseException) -> bool:
    """Whether an iterator is older than its lifetime of five minutes."""
    return code_of(error) == "ExpiredIteratorException"


def forkpoint_error(error: Exception, what: str, place: str, remedy: str) -> ForkpointError:
    """The error to raise if ``what`` failed: SystemUnavailable if a retry may succeed, otherwise an error with a remedy.

    ``place``: the region or endpoint. ``remedy``: what to do if the stream does not exist.
    """
    from botocore import exceptions

    code = code_of(error)
    if isinstance(error, exceptions.NoCredentialsError | exceptions.PartialCredentialsError | exceptions.ProfileNotFound):
        return ConfigError(
            f"{what}: {error}. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role for this host, or the "
            "properties aws.credentials.provider.basic.accesskeyid and .secretkey"
        )
    if isinstance(error, exceptions.NoRegionError):
        return ConfigError(f"{what}: there is no region; set the property aws.region, or AWS_DEFAULT_REGION")
    if isinstance(error, exceptions.ParamValidationError | exceptions.InvalidRegionError | ValueError):
        return ConfigError(f"{what}: {error}. Correct the stream's name or ARN, aws.region and aws.endpoint")
    if code == "ResourceNotFoundException":
        return ConfigError(f"{what}: there is no such stream in {place} ({_message(error)}); {remedy}, or correct aws.region")
    if code in _REFUSED:
        return ConfigError(
            f"{what}: {place} does not accept the credentials ({code}: {_message(error)}); correct or renew them, and check "
            "aws.region"
        )
    if code in ("AccessDeniedException", "AccessDenied") or (code.startswith("KMS") and code not in _THROTTLED):
        return ConfigError(
            f"{what}: {place} denies access ({code}: {_message(error)}); allow it in the policy of this user or role"
        )
    if code in _THROTTLED | _TEMPORARY or isinstance(error, _unreachable()) or _status(error) >= 500:
        return SystemUnavailable(f"{what} does not work: {place}: {_message(error)}")
    return JobFailed(f"{what}: {place}: {_message(error)}" + (f" ({code})" if code else ""))


@contextmanager
def raising_errors(what: str, place: str, remedy: str) -> Iterator[None]:
    """Raise the client's errors as forkpoint's; see ``forkpoint_error``."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError, ValueError, *_unreachable()) as error:
        raise forkpoint_error(error, what, place, remedy) from error


def _unreachable() -> tuple[type[Exception], ...]:
    from botocore import exceptions, parsers

    return (
        exceptions.HTTPClientError,
        exceptions.EndpointConnectionError,
        exceptions.CredentialRetrievalError,
        exceptions.IncompleteReadError,
        parsers.ResponseParserError,
        IncompleteAnswer,
    )


def _status(error: Exception) -> int:
    response = getattr(error, "response", None)
    return int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)) if isinstance(response, dict) else 0


def _message(error: Exception) -> str:
    response = getattr(error, "response", None)
    said = response.get("Error", {}).get("Message") if isinstance(response, dict) else None
    return str(said or error)
