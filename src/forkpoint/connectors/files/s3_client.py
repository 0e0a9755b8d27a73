"""The S3 client for multipart uploads, with the endpoint and credentials of the state root's."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from forkpoint.errors import AccessDenied, NotFound, StorageError, SystemUnavailable
from forkpoint.extras import require

TRIES = 8
"""Of a request; together about 20 seconds."""
CONNECT_SECONDS, READ_SECONDS = 5, 30

_DENIED = ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "403")
_TEMPORARY = (
    "SlowDown",
    "RequestTimeout",
    "Throttling",
    "ThrottlingException",
    "OperationAborted",
    "ConditionalRequestConflict",
)
_MISSING = ("NoSuchUpload", "NoSuchKey", "404")


class Taken(StorageError):
    """There is an object of this name."""


class NotSupported(StorageError):
    """The store does not have a feature of the request."""


def s3_client() -> Any:
    """The client of this process for the environment as it is."""
    return _client(tuple((name, os.environ.get(name)) for name in _VARIABLES), os.getpid())


_VARIABLES = (
    "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_TOKEN", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "AWS_SKIP_SIGNATURE",
    "AWS_PROFILE",
)  # fmt: skip


@cache
def _client(environment: tuple[tuple[str, str | None], ...], process: int) -> Any:
    require("boto3.session", "FileSink on s3://")
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config

    given = dict(environment)
    endpoint = given["AWS_ENDPOINT_URL"] or given["AWS_ENDPOINT"] or given["AWS_ENDPOINT_URL_S3"]
    by_host = (given["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] or "").lower() in ("1", "true")
    config = Config(
        connect_timeout=CONNECT_SECONDS, read_timeout=READ_SECONDS, retries={"mode": "standard", "max_attempts": TRIES},
        s3={"addressing_style": "path" if endpoint and not by_host else "auto"},
        # Other stores than AWS do not have its newer checksums; parts are sent with their MD5 instead.
        request_checksum_calculation="when_required", response_checksum_validation="when_required",
        max_pool_connections=32,
    )  # fmt: skip
    if (given["AWS_SKIP_SIGNATURE"] or "").lower() in ("1", "true"):
        config = config.merge(Config(signature_version=UNSIGNED))
    return boto3.session.Session().client(
        "s3", config=config, endpoint_url=endpoint, aws_session_token=given["AWS_SESSION_TOKEN"] or given["AWS_TOKEN"],
        aws_access_key_id=given["AWS_ACCESS_KEY_ID"], aws_secret_access_key=given["AWS_SECRET_ACCESS_KEY"],
        region_name=given["AWS_REGION"] or given["AWS_DEFAULT_REGION"] or "us-east-1",
    )  # fmt: skip


@contextmanager
def s3_errors(verb: str, place: str) -> Iterator[None]:
    """Raise the client's errors as forkpoint's: NotFound for an upload that there isn't, ``Taken`` where a condition failed,
    SystemUnavailable for what a later attempt may do."""
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        HTTPClientError,
        NoCredentialsError,
        PartialCredentialsError,
    )
    from botocore.exceptions import ConnectionError as NotConnected

    failed = f"FileSink: cannot {verb} {place} from host {socket.gethostname()}"
    try:
        yield
    except ClientError as error:
        told = error.response.get("Error", {})
        code, reason = str(told.get("Code", "")), str(told.get("Message") or error)
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        if code in _MISSING:
            raise NotFound(f"{failed}: {code}") from error
        if code == "PreconditionFailed" or status == 412:
            raise Taken(f"{place} exists already") from error
        if code == "NotImplemented" or status == 501:
            raise NotSupported(f"{failed}: {reason} ({code}). Use a store that supports multipart uploads") from error
        if code in _DENIED or status in (401, 403):
            raise AccessDenied(f"{failed}: {reason} ({code}). Check credentials and permissions there") from error
        if code in _TEMPORARY or status >= 500 or status in (408, 409, 429):
            raise SystemUnavailable(f"{failed}: {reason} ({code}). Check the store") from error
        raise StorageError(f"{failed}: {reason} ({code}). Check the bucket, region, endpoint and network") from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise AccessDenied(f"{failed}: {error}. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY") from error
    except (NotConnected, HTTPClientError) as error:
        raise SystemUnavailable(
            f"{failed}, as the store does not answer: {error}. Check the store, AWS_ENDPOINT_URL and the network"
        ) from error
    except BotoCoreError as error:
        raise StorageError(f"{failed}: {error}. Check the bucket, region, endpoint and network") from error
