"""A server with Amazon's interfaces of Kinesis, Firehose and S3: moto's, in a process of its own."""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import boto3

from servers.process import Server, accepts, free_port

REGION = "eu-west-1"
CREDENTIALS = {"aws_access_key_id": "AKIATEST", "aws_secret_access_key": "secret"}
WRONG_KEY = "AKIAWRONG"
PROGRAM = Path(__file__).with_name("kinesis_moto.py")


class Kinesis(Server):
    """Streams survive ``kill`` and ``start``; buckets and Firehose's streams don't."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._port = free_port()
        super().__init__(directory)

    def command(self) -> Sequence[str]:
        return [sys.executable, str(PROGRAM), str(self._port), str(self.directory / "streams")]

    def environment(self) -> Mapping[str, str]:
        return {**os.environ, "PYTHONWARNINGS": "ignore"}

    def serves(self) -> bool:
        return accepts(self._port)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def properties(self) -> dict[str, str]:
        """What connects a source or sink, as Flink names it."""
        return {
            "aws.region": REGION,
            "aws.endpoint": self.endpoint,
            "aws.credentials.provider.basic.accesskeyid": CREDENTIALS["aws_access_key_id"],
            "aws.credentials.provider.basic.secretkey": CREDENTIALS["aws_secret_access_key"],
        }

    def client(self, service: str) -> Any:
        return boto3.client(service, endpoint_url=self.endpoint, region_name=REGION, **CREDENTIALS)

    @cached_property
    def kinesis(self) -> Any:
        return self.client("kinesis")

    def create_stream(self, name: str | None = None, shards: int = 1) -> str:
        name = name or f"stream-{uuid.uuid4().hex[:8]}"
        self.kinesis.create_stream(StreamName=name, ShardCount=shards)
        return name

    def put(self, stream: str, records: Iterable[tuple[str, bytes]]) -> None:
        """Records by key and data."""
        given = [{"PartitionKey": key, "Data": data} for key, data in records]
        for start in range(0, len(given), 500):
            self.kinesis.put_records(StreamName=stream, Records=given[start : start + 500])

    def put_to(self, stream: str, shard: str, values: Iterable[str]) -> None:
        """Texts to a shard, by its first hash key."""
        found = next(s for s in self.shards(stream) if s["ShardId"] == shard)
        hash_key = found["HashKeyRange"]["StartingHashKey"]
        records = [{"PartitionKey": v[:1] or "-", "Data": v.encode(), "ExplicitHashKey": hash_key} for v in values]
        self.kinesis.put_records(StreamName=stream, Records=records)

    def shards(self, stream: str) -> list[Any]:
        found: list[Any] = self.kinesis.list_shards(StreamName=stream)["Shards"]
        return found

    def split(self, stream: str, shard: str) -> tuple[str, str]:
        """Split a shard in the middle; its children."""
        hashes = next(s for s in self.shards(stream) if s["ShardId"] == shard)["HashKeyRange"]
        middle = (int(hashes["StartingHashKey"]) + int(hashes["EndingHashKey"])) // 2
        self.kinesis.split_shard(StreamName=stream, ShardToSplit=shard, NewStartingHashKey=str(middle))
        one, other = [s["ShardId"] for s in self.shards(stream)][-2:]
        return one, other

    def merge(self, stream: str, one: str, other: str) -> str:
        self.kinesis.merge_shards(StreamName=stream, ShardToMerge=one, AdjacentShardToMerge=other)
        child: str = self.shards(stream)[-1]["ShardId"]
        return child

    def create_delivery_stream(self, name: str) -> str:
        """A delivery stream of Firehose to a bucket of the same name."""
        self.client("s3").create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
        to = {"RoleARN": "arn:aws:iam::123456789012:role/test", "BucketARN": f"arn:aws:s3:::{name}"}
        self.client("firehose").create_delivery_stream(DeliveryStreamName=name, S3DestinationConfiguration=to)
        return name

    def delivered(self, bucket: str) -> bytes:
        """All that Firehose has written to a bucket."""
        s3 = self.client("s3")
        keys = [each["Key"] for each in s3.list_objects_v2(Bucket=bucket).get("Contents", [])]
        return b"".join(s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys)

    def misbehave(self, stream: str, **tags: object) -> None:
        """See kinesis_moto."""
        self.kinesis.add_tags_to_stream(StreamName=stream, Tags={name: str(value) for name, value in tags.items()})

    def tags(self, stream: str) -> dict[str, str]:
        found = self.kinesis.list_tags_for_stream(StreamName=stream)["Tags"]
        return {tag["Key"]: tag["Value"] for tag in found}

    def sequence_numbers(self, stream: str, shard: str) -> list[str]:
        iterator = self.kinesis.get_shard_iterator(StreamName=stream, ShardId=shard, ShardIteratorType="TRIM_HORIZON")
        records = self.kinesis.get_records(ShardIterator=iterator["ShardIterator"])["Records"]
        return [r["SequenceNumber"] for r in records]

    def read(self, stream: str) -> list[tuple[str, bytes]]:
        """Keys and data of all records, shard by shard."""
        out: list[tuple[str, bytes]] = []
        for shard in self.shards(stream):
            iterator = self.kinesis.get_shard_iterator(
                StreamName=stream, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
            )["ShardIterator"]
            while True:
                answer = self.kinesis.get_records(ShardIterator=iterator)
                out += [(r["PartitionKey"], r["Data"]) for r in answer["Records"]]
                iterator = answer.get("NextShardIterator")
                if not answer["Records"] or iterator is None:
                    break
        return out


def by_key(records: Iterable[tuple[str, bytes]]) -> dict[str, list[Any]]:
    """JSON values by key, in order."""
    found: dict[str, list[Any]] = {}
    for key, data in records:
        found.setdefault(key, []).append(json.loads(data))
    return found


def wait_until(condition: Any) -> None:
    while not condition():
        time.sleep(0.01)
