"""A sink's files on S3: multipart uploads, which the driver completes once their epoch is committed.

Uploaded parts are durable, and invisible until the upload is completed. Completing it atomically makes the whole object visible
and ends the upload. So an existing upload is not published, and a missing one was either published, or aborted by a lifecycle
rule of the bucket or by hand. The driver writes a mark before it publishes an epoch: without it, a missing upload was aborted.

Uploads have only the names of their objects. So an object's name contains the run's generation and the owner, by which
``cleanup`` finds uploads that no manifest names.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from typing import Any, BinaryIO, Literal, cast

from forkpoint.connectors.files.places import FileName, SinkFiles, StagedFile, exists_already, unseen
from forkpoint.connectors.files.remote import AT_ONCE, join, reaching
from forkpoint.contract.source import JSON
from forkpoint.errors import AccessDenied, ForkpointError, NotFound, StorageError, SystemUnavailable
from forkpoint.extras import require
from forkpoint.storage.base import Storage, open_storage
from forkpoint.storage.files import split_url

PART_BYTES = 8 << 20
"""The size of the first thousand parts. The next thousand are twice as large, and so on: an upload has at most 10,000 parts."""
MARKS = ".published"

_NAME = re.compile(r".*-\d{12}-\d+-[^/]*\.g(\d+)\.([0-9a-f]{8})[^/]*")

_marked: dict[tuple[str, str], int] = {}
"""The last epoch that this process has marked, by URL and owner."""

TRIES = 8
"""Attempts at a request, about 20 seconds in total."""
CONNECT_SECONDS, READ_SECONDS = 5, 30
_DENIED = ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "403")
_TEMPORARY = ("SlowDown", "RequestTimeout", "Throttling", "ThrottlingException", "OperationAborted", "ConditionalRequestConflict")
_MISSING = ("NoSuchUpload", "NoSuchKey", "404")
_VARIABLES = (
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT",
    "AWS_ENDPOINT_URL_S3",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_TOKEN",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
    "AWS_SKIP_SIGNATURE",
    "AWS_PROFILE",
)


class S3Files(SinkFiles):
    """A directory of a bucket."""

    at_once = AT_ONCE

    def __init__(self, url: str) -> None:
        self._url = url
        root, self._prefix = split_url(url)
        self._root = root
        self._bucket = root.partition("://")[2]
        self._storage = open_storage(root)

    def stage(self, bucket: str, name: FileName) -> StagedFile:
        final = replace(name, ending=f".g{name.generation}.{name.owner}{name.ending}").final
        return _Upload(self._storage, self._bucket, join(self._prefix, f"{bucket}/{final}".lstrip("/")), name.owner)

    @contextmanager
    def errors(self) -> Iterator[None]:
        with reaching(self._url):
            yield

    def check(self, committable: JSON) -> None:
        if not self.is_staged(committable):
            raise unseen(f"the upload {self.name(committable)}", self._url)

    def is_staged(self, committable: JSON) -> bool:
        try:
            with s3_errors("list the parts of the upload", self.name(committable)):
                s3_client().list_parts(**self._upload(committable), MaxParts=1)
        except NotFound:
            return False
        return True

    def is_visible(self, committable: JSON) -> bool:
        with reaching(self._url):
            return self._storage.exists(committable["key"])

    def name(self, committable: JSON) -> str:
        return f"{self._root}/{committable['key']}"

    def begun(self, committables: Sequence[JSON], epoch: int) -> bool:
        with reaching(self._url):
            owner = committables[0]["owner"]
            return any(self._marks(owner, after=epoch - 1))

    def begin(self, committables: Sequence[JSON], epoch: int) -> None:
        owner = committables[0]["owner"]
        with reaching(self._url):
            self._storage.put(self._mark(owner, epoch), b"")
            before = _marked.get((self._url, owner), epoch)
            if before < epoch:
                self._storage.delete(self._mark(owner, before))
        _marked[self._url, owner] = epoch

    def publish(self, committable: JSON, epoch: int) -> Literal["published", "done", "missing"]:
        name = self.name(committable)
        try:
            try:
                self._complete(committable, IfNoneMatch="*")
            except NotSupported:  # names are unique, and this one was unused when the upload began
                self._complete(committable)
        except NotFound:  # it was completed before, perhaps by another driver
            return "done" if self.is_visible(committable) else "missing"
        except Taken as error:
            if not self.is_staged(committable):
                return "done"
            raise StorageError(
                f"{name} already exists, so a file of epoch {epoch} cannot get this name. Another job or another history of "
                "this job writes here: move its files away and start again, and give each job its own directory or prefix="
            ) from error
        return "published"

    def _complete(self, committable: JSON, **condition: str) -> None:
        parts = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(committable["parts"], 1)]
        with s3_errors("complete the upload", self.name(committable)):
            s3_client().complete_multipart_upload(**self._upload(committable), MultipartUpload={"Parts": parts}, **condition)

    def cleanup(self, owner: str, generation: int) -> None:
        with reaching(self._url):
            for mark in sorted(self._marks(owner))[:-1]:
                self._storage.delete(mark)
        for key, upload in list(self._uploads()):
            match = _NAME.fullmatch(key)
            if match and match[2] == owner and int(match[1]) <= generation:
                abort(self._bucket, key, upload)

    def _uploads(self) -> Iterator[tuple[str, str]]:
        """The keys and ids of the uploads in this directory, of all jobs."""
        with s3_errors("list the uploads below", self._url):
            pages = s3_client().get_paginator("list_multipart_uploads")
            prefix = f"{self._prefix}/" if self._prefix else ""
            for page in pages.paginate(Bucket=self._bucket, Prefix=prefix):
                yield from ((upload["Key"], upload["UploadId"]) for upload in page.get("Uploads", ()))

    def _marks(self, owner: str, after: int = -1) -> list[str]:
        """The marks of the epochs after this one. Only the last mark matters."""
        directory = join(self._prefix, f"{MARKS}-{owner}")
        return self._storage.list(directory, f"{directory}/{after:012d}" if after >= 0 else "")

    def _mark(self, owner: str, epoch: int) -> str:
        return join(self._prefix, f"{MARKS}-{owner}/{epoch:012d}")

    def _upload(self, committable: JSON) -> dict[str, Any]:
        return {"Bucket": self._bucket, "Key": committable["key"], "UploadId": committable["upload"]}


def abort(bucket: str, key: str, upload: str) -> None:
    """End an upload and remove its parts."""
    with suppress(NotFound), s3_errors("abort the upload", f"s3://{bucket}/{key}"):
        s3_client().abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload)


class _Upload(StagedFile):
    def __init__(self, storage: Storage, bucket: str, key: str, owner: str) -> None:
        self.final = f"s3://{bucket}/{key}"
        self._owner = owner
        self._parts = _Parts(storage, bucket, key)
        self.stream = cast(BinaryIO, self._parts)

    def finish(self) -> JSON:
        parts = self._parts
        parts.end()
        return {"key": parts.key, "upload": parts.upload, "parts": parts.tags, "size": parts.size, "owner": self._owner}

    def discard(self) -> None:
        self._parts.discarded = True
        if self._parts.upload is not None:
            with suppress(ForkpointError):  # the next start aborts it
                abort(self._parts.bucket, self._parts.key, self._parts.upload)


class _Parts(io.RawIOBase):
    """A stream into the parts of an upload. The first part begins the upload."""

    def __init__(self, storage: Storage, bucket: str, key: str) -> None:
        self.upload: str | None = None
        self._storage = storage
        self.bucket = bucket
        self.key = key
        self.tags: list[str] = []
        self.size = 0
        self.discarded = False
        self._buffer = bytearray()

    @property
    def _url(self) -> str:
        return f"s3://{self.bucket}/{self.key}"

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size

    def write(self, data: Any) -> int:
        count = memoryview(data).nbytes
        self.size += count
        if not self.discarded:
            self._buffer += data
            if len(self._buffer) >= PART_BYTES * (1 + len(self.tags) // 1000):
                self._send()
        return count

    def end(self) -> None:
        """Send the rest as the last part, which may be small."""
        if self._buffer or not self.tags:
            self._send()
        self.close()

    def _begin(self) -> str:
        with reaching(self._url):
            if self._storage.exists(self.key):
                raise exists_already(self._url)
        with s3_errors("begin an upload", self._url):
            upload: str = s3_client().create_multipart_upload(Bucket=self.bucket, Key=self.key)["UploadId"]
        return upload

    def _send(self) -> None:
        if self.upload is None:
            self.upload = self._begin()
        data, self._buffer = bytes(self._buffer), bytearray()
        md5 = hashlib.md5(data, usedforsecurity=False).digest()
        with s3_errors("upload a part of", self._url):
            answer = s3_client().upload_part(
                Bucket=self.bucket,
                Key=self.key,
                UploadId=self.upload,
                PartNumber=len(self.tags) + 1,
                Body=data,
                ContentMD5=base64.b64encode(md5).decode("ascii"),
            )
        self.tags.append(answer["ETag"])


class Taken(StorageError):
    """An object of this name exists."""


class NotSupported(StorageError):
    """The store lacks a feature of the request."""


def s3_client() -> Any:
    """This process's client for its current environment."""
    return _client(tuple((name, os.environ.get(name)) for name in _VARIABLES), os.getpid())


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
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        retries={"mode": "standard", "max_attempts": TRIES},
        s3={"addressing_style": "path" if endpoint and not by_host else "auto"},
        # Stores other than AWS lack its newer checksums; parts are sent with their MD5 instead.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        max_pool_connections=32,
    )
    if (given["AWS_SKIP_SIGNATURE"] or "").lower() in ("1", "true"):
        config = config.merge(Config(signature_version=UNSIGNED))
    return boto3.session.Session().client(
        "s3",
        config=config,
        endpoint_url=endpoint,
        aws_session_token=given["AWS_SESSION_TOKEN"] or given["AWS_TOKEN"],
        aws_access_key_id=given["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=given["AWS_SECRET_ACCESS_KEY"],
        region_name=given["AWS_REGION"] or given["AWS_DEFAULT_REGION"] or "us-east-1",
    )


@contextmanager
def s3_errors(verb: str, name: str) -> Iterator[None]:
    """Convert the client's errors: NotFound for a missing upload, ``Taken`` for a failed condition, SystemUnavailable for errors
    that may be temporary."""
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, NoCredentialsError, PartialCredentialsError
    from botocore.exceptions import ConnectionError as NotConnected

    failed = f"FileSink: cannot {verb} {name} from host {socket.gethostname()}"
    try:
        yield
    except ClientError as error:
        details = error.response.get("Error", {})
        code, reason = str(details.get("Code", "")), str(details.get("Message") or error)
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        if code in _MISSING:
            raise NotFound(f"{failed}: {code}") from error
        if code == "PreconditionFailed" or status == 412:
            raise Taken(f"{name} exists already") from error
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
            f"{failed}: the store does not answer: {error}. Check the store, AWS_ENDPOINT_URL and the network"
        ) from error
    except BotoCoreError as error:
        raise StorageError(f"{failed}: {error}. Check the bucket, region, endpoint and network") from error
