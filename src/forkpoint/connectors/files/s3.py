"""A sink's files on S3: multipart uploads, which the driver completes once their epoch is committed.

Parts that are uploaded are durable, and invisible until the upload is completed. Completing it is one step on the server, which
makes the object visible as a whole, and ends the upload. So an upload that exists is not published, and one that is gone was
either published, or aborted by someone else: by a lifecycle rule of the bucket, or by hand. A mark, which the driver writes
before it publishes an epoch, tells these apart where nothing of the epoch can have been published yet.

Uploads have no other names than their objects', so the name of an object has the run's generation and the owner, by which
``cleanup`` finds uploads that no manifest names.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, BinaryIO, Literal, cast

from forkpoint.connectors.files.places import FileName, SinkFiles, StagedFile, exists_already, unseen
from forkpoint.connectors.files.remote import AT_ONCE, join, reaching
from forkpoint.connectors.files.s3_client import NotSupported, Taken, s3_client, s3_errors
from forkpoint.contract.source import JSON
from forkpoint.errors import ForkpointError, NotFound, StorageError
from forkpoint.storage.base import Storage, open_storage
from forkpoint.storage.files import split_url

PART_BYTES = 8 << 20
"""Of the first thousand parts; those of the next thousand are twice as large, and so on, as an upload has at most 10,000."""
MARKS = ".published"

_NAME = re.compile(r".*-\d{12}-\d+-[^/]*\.g(\d+)\.([0-9a-f]{8})[^/]*")

_marked: dict[tuple[str, str], int] = {}
"""By URL and owner, the last epoch that this process has marked."""


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
            with s3_errors("look at the upload", self.name(committable)):
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
            except NotSupported:  # names are unique, and this one was free when the upload began
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
            s3_client().complete_multipart_upload(
                **self._upload(committable), MultipartUpload={"Parts": parts}, **condition
            )  # fmt: skip

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
                yield from ((each["Key"], each["UploadId"]) for each in page.get("Uploads", ()))

    def _marks(self, owner: str, after: int = -1) -> list[str]:
        """The marks of the epochs after this one. Those before the last one are of no use."""
        directory = join(self._prefix, f"{MARKS}-{owner}")
        return self._storage.list(directory, f"{directory}/{after:012d}" if after >= 0 else "")

    def _mark(self, owner: str, epoch: int) -> str:
        return join(self._prefix, f"{MARKS}-{owner}/{epoch:012d}")

    def _upload(self, committable: JSON) -> dict[str, Any]:
        return {"Bucket": self._bucket, "Key": committable["key"], "UploadId": committable["upload"]}


def abort(bucket: str, key: str, upload: str) -> None:
    """End an upload, and remove its parts."""
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
        return {
            "key": parts.key, "upload": parts.upload, "parts": parts.tags, "size": parts.size, "owner": self._owner,
        }  # fmt: skip

    def discard(self) -> None:
        self._parts.discarded = True
        if self._parts.upload is not None:
            with suppress(ForkpointError):  # the next start aborts it
                abort(self._parts.bucket, self._parts.key, self._parts.upload)


class _Parts(io.RawIOBase):
    """A stream into the parts of an upload, which begins with the first of them."""

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
    def _place(self) -> str:
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
        """Send the rest, as the last part: it may be small."""
        if self._buffer or not self.tags:
            self._send()
        self.close()

    def _begin(self) -> str:
        with reaching(self._place):
            if self._storage.exists(self.key):
                raise exists_already(self._place)
        with s3_errors("begin an upload", self._place):
            upload: str = s3_client().create_multipart_upload(Bucket=self.bucket, Key=self.key)["UploadId"]
        return upload

    def _send(self) -> None:
        if self.upload is None:
            self.upload = self._begin()
        data, self._buffer = bytes(self._buffer), bytearray()
        md5 = hashlib.md5(data, usedforsecurity=False).digest()
        with s3_errors("upload a part of", self._place):
            answer = s3_client().upload_part(
                Bucket=self.bucket, Key=self.key, UploadId=self.upload, PartNumber=len(self.tags) + 1, Body=data,
                ContentMD5=base64.b64encode(md5).decode("ascii"),
            )  # fmt: skip
        self.tags.append(answer["ETag"])
