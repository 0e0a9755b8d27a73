"""What tests put into a directory of a bucket, and find there."""

from __future__ import annotations

import json
import uuid
from typing import Any

import boto3

from unreliable import BUCKET


class Bucket:
    def __init__(self, endpoint: str) -> None:
        self.prefix = uuid.uuid4().hex
        self.client = boto3.client(
            "s3", endpoint_url=endpoint, aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1"
        )

    def url(self, path: str) -> str:
        return f"s3://{BUCKET}/{self.prefix}/{path}"

    def put(self, path: str, data: str | bytes) -> None:
        self.client.put_object(Bucket=BUCKET, Key=f"{self.prefix}/{path}", Body=data)

    def get(self, path: str) -> bytes:
        found: bytes = self.client.get_object(Bucket=BUCKET, Key=f"{self.prefix}/{path}")["Body"].read()
        return found

    def delete(self, path: str) -> None:
        self.client.delete_object(Bucket=BUCKET, Key=f"{self.prefix}/{path}")

    def visible(self, directory: str) -> list[str]:
        """The paths of files in it, without hidden ones."""
        prefix = f"{self.prefix}/{directory}/"
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        paths = [each["Key"].removeprefix(f"{self.prefix}/") for page in pages for each in page.get("Contents", ())]
        return sorted(path for path in paths if "/." not in path)

    def uploads(self, directory: str) -> list[tuple[str, str]]:
        """The paths and ids of uploads that have not ended."""
        found = self.client.list_multipart_uploads(Bucket=BUCKET, Prefix=f"{self.prefix}/{directory}/")
        return [(each["Key"].removeprefix(f"{self.prefix}/"), each["UploadId"]) for each in found.get("Uploads", ())]

    def abort(self, path: str, upload: str) -> None:
        """As a lifecycle rule does."""
        self.client.abort_multipart_upload(Bucket=BUCKET, Key=f"{self.prefix}/{path}", UploadId=upload)

    def values(self, directory: str) -> list[Any]:
        """The JSON lines of all files in it, in the order of their paths."""
        return [json.loads(line) for path in self.visible(directory) for line in self.get(path).splitlines()]
