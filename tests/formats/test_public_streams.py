"""Events of the shapes of two public streams, Wikimedia's recentchange and GH Archive, as declared types and as ANY.

Both mix kinds of events in one stream: fields are missing, null, empty or of another type, by the kind.
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

import forkpoint as fp
from connectors.connector_reading import elements as read_range
from formats.messages import elements, messages, read

META = {
    "uri": "https://www.wikidata.org/wiki/Q1",
    "request_id": "b0b7",
    "id": "5e4cbbcd-11e5-4b7b-8d5f-f5a6d7e9d1e5",
    "dt": "2024-05-02T10:15:30.123456789Z",
    "domain": "www.wikidata.org",
    "stream": "mediawiki.recentchange",
    "topic": "eqiad.mediawiki.recentchange",
    "partition": 0,
    "offset": 5_000_000_000,
}
EDIT: dict[str, Any] = {
    "$schema": "/mediawiki/recentchange/1.0.0",
    "meta": META,
    "id": 2_244_000_001,
    "type": "edit",
    "namespace": 0,
    "title": "Q1",
    "title_url": "https://www.wikidata.org/wiki/Q1",
    "comment": "/* wbsetclaim */ Ünïcode ☃",
    "timestamp": 1714644930,
    "user": "Bot",
    "bot": True,
    "minor": False,
    "patrolled": True,
    "length": {"old": 10, "new": 12},
    "revision": {"old": 1, "new": 2},
    "server_url": "https://www.wikidata.org",
    "server_name": "www.wikidata.org",
    "server_script_path": "/w",
    "wiki": "wikidatawiki",
    "parsedcomment": "",
}
NEW = {**EDIT, "type": "new", "length": {"old": None, "new": 12}, "revision": {"old": None, "new": 2}}
LOG: dict[str, Any] = {
    name: value for name, value in EDIT.items() if name not in ("minor", "patrolled", "length", "revision")
} | {
    "type": "log",
    "id": None,
    "log_id": 0,
    "log_type": "abusefilter",
    "log_action": "hit",
    "log_action_comment": "x",
    "log_params": {"filter": "1,2", "action": "edit", "actions": "", "log": 33},
}
EMPTY_LOG = {**LOG, "log_params": []}  # PHP's empty array, where others have an object
CATEGORY = {name: value for name, value in EDIT.items() if name not in ("minor", "length", "revision")} | {"type": "categorize"}
CHANGES = [EDIT, NEW, LOG, EMPTY_LOG, CATEGORY]


class Meta(NamedTuple):
    dt: fp.Instant
    domain: str
    offset: int


class Sizes(NamedTuple):
    old: int | None
    new: int


class RecentChange(msgspec.Struct, rename={"schema": "$schema"}):
    schema: str
    meta: Meta
    type: str
    title: str
    timestamp: int
    bot: bool
    id: int | None = None
    length: Sizes | None = None
    patrolled: bool | None = None
    log_params: Any = None


PUSH: dict[str, Any] = {
    "id": "38044140053",
    "type": "PushEvent",
    "created_at": "2024-05-02T10:15:30Z",
    "public": True,
    "actor": {
        "id": 1,
        "login": "octocat",
        "display_login": "octocat",
        "gravatar_id": "",
        "url": "u",
        "avatar_url": "a",
    },
    "repo": {"id": 800_000_000_000, "name": "octo/cat", "url": "r"},
    "payload": {
        "push_id": 18_000_000_000,
        "size": 1,
        "distinct_size": 1,
        "ref": "refs/heads/main",
        "head": "6d",
        "before": "88",
        "commits": [{"sha": "6d", "author": {"email": "o@c", "name": "O"}, "message": "m"}],
    },
}
CREATE = {
    **PUSH,
    "type": "CreateEvent",
    "payload": {
        "ref": None,
        "ref_type": "repository",
        "master_branch": "main",
        "description": None,
        "pusher_type": "user",
    },
    "org": {"id": 9, "login": "octo", "url": "o"},
}
WATCH = {**PUSH, "type": "WatchEvent", "payload": {"action": "started"}}
PUBLIC = {**PUSH, "type": "PublicEvent", "payload": {}}
ISSUE = {
    **PUSH,
    "type": "IssuesEvent",
    "payload": {
        "action": "opened",
        "issue": {
            "number": 7,
            "labels": [],
            "assignee": None,
            "created_at": "2024-05-02T10:15:30Z",
            "reactions": {"+1": 0, "-1": 0},
            "score": 1.5,
            "body": "a\r\nb\u2028\x00",
        },
    },
}
EVENTS = [PUSH, CREATE, WATCH, PUBLIC, ISSUE]


class Named(NamedTuple):
    id: int
    login: str


class Repo(NamedTuple):
    id: int
    name: str


class Event(NamedTuple):
    id: str
    type: str
    actor: Named
    repo: Repo
    created_at: fp.Instant
    payload: dict[str, Any]
    org: Named | None = None


def changes() -> list[RecentChange]:
    meta = Meta(datetime(2024, 5, 2, 10, 15, 30, 123456, UTC), META["domain"], META["offset"])  # type: ignore[arg-type]
    return [
        RecentChange(
            each["$schema"],
            meta,
            each["type"],
            "Q1",
            1714644930,
            True,
            each["id"],
            Sizes(**each["length"]) if "length" in each else None,
            each.get("patrolled"),
            each.get("log_params"),
        )
        for each in CHANGES
    ]


def events() -> list[Event]:
    return [
        Event(
            each["id"],
            each["type"],
            Named(1, "octocat"),
            Repo(800_000_000_000, "octo/cat"),
            datetime(2024, 5, 2, 10, 15, 30, tzinfo=UTC),
            each["payload"],
            Named(9, "octo") if "org" in each else None,
        )
        for each in EVENTS
    ]


STREAMS = [(RecentChange, CHANGES, changes), (Event, EVENTS, events)]


@pytest.mark.parametrize(("type", "raws", "expected"), STREAMS)
def test_messages_and_files_have_the_same_events(type: Any, raws: list[Any], expected: Any, tmp_path: Path) -> None:
    """All kinds of events mixed, in many orders and runs, by messages and by lines of a file, each as when read alone."""
    schema = fp.JsonRowDeserializationSchema(type)
    for seed in range(10):
        order = random.Random(seed).choices(range(len(raws)), k=40)
        texts = [json.dumps(raws[at], ensure_ascii=bool(seed % 2)).encode() for at in order]
        assert read(schema, *texts) == [expected()[at] for at in order]
        assert [schema.deserialize(text) for text in texts[:5]] == [expected()[at] for at in order[:5]]
    (tmp_path / "a.json").write_bytes(b"\n".join(texts) + b"\n")
    source = fp.FileSource.json(tmp_path, type, bounded=True)
    found = [one for part in source.create_enumerator(None).plan(1000, 1) for one in read_range(source, part)]
    assert found == [expected()[at] for at in order]


@pytest.mark.parametrize("raws", [CHANGES, EVENTS])
def test_events_as_any_are_what_they_are_in_json(raws: list[Any]) -> None:
    """Without a type, nothing is added, dropped or converted: times stay text, and empty arrays and objects differ."""
    texts = [json.dumps(raw).encode() for raw in raws]
    assert read(fp.JsonRowDeserializationSchema(fp.Types.MAP(fp.Types.STRING(), fp.Types.ANY())), *texts) == raws
    found = read(fp.JsonRowDeserializationSchema(fp.Types.ANY()), *texts)
    assert json.dumps(found, sort_keys=True) == json.dumps(raws, sort_keys=True)  # 1 is not 1.0, nor True


class Plain(NamedTuple):
    """Fields that are parsed over columns."""

    type: str
    title: str
    timestamp: int
    bot: bool
    namespace: int = 0


def test_columns_and_rows_have_the_same_events() -> None:
    """A type that is parsed over columns, beside nested fields that are ignored, and one event that is not of the type."""
    schema = fp.JsonRowDeserializationSchema(Plain)
    texts = [json.dumps(each).encode() for each in CHANGES] * 500
    expected = [Plain(each["type"], "Q1", 1714644930, True, 0) for each in CHANGES] * 500
    assert read(schema, *texts) == expected
    texts[1777] = json.dumps({**EDIT, "timestamp": "2024-05-02T10:15:30Z"}).encode()
    found = schema.deserialize_batch(messages(*texts))
    assert [(bad.index, bad.problem) for bad in found.bad] == [(1777, "timestamp: expected int, got '2024-05-02T10:15:30Z'")]
    assert elements(schema, found) == expected[:1777] + expected[1778:]
