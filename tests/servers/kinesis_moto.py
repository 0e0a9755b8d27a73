"""moto's Kinesis, Firehose and S3, closer to Amazon's, as a server of its own: python kinesis_moto.py PORT FILE

What moto does otherwise, and is corrected here: a split or merged shard keeps its records, gets no new ones, and ends;
sequence numbers are long and have gaps; there is no iterator at a time to come. Streams survive in FILE.

Tags of a stream make it misbehave: ``throttle`` and ``expire`` (how many of the next requests for records), ``trim-SHARD`` (its
records up to this sequence number, or "all", are gone), ``unlist`` (this shard is gone), ``fail`` (how many of the next records
to put are refused, every other one), ``cut`` (how many of the next puts are not done, and answered with nothing). A delivery
stream of Firehose whose name begins with "refuses" refuses every other record of its first three requests.
"""

from __future__ import annotations

import pickle
import sys
import time
from collections import Counter, OrderedDict
from pathlib import Path
from threading import RLock
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.firehose.models import FirehoseBackend
from moto.kinesis import models
from moto.kinesis.models import KinesisBackend, Shard, Stream, kinesis_backends
from moto.kinesis.responses import KinesisResponse
from moto.server import main

FIRST = 49_600_000_000_000_000_000_000_000_000_000_000_000_000_000_000_000_000_000
WRONG_KEY = "AKIAWRONG"  # as in kinesis_server
_lock = RLock()
_file: Path


def _save() -> None:
    kept = {where: backend.streams for where, backend in _backends().items()}
    _file.with_suffix(".new").write_bytes(pickle.dumps(kept))
    _file.with_suffix(".new").replace(_file)


def _backends() -> dict[tuple[str, str], KinesisBackend]:
    return {(account, region): b for account, regions in kinesis_backends.items() for region, b in regions.items()}


def _load() -> None:
    if _file.exists():
        for (account, region), streams in pickle.loads(_file.read_bytes()).items():
            kinesis_backends[account][region].streams = streams


def _times(stream: Stream, tag: str) -> bool:
    """Whether the next request is one that a tag is about."""
    left = int(stream.tags.get(tag, 0))
    if left > 0:
        stream.tags[tag] = str(left - 1)
    return left > 0


def _put_record(self: Shard, partition_key: str, data: str, explicit_hash_key: str) -> str:
    self.last = getattr(self, "last", FIRST + self._shard_id) + 1_000_003
    self.records[self.last] = models.Record(partition_key, data, self.last, explicit_hash_key)
    return str(self.last)


def _to_json(self: Shard) -> dict[str, Any]:
    found = _shard_to_json(self)
    numbers = found["SequenceNumberRange"]
    numbers["StartingSequenceNumber"] = str(FIRST + self._shard_id)
    if not self.is_open:
        numbers["EndingSequenceNumber"] = str(getattr(self, "last", FIRST + self._shard_id))
    return found


def _child(stream: Stream, start: int, end: int, parent: str, adjacent: str | None = None) -> Shard:
    shard = Shard(max(s._shard_id for s in stream.shards.values()) + 1, start, end, parent, adjacent)
    stream.shards[shard.shard_id] = shard
    return shard


def _split(self: Stream, shard_to_split: str, new_starting_hash_key: str) -> None:
    shard, at = self.shards[shard_to_split], int(new_starting_hash_key)
    shard.is_open = False
    _child(self, shard.starting_hash, at - 1, shard.shard_id)
    _child(self, at, shard.ending_hash, shard.shard_id)


def _merge(self: Stream, shard_to_merge: str, adjacent_shard_to_merge: str) -> None:
    one, other = self.shards[shard_to_merge], self.shards[adjacent_shard_to_merge]
    one.is_open = other.is_open = False
    _child(
        self,
        min(one.starting_hash, other.starting_hash),
        max(one.ending_hash, other.ending_hash),
        one.shard_id,
        other.shard_id,
    )


def _shard_for_key(self: Stream, partition_key: str, explicit_hash_key: str) -> Shard | None:
    key = int(explicit_hash_key) if explicit_hash_key else int(models.md5_hash(partition_key.encode()).hexdigest(), 16)
    return next((s for s in self.shards.values() if s.is_open and s.starting_hash <= key <= s.ending_hash), None)


def _get_records(self: KinesisBackend, stream_arn: str | None, shard_iterator: str, limit: int | None) -> Any:
    name, shard_id, last = models.decompose_shard_iterator(shard_iterator)
    stream = self.describe_stream(stream_arn=stream_arn, stream_name=name)
    if _times(stream, "throttle"):
        raise JsonRESTError("ProvisionedThroughputExceededException", f"Rate exceeded for shard {shard_id}")
    if _times(stream, "expire"):
        raise JsonRESTError("ExpiredIteratorException", "Iterator expired.")
    shard = stream.get_shard(shard_id)
    if (trim := stream.tags.pop(f"trim-{shard_id}", None)) is not None:
        shard.records = OrderedDict((n, r) for n, r in shard.records.items() if trim != "all" and n > int(trim))
    iterator, records, behind_ms = _usual_get_records(self, stream_arn, shard_iterator, limit)
    last = records[-1].sequence_number if records else int(last)
    ends = not shard.is_open and not any(n > last for n in shard.records)
    return None if ends else iterator, records, behind_ms


def _get_shard_iterator(self: KinesisBackend, *arguments: Any, **options: Any) -> str:
    at = options.get("at_timestamp") or arguments[5]
    if at is not None and float(at.timestamp() if hasattr(at, "timestamp") else at) > time.time():
        message = "The timestampInMillis parameter cannot be greater than the currentTimestampInMillis."
        raise JsonRESTError("InvalidArgumentException", message)
    return _usual_get_shard_iterator(self, *arguments, **options)


def _list_shards(self: KinesisBackend, stream_arn: str | None, stream_name: str | None, **options: Any) -> Any:
    stream = self.describe_stream(stream_arn=stream_arn, stream_name=stream_name)
    stream.shards.pop(stream.tags.pop("unlist", ""), None)
    return _usual_list_shards(self, stream_arn=stream_arn, stream_name=stream_name, **options)


def _put_records(self: KinesisBackend, stream_arn: str, stream_name: str, records: list[dict[str, Any]]) -> dict[str, Any]:
    stream = self.describe_stream(stream_arn=stream_arn, stream_name=stream_name)
    if _times(stream, "cut"):
        return {}
    answers: list[dict[str, Any]] = []
    for n, record in enumerate(records):
        if n % 2 == 0 and _times(stream, "fail"):
            error = {"ErrorCode": "ProvisionedThroughputExceededException", "ErrorMessage": "Rate exceeded"}
            answers.append(error)
        else:
            answers += _usual_put_records(self, stream_arn, stream_name, [record])["Records"]
    return {"FailedRecordCount": sum("ErrorCode" in a for a in answers), "Records": answers}


def _put_record_batch(self: FirehoseBackend, delivery_stream_name: str, records: list[dict[str, Any]]) -> dict[str, Any]:
    refusing = delivery_stream_name.startswith("refuses") and _requests[delivery_stream_name] < 3
    _requests[delivery_stream_name] += 1
    taken = [r for n, r in enumerate(records) if n % 2 or not refusing]
    answers = iter(_usual_put_record_batch(self, delivery_stream_name, taken)["RequestResponses"] if taken else [])
    error = {"ErrorCode": "ServiceUnavailableException", "ErrorMessage": "Slow down."}
    found = [next(answers) if n % 2 or not refusing else error for n in range(len(records))]
    return {"FailedPutCount": len(records) - len(taken), "Encrypted": False, "RequestResponses": found}


def _call_action(self: KinesisResponse) -> Any:
    with _lock:  # moto's own state is not safe on several threads
        if WRONG_KEY in (self.headers.get("Authorization") or ""):
            error = JsonRESTError("UnrecognizedClientException", "The security token included in the request is invalid.")
            return 400, {"status": 400}, error.description
        answer = _usual_call_action(self)
        if not self._get_action().startswith(("Get", "Describe", "List")):
            _save()
        return answer


_shard_to_json, _usual_get_records = Shard.to_json, KinesisBackend.get_records
_requests: Counter[str] = Counter()
_usual_put_record_batch = FirehoseBackend.put_record_batch
_usual_get_shard_iterator = KinesisBackend.get_shard_iterator
_usual_list_shards = KinesisBackend.list_shards
_usual_put_records, _usual_call_action = KinesisBackend.put_records, KinesisResponse.call_action

if __name__ == "__main__":
    port, file = sys.argv[1:]
    _file = Path(file)
    Shard.put_record, Shard.to_json = _put_record, _to_json  # type: ignore[method-assign]
    Stream.split_shard, Stream.merge_shards, Stream.get_shard_for_key = _split, _merge, _shard_for_key  # type: ignore[method-assign]
    KinesisBackend.get_records, KinesisBackend.put_records = _get_records, _put_records  # type: ignore[method-assign]
    FirehoseBackend.put_record_batch = _put_record_batch  # type: ignore[method-assign]
    KinesisBackend.get_shard_iterator = _get_shard_iterator  # type: ignore[method-assign]
    KinesisBackend.list_shards = _list_shards  # type: ignore[method-assign]
    KinesisResponse.call_action = _call_action  # type: ignore[method-assign]
    _load()
    main(["-p", port])
